/** What a device must offer to the rest of the runtime. WebGPU and WebAssembly each have an Engine; nothing else knows them. */

import type { StepTime, Tensor, TypedArray } from "./api.js";
import type { Dim, Plan, Variant, Writes } from "./bundle/format.js";

/** Dimension values in the order of the plan. */
export type DimValues = ReadonlyMap<string, number>;

/** A prepared input: storage of the model's dtype (bool as bytes, f16 as bits), dense and row-major; or a GPU buffer of the same layout. */
export type Feed = { readonly kind: "data"; readonly data: TypedArray } | { readonly kind: "gpu"; readonly buffer: GPUBuffer };

export interface Call {
  readonly dims: DimValues;
  /** By input name. State inputs that are absent keep what is on the device; `fresh` zeroes them first. */
  readonly feeds: ReadonlyMap<string, Feed>;
  readonly fresh: boolean;
  /** Names of the outputs to bring back. */
  readonly outputs: readonly string[];
  /** Preorder range of steps; last < 0: to the end. A whole call also moves state outputs into state inputs at its end. */
  readonly first: number;
  readonly last: number;
}

/** Memory of one session on a device. Calls are carried out in the order in which they are made; several may be in flight. */
export interface Memory {
  /**
   * Upload, run, bring back. Everything up to the submission happens before the first await where the plan has no control flow,
   * so inputs may be reused when `run` has returned its promise.
   *
   * Rejects with DeviceLost (the engine may be revived), KernelRefused, DeviceError.
   */
  run(call: Call): Promise<Map<string, Tensor>>;
  /** Prepare for sizes without running. */
  prepare(dims: DimValues): Promise<void>;
  /** What a step wrote, in its logical shape and storage dtype (only right after the range that ends with it). */
  readStep(writes: Writes, dims: DimValues): Promise<Tensor>;
  /** The state that is on the device, by state input name; null before the first whole call. */
  readStates(): Promise<Map<string, Tensor> | null>;
  /** Times of the steps of a call by the device's own clock; null where it has none. */
  profile?(call: Call): Promise<StepTime[] | null>;
  readonly bytes: number;
  close(): void;
}

export interface Engine {
  readonly kind: "webgpu" | "wasm";
  /** For people: adapter or "WebAssembly SIMD, 4 threads". */
  readonly adapter: string;
  readonly threads: number;
  readonly plan: Plan;
  readonly variant: Variant;
  /** Bytes of constants and packed weights. */
  readonly weightBytes: number;
  /** Grows when the device was made anew; memories of an older epoch reject with DeviceLost. */
  readonly epoch: number;
  choice(step: number): number;
  /** Use this alternate of a step from the next call on. */
  choose(step: number, alternate: number): Promise<void>;
  /** `lean`: for a few calls of small sizes, so nothing is reserved for greater ones. */
  memory(lean?: boolean): Memory;
  /** Told, in words, when the device goes without having been closed. */
  onLost?: ((why: string) => void) | null;
  /** After DeviceLost: a new device, weights from storage. Rejects with DeviceError when there is none. */
  revive(): Promise<void>;
  close(): void;
}

/** Where constants come from: verified bytes, part by part, in the order of the file. */
export interface Weights {
  /**
   * Pass the bytes of the named constants to `sink`, in pieces of at most 16 MiB whose chunk was checked; the pieces of a constant
   * follow each other from its start to its end, neither fewer nor more bytes than its shape says. `offset` is in bytes from there. The bytes are only valid during the call of `sink`.
   */
  stream(names: ReadonlySet<string>, sink: (name: string, offset: number, bytes: Uint8Array) => void | Promise<void>): Promise<void>;
  /** A text member (kernels), checked. */
  text(member: string): Promise<string>;
  /** A binary member (libraries), checked. */
  bytes(member: string): Promise<Uint8Array>;
}

export interface OpenOptions {
  readonly plan: Plan;
  readonly variant: Variant;
  readonly weights: Weights;
  readonly threads: number;
  readonly signal?: AbortSignal;
  readonly onPipeline?: (done: number, total: number) => void;
}

export type OpenEngine = (options: OpenOptions) => Promise<Engine>;

export type { Dim, Plan, Variant };
