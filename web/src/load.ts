/** load(): from an address to a model on a device. */

import type { LoadOptions, Progress, Report } from "./api.js";
import { Bundle } from "./bundle/bundle.js";
import type { Plan } from "./bundle/format.js";
import { openStore } from "./bundle/store.js";
import { choose, measure, type Candidate } from "./choose.js";
import type { Engine } from "./engine.js";
import { DeviceError } from "./errors.js";
import { imageReader } from "./images.js";
import { Model } from "./runtime/model.js";
import { LiveReport } from "./runtime/report.js";

/** A bundle larger than this is not put on a second device to see whether that is faster. */
const MEASURED_BYTES = 512 * 2 ** 20;

/** Opens a bundle and puts it on a device; see LoadOptions. */
export async function load(from: string | URL | Blob, options: LoadOptions = {}): Promise<Model> {
  const loading = new AbortController(), { signal } = options;
  const stop = (): void => loading.abort(signal!.reason);
  if (signal?.aborted) stop();
  signal?.addEventListener("abort", stop);
  try {
    return await put(from, { ...options, signal: loading.signal });
  } finally {
    signal?.removeEventListener("abort", stop); // a model that is there does not go when the signal aborts
  }
}

type Options = LoadOptions & { readonly signal: AbortSignal };

async function put(from: string | URL | Blob, options: Options): Promise<Model> {
  const { cache = "auto", verify = "background", signal, dims, onProgress } = options, times: Record<string, number> = {};
  const start = performance.now(), lap = (what: string): number => (times[what] = performance.now() - start);
  const tell = (stage: Progress["stage"], done: number, total: number): void => onProgress?.({ stage, done, total });
  tell("manifest", 0, 1);
  const bundle = await Bundle.open(from, { cache, signal }), { name } = bundle.manifest;
  lap("manifest");
  tell("manifest", 1, 1);
  bundle.onWeights = (done, total) => tell("weights", done, total);
  const plan = await bundle.plan();
  lap("plan");
  // measurements are remembered with the bundle's members, or (for a file of the page) by themselves
  const store = bundle.store.kind === "none" && cache !== "none" ? await openStore(cache) : bundle.store;
  const { candidates, passed, measured, key } = await choose(plan, bundle.id, options.device ?? "auto", store);
  const devices = new Devices(bundle, plan, options, candidates, passed), engine = await devices.first();
  lap("device");
  const selfTest = { outcome: "running", why: "", vectors: 0, runs: 0, worst: 0 } as const;
  const state = () => ({ storage: bundle.storage, bytes: { ...bundle.counters }, milliseconds: { ...times } });
  const report = new LiveReport({ model: name, selfTest, demotions: [], measured, recoveries: 0, ...devices.where(engine), ...state() });
  const golden = (file: string): ReturnType<Bundle["tensors"]> => bundle.tensors(file);
  const onSelfTest = (done: number, total: number): void => tell("self-test", done, total);
  const next = (failure: DeviceError): Promise<Engine | null> => devices.next(failure, report);
  const model = new Model({ name, plan, engine, report, golden, verify, next, readImage: imageReader(plan), onSelfTest });
  try {
    await unlessAborted(signal, dims && model.prepare(dims));
    await unlessAborted(signal, verify === "before" && model.certified);
  } catch (error) {
    model.dispose();
    throw error;
  }
  lap("load");
  report.set(state());
  tell("ready", 1, 1);
  // once the model is certified, and where another device could run it too: which is faster, for the next time
  const other = key !== null && store.kind !== "none" && bundle.size < MEASURED_BYTES && devices.other(engine);
  void model.certified.then(async () => {
    if (other && model.engine === engine) report.set({ measured: await measure(plan, golden, engine, () => devices.start(other), store, key) });
  }).catch(() => {}).then(() => report.set(state())); // no measurement: the next load tries again
  return model;
}

async function unlessAborted(signal: AbortSignal, work: unknown): Promise<void> {
  await Promise.race([work, new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)))]);
  signal.throwIfAborted();
}

/** The candidates, one after the other, and what became of each. */
class Devices {
  readonly #rest: Candidate[];
  readonly #considered: { device: string; taken: boolean; why: string }[];

  constructor(
    private readonly bundle: Bundle, private readonly plan: Plan, private readonly options: Options,
    candidates: readonly Candidate[], passed: Report["considered"],
  ) {
    this.#rest = [...candidates];
    this.#considered = [...passed];
  }

  /** A candidate of another kind. */
  other(engine: Engine): Candidate | undefined {
    return this.#rest.find((c) => c.device.kind !== engine.kind);
  }

  start({ device, variant }: Candidate): Promise<Engine> {
    const { bundle, plan, options: { threads = 0, signal, onProgress } } = this;
    const onPipeline = (done: number, total: number): void => onProgress?.({ stage: "pipelines", done, total });
    return device.open({ plan, variant, weights: bundle, threads, signal, onPipeline });
  }

  async first(): Promise<Engine> {
    const engine = await this.#open();
    if (engine) return engine;
    const why = this.#considered.map((c) => `${c.device}: ${c.why}`).join("; ");
    throw new DeviceError(`no variant runs here: ${why}`, this.bundle.manifest.name, "Pack it with --target browser");
  }

  /** The next one after a failure of the one before; null where none is left. */
  async next(failure: DeviceError, report: LiveReport): Promise<Engine | null> {
    this.#considered.push({ ...this.#considered.pop()!, taken: false, why: failure.message });
    const engine = await this.#open();
    if (engine) report.set(this.where(engine));
    return engine;
  }

  async #open(): Promise<Engine | null> {
    for (let candidate = this.#rest.shift(); candidate; candidate = this.#rest.shift()) {
      const device = `${candidate.device.kind} ${candidate.variant.id}`;
      try {
        const engine = await this.start(candidate);
        this.#considered.push({ device: `${device} on ${engine.adapter}`, taken: true, why: candidate.why });
        return engine;
      } catch (error) {
        this.options.signal.throwIfAborted();
        if (!(error instanceof DeviceError)) throw error;
        this.#considered.push({ device, taken: false, why: error.message });
      }
    }
    return null;
  }

  where({ kind, adapter, variant, threads }: Engine): Pick<Report, "device" | "adapter" | "variant" | "threads" | "considered"> {
    return { device: kind, adapter, variant: variant.id, threads, considered: [...this.#considered] };
  }
}
