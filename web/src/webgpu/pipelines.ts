/** Kernel texts and their pipelines: made together, without blocking, each distinct kernel once. */

import type { Kernel, Variant } from "../bundle/format.js";
import { BundleError, KernelRefused } from "../errors.js";
import { brief, guarded } from "./gpu.js";

export interface Pipeline {
  readonly pipeline: GPUComputePipeline;
  readonly bindings: GPUBindGroupLayout;
}

/** The kernels of a WGSL member: what follows each line `//@kernel <id>`, unchanged. */
export function splitSource(text: string): Map<string, string> {
  const result = new Map<string, string>();
  for (const section of text.split(/^\/\/@kernel[ \t]+/m).slice(1)) {
    const end = section.indexOf("\n");
    result.set(section.slice(0, end).trim(), section.slice(end + 1));
  }
  return result;
}

export class Pipelines {
  readonly #made = new Map<string, Promise<Pipeline | string>>();
  readonly #ready = new Map<string, Pipeline | string>();
  readonly #layouts = new Map<string, GPUBindGroupLayout>();

  constructor(readonly device: GPUDevice, readonly variant: Variant, readonly texts: ReadonlyMap<string, string>) {}

  /** Makes the pipelines of these kernels; one that the browser refuses is an error only when it is used. */
  async make(kernels: Iterable<string>, progress: (done: number, total: number) => void = () => {}): Promise<void> {
    const wanted = [...new Set(kernels)].filter((id) => !this.#ready.has(id));
    let done = 0;
    await Promise.all(wanted.map(async (id) => {
      let made = this.#made.get(id);
      if (!made) this.#made.set(id, (made = this.#create(id)));
      this.#ready.set(id, await made);
      progress(++done, wanted.length);
    }));
  }

  /** Raises KernelRefused (with the reason) for a kernel that the browser does not take; `step` is -1 - index in the prologue. */
  get(id: string, step: number, name: string): Pipeline {
    const found = this.#ready.get(id);
    if (typeof found === "object") return found;
    const where = `${this.variant.id}: kernel ${id} of step ${step} (${name})`;
    throw new KernelRefused(`the browser refused it (${found ?? "it was not asked for"})`, step, where,
      'Use device: "wasm", and report this', id);
  }

  forget(kernels: Iterable<string>): void {
    for (const id of kernels) {
      this.#made.delete(id);
      this.#ready.delete(id);
    }
  }

  async #create(id: string): Promise<Pipeline | string> {
    const kernel = this.variant.kernels.get(id), code = this.texts.get(id);
    if (!kernel || code === undefined) throw new BundleError(`lacks kernel ${id}`, this.variant.source);
    const started = guarded(this.device, `kernel ${id}`, () => {
      const module = this.device.createShaderModule({ code, label: id });
      const bindings = this.#layout(kernel);
      const layout = this.device.createPipelineLayout({ bindGroupLayouts: [bindings] });
      const compute = { module, entryPoint: kernel.entry };
      return { bindings, pipeline: this.device.createComputePipelineAsync({ label: id, layout, compute }) };
    });
    const [pipeline, refused] = await Promise.all([started.value.pipeline.catch(brief), started.failed]);
    if (refused) return refused.message;
    return typeof pipeline === "string" ? pipeline : { pipeline, bindings: started.value.bindings };
  }

  #layout(kernel: Kernel): GPUBindGroupLayout {
    const types: GPUBufferBindingType[] = kernel.bindings.map((b) => (b === "read" ? "read-only-storage" : "storage"));
    if (kernel.params > 0) types.push("uniform");
    const key = types.join();
    let layout = this.#layouts.get(key);
    if (!layout) {
      const entries = types.map((type, binding) => ({ binding, visibility: 4, buffer: { type } }));
      this.#layouts.set(key, (layout = this.device.createBindGroupLayout({ entries })));
    }
    return layout;
  }
}
