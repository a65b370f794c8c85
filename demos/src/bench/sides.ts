/** The sides of the benchmark: each loads a model, runs it, and says what that took. */

import { site, siteModel } from "../lib/site.js";

export interface Value { readonly shape: readonly number[]; readonly data: Float32Array }
export type Values = Readonly<Record<string, Value>>;

export interface Running {
  run(inputs: Values): Promise<Values>;
  readonly where: string;
  /** Bytes of runtime code and of the model, as fetched. */
  readonly bytes: { readonly runtime: number; readonly model: number };
  dispose(): Promise<void>;
}

export interface Side {
  readonly id: string;
  readonly label: string;
  readonly series: number;
  /** "" or why it cannot run here. */
  lacks(): Promise<string>;
  open(model: string): Promise<Running>;
}

const THREADS = Math.max(2, Math.min(4, navigator.hardwareConcurrency || 2));
const isolated = (): string => (crossOriginIsolated ? "" : "threads need a page that is cross-origin isolated (tang-edge demo --isolate)");

async function noGpu(): Promise<string> {
  const adapter = "gpu" in navigator ? await navigator.gpu.requestAdapter().catch(() => null) : null;
  return adapter ? "" : "this browser offers no WebGPU adapter";
}

/** Bytes of the files that the page fetched while `work` ran and whose address `counts`. */
async function counted<T>(counts: (url: string) => boolean, work: () => Promise<T>): Promise<[T, number]> {
  const from = performance.now();
  const done = await work();
  const entries = performance.getEntriesByType("resource") as PerformanceResourceTiming[];
  return [done, entries.filter((e) => e.startTime >= from && counts(e.name)).reduce((sum, e) => sum + e.encodedBodySize, 0)];
}

function tang(id: string, label: string, series: number, device: "webgpu" | "wasm", threads: number, lacks: () => Promise<string>): Side {
  return {
    id, label, series, lacks,
    async open(name) {
      const [{ load }, runtime] = await counted((url) => url.endsWith(".js"), () => import("tang-edge"));
      const { bundle } = await siteModel(name);
      const model = await load(new URL(bundle, document.baseURI).href, { device, threads, cache: "none", verify: "off" });
      const { report } = model;
      return {
        where: report.adapter,
        bytes: { runtime, model: report.bytes.downloaded },
        async run(inputs) {
          const outputs = await model.run(Object.fromEntries(Object.entries(inputs).map(([n, v]) => [n, { dtype: "f32" as const, ...v }])));
          return Object.fromEntries(Object.entries(outputs).map(([n, t]) => [n, { shape: t.shape, data: t.data as Float32Array }]));
        },
        dispose: async () => model.dispose(),
      };
    },
  };
}

interface OrtTensor { readonly data: Float32Array; readonly dims: readonly number[] }
interface OrtSession { run(feeds: Record<string, unknown>): Promise<Record<string, OrtTensor>>; release(): Promise<void> }
interface Ort {
  readonly env: { wasm: { wasmPaths: { readonly wasm: string }; numThreads: number; proxy: boolean }; logLevel: string };
  readonly Tensor: new (type: "float32", data: Float32Array, dims: readonly number[]) => OrtTensor;
  readonly InferenceSession: { create(model: Uint8Array, options: { executionProviders: readonly string[] }): Promise<OrtSession> };
}

/** onnxruntime-web from the site's own vendor folder. A query makes an instance of its own: threads are set once an instance. */
function ort(id: string, label: string, series: number, provider: "wasm" | "webgpu", threads: number, lacks: () => Promise<string>): Side {
  return {
    id, label, series,
    lacks: async () => ((await site()).ort ? lacks() : ((await site()).missing["ort"] ?? "onnxruntime-web is not part of this copy of the site")),
    async open(name) {
      const held = (await site()).ort!;
      const folder = new URL(held.folder, document.baseURI).href;
      const { onnx } = await siteModel(name);
      const [opened, all] = await counted((url) => url.startsWith(folder), async () => {
        const library = (await import(`${folder}ort.${provider}.bundle.min.mjs?threads=${threads}`)) as Ort;
        // the code of this bundle knows its loader; only the machine code is a file of its own
        library.env.wasm.wasmPaths = { wasm: `${folder}ort-wasm-simd-threaded.${provider === "webgpu" ? "asyncify." : ""}wasm` };
        library.env.wasm.numThreads = threads;
        library.env.logLevel = "error";
        const model = new Uint8Array(await (await fetch(onnx)).arrayBuffer());
        return { library, size: model.length, session: await library.InferenceSession.create(model, { executionProviders: [provider] }) };
      });
      return {
        where: `onnxruntime-web ${held.version}, ${provider}${threads > 1 ? `, ${threads} threads` : ""}`,
        bytes: { runtime: all, model: opened.size },
        async run(inputs) {
          const feeds = Object.fromEntries(Object.entries(inputs).map(([n, v]) => [n, new opened.library.Tensor("float32", v.data, v.shape)]));
          const outputs = await opened.session.run(feeds);
          return Object.fromEntries(Object.entries(outputs).map(([n, t]) => [n, { shape: t.dims, data: t.data }]));
        },
        dispose: () => opened.session.release(),
      };
    },
  };
}

const always = async (): Promise<string> => "";
const threaded = async (): Promise<string> => isolated();

export const SIDES: readonly Side[] = [
  tang("tang-webgpu", "tang-edge, WebGPU", 0, "webgpu", 1, noGpu),
  ort("ort-webgpu", "ONNX Runtime Web, WebGPU", 1, "webgpu", 1, noGpu),
  tang("tang-wasm", "tang-edge, WebAssembly", 0, "wasm", 1, always),
  ort("ort-wasm", "ONNX Runtime Web, WebAssembly", 1, "wasm", 1, always),
  tang("tang-wasm-threads", `tang-edge, WebAssembly, ${THREADS} threads`, 0, "wasm", THREADS, threaded),
  ort("ort-wasm-threads", `ONNX Runtime Web, WebAssembly, ${THREADS} threads`, 1, "wasm", THREADS, threaded),
];

/** Inputs of the models that the site brings, and a size each that any device bears. */
export const SHAPES: Readonly<Record<string, Readonly<Record<string, readonly number[]>>>> = {
  "go2-policy": { obs: [1, 45] },
  "reachy-ik": { input: [1, 6] },
  "reachy-fk": { input: [1, 7] },
  "ppocr-cls": { x: [1, 3, 48, 192] },
  "ppocr-rec": { x: [1, 3, 48, 320] },
  "ppocr-det": { x: [1, 3, 320, 320] },
};
