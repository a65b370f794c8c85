/** The WebGPU device: a variant with its weights on it. */

import type { Alternate, AnyStep, Dispatch, Plan, Step, Variant } from "../bundle/format.js";
import { region } from "../bundle/layout.js";
import type { Engine, Memory, OpenEngine, OpenOptions } from "../engine.js";
import { DeviceError, DeviceLost } from "../errors.js";
import { flatten } from "../runtime/steps.js";
import { adapterLacks, adapterName, guarded, isCpuAdapter, openDevice, requestAdapter } from "./gpu.js";
import { GpuMemory } from "./memory.js";
import { controlBuffers, preferred } from "./numbers.js";
import { Pipelines, splitSource } from "./pipelines.js";
import { Arena, type Place } from "./segments.js";
import { uploadConstants } from "./weights.js";

export { isCpuAdapter, webgpuLacks } from "./gpu.js";

const LOSS_MS = 1000; // how long a failed read-back waits for the news that the device is gone

export const openWebGpu: OpenEngine = async (options) => {
  const engine = new WebGpuEngine(options);
  await engine.open();
  return engine;
};

export class WebGpuEngine implements Engine {
  readonly kind = "webgpu";
  readonly threads = 1;
  readonly plan: Plan;
  readonly variant: Variant;
  adapter = "";
  isCpu = false;
  epoch = 0;
  /** Counts changes of choices: programs of an older version are built anew. */
  version = 0;
  device!: GPUDevice;
  pipelines!: Pipelines;
  constants = new Map<number, GPUBuffer>();
  /** Told in words when the device goes, unless it was closed. */
  onLost: ((why: string) => void) | null = null;
  #packed!: Arena;
  #packedPlaces: readonly Place[] = [];
  #texts: ReadonlyMap<string, string> | null = null;
  #choices: number[] | null = null;
  /** Why the device is gone; null while it is there. */
  #lost: string | null = null;
  #reviving: Promise<void> | null = null;
  #closed = false;

  constructor(readonly options: OpenOptions) {
    this.plan = options.plan;
    this.variant = options.variant;
  }

  async open(): Promise<void> {
    const { signal, weights } = this.options, { variant } = this;
    const adapter = await requestAdapter();
    const lacks = adapterLacks(adapter, variant);
    if (lacks) throw new DeviceError(`cannot run variant ${variant.id}: ${lacks}`, adapterName(adapter.info), 'Use device: "wasm"');
    this.adapter = adapterName(adapter.info);
    this.isCpu = isCpuAdapter(adapter.info);
    this.#choices ??= flatten(variant.steps).map((s) => (s.kind === "step" ? preferred(s.alternates, this.#prefers) : 0));
    this.#texts ??= splitSource(await weights.text(variant.source));
    signal?.throwIfAborted();
    this.#adopt(await openDevice(adapter, this.plan, variant));
    try {
      await this.#fill();
      signal?.throwIfAborted();
    } catch (error) {
      const known = this.#lost !== null && !signal?.aborted ? this.lossError() : error;
      this.#lost ??= "it cannot be set up";
      this.#free();
      throw known;
    }
    this.epoch++;
  }

  get #prefers(): string | null {
    return this.isCpu ? this.variant.cpu_adapter_prefers : null;
  }

  #adopt(device: GPUDevice): void {
    this.device = device;
    this.#lost = null;
    this.pipelines = new Pipelines(device, this.variant, this.#texts!);
    void device.lost.then((info) => {
      if (this.device !== device || this.#closed || this.#lost !== null) return;
      this.#lost = info.message || info.reason;
      if (!this.reviving) this.onLost?.(this.#lost);
    });
  }

  /** Pipelines and weights at once, then the prologue, which packs weights; canonical ones that no step reads are let go. */
  async #fill(): Promise<void> {
    const { device, variant } = this;
    const kernels = [...this.#kernels(variant.prologue, true), ...this.#kernels(variant.steps, false)];
    const space = region(variant.packed_slots, new Map(), variant.id);
    this.#packed = new Arena(device, "packed");
    const packed = guarded(device, `packed weights of ${variant.id}`, () => this.#packed.fit(space));
    this.#packedPlaces = this.#packed.places(space);
    const [constants, , refused] = await Promise.all([
      uploadConstants(device, this.plan, variant, this.options.weights),
      this.pipelines.make(kernels, this.options.onPipeline),
      packed.failed,
    ]);
    this.constants = constants;
    if (refused) throw refused;
    if (variant.prologue.length > 0) {
      const memory = new GpuMemory(this, true);
      await memory.prologue();
      memory.close();
      const still = new Set(this.#kernels(variant.steps, false));
      this.pipelines.forget(kernels.filter((id) => !still.has(id)));
    }
    const used = controlBuffers(variant.steps);
    for (const d of dispatches(variant.steps)) for (const arg of d.args) used.add(arg);
    for (const [id, buffer] of this.constants) {
      if (used.has(id)) continue;
      buffer.destroy();
      this.constants.delete(id);
    }
  }

  #kernels(steps: readonly AnyStep[], prologue: boolean): string[] {
    const only = flatten(steps).filter((s): s is Step => s.kind === "step");
    return only.flatMap((s) => this.alternate(s, prologue).dispatches.map((d) => d.kernel));
  }

  /** The alternate by which a step is done now. */
  alternate(step: Step, prologue: boolean): Alternate {
    return step.alternates[prologue ? preferred(step.alternates, this.#prefers) : this.#choices![step.index]!]!;
  }

  choice(step: number): number {
    return this.#choices![step]!;
  }

  async choose(step: number, alternate: number): Promise<void> {
    const found = flatten(this.variant.steps)[step] as Step;
    await this.pipelines.make(found.alternates[alternate]!.dispatches.map((d) => d.kernel));
    this.#choices![step] = alternate;
    this.version++;
  }

  /** Where a buffer of packed weights or a constant lies. */
  locate(id: number, slot: number | null): Place {
    const constant = this.constants.get(id);
    return constant ? { buffer: constant, offset: 0 } : this.#packedPlaces[slot ?? 0]!;
  }

  memory(lean = false): Memory {
    return new GpuMemory(this, lean);
  }

  get weightBytes(): number {
    return this.#packed.bytes + [...this.constants.values()].reduce((total, b) => total + b.size, 0);
  }

  get lost(): boolean {
    return this.#lost !== null;
  }

  lossError(): DeviceLost {
    return new DeviceLost(`the GPU device was lost (${this.#lost ?? "it is a new one now"})`, this.adapter);
  }

  /** Whether the device is gone, or turns out to be within a moment. */
  async isLost(): Promise<boolean> {
    if (!this.lost) await Promise.race([this.device.lost, new Promise((done) => setTimeout(done, LOSS_MS))]);
    return this.lost;
  }

  get reviving(): boolean {
    return this.#reviving !== null;
  }

  async revive(): Promise<void> {
    if (!this.#reviving && (!this.lost || this.#closed)) return;
    this.#reviving ??= this.open().finally(() => (this.#reviving = null));
    return this.#reviving;
  }

  #free(): void {
    for (const buffer of this.constants.values()) buffer.destroy();
    this.constants.clear();
    this.#packed?.destroy();
    this.device?.destroy();
  }

  close(): void {
    this.#closed = true;
    this.#free();
  }
}

function dispatches(steps: readonly AnyStep[]): Dispatch[] {
  return flatten(steps).flatMap((s) => (s.kind === "step" ? s.alternates.flatMap((a) => a.dispatches) : []));
}
