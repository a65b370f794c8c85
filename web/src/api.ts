/** What users of the package see: options, models, reports. Data only; nothing here runs. */

export type TypedArray =
  | Float32Array
  | Float64Array
  | Int8Array
  | Uint8Array
  | Int16Array
  | Uint16Array
  | Int32Array
  | Uint32Array
  | BigInt64Array
  | BigUint64Array;

/** Names of element types, as in the plan. f16 and bf16 travel as their bits in a Uint16Array, bool as 0 and 1 in a Uint8Array. */
export type DTypeName =
  | "f16" | "f32" | "f64" | "bf16" | "i8" | "i16" | "i32" | "i64" | "u8" | "u16" | "u32" | "u64" | "bool" | "i4" | "u4";

/** A value with its shape, row-major. */
export interface Tensor {
  readonly dtype: DTypeName;
  readonly shape: readonly number[];
  readonly data: TypedArray;
}

/** An array where the plan alone fixes the shape, a tensor otherwise; pictures for f32 and u8 inputs [.., 1|3|4, H, W] or [.., H, W, 1|3|4]. */
export type InputValue = TypedArray | Tensor | ImageSource | GPUBuffer | GpuTensor;
/** A buffer on the model's own device (`model.device`), dense and row-major, with the usage COPY_SRC. It is copied. */
export interface GpuTensor {
  readonly shape: readonly number[];
  readonly buffer: GPUBuffer;
}
export type ImageSource = ImageData | HTMLVideoElement | HTMLImageElement | HTMLCanvasElement | OffscreenCanvas | ImageBitmap | VideoFrame;
export type Inputs = Readonly<Record<string, InputValue>>;
export type Outputs = Record<string, Tensor>;
export type Dims = Readonly<Record<string, number>>;

export type DeviceName = "auto" | "webgpu" | "wasm";

export interface Progress {
  readonly stage: "manifest" | "kernels" | "weights" | "pipelines" | "self-test" | "ready";
  /** Bytes for weights, pieces of work otherwise. */
  readonly done: number;
  readonly total: number;
}

export interface LoadOptions {
  /** "auto" (default): what the measurement remembered for this bundle and browser says, else WebGPU, else WebAssembly. */
  readonly device?: DeviceName;
  readonly onProgress?: (progress: Progress) => void;
  readonly signal?: AbortSignal;
  /** Sizes that memory and pipelines are prepared for during loading. */
  readonly dims?: Dims;
  /** Where members of the bundle are kept: "auto" is OPFS, else the Cache API, else nowhere (the report says which and why). */
  readonly cache?: "auto" | "opfs" | "cache" | "none";
  /** "background" (default): the first answer may come before the self-test has ended; "before": load() waits for it; "off". */
  readonly verify?: "background" | "before" | "off";
  /** Threads of the WebAssembly device; more than one needs a cross-origin isolated page. */
  readonly threads?: number;
}

export interface RunOptions {
  readonly signal?: AbortSignal;
}

/** One step of a run, measured on the device. */
export interface StepTime {
  readonly step: number;
  readonly name: string;
  readonly kernels: readonly string[];
  readonly origin: readonly string[];
  /** Start and duration in milliseconds since the first step began. */
  readonly start: number;
  readonly duration: number;
  /** Whether the GPU's own clock measured it, or the clock of the page around it (with the cost of a submission). */
  readonly clock: "gpu" | "wall";
}

export interface Port {
  readonly name: string;
  readonly dtype: DTypeName;
  /** One entry an axis: a number, a dimension's name, or an expression as text ("(n + 1) // 2"). */
  readonly shape: readonly (number | string)[];
}

export interface Demotion {
  readonly step: number;
  readonly name: string;
  readonly origin: readonly string[];
  readonly from: string;
  readonly to: string;
  readonly why: string;
}

export interface SelfTest {
  readonly outcome: "running" | "passed" | "passed after demotions" | "skipped" | "failed";
  readonly why: string;
  readonly vectors: number;
  readonly runs: number;
  /** Largest error over its tolerance (1 is the limit). */
  readonly worst: number;
}

export interface Report {
  readonly model: string;
  readonly device: "webgpu" | "wasm";
  readonly adapter: string;
  readonly variant: string;
  /** Every device that was considered, in order, with the reason why it was taken or passed over. */
  readonly considered: readonly { readonly device: string; readonly taken: boolean; readonly why: string }[];
  readonly selfTest: SelfTest;
  readonly demotions: readonly Demotion[];
  /** Medians in milliseconds by device where both ran and were measured. */
  readonly measured: Readonly<Record<string, number>>;
  readonly storage: { readonly kind: "opfs" | "cache" | "none"; readonly why: string };
  readonly bytes: { readonly downloaded: number; readonly fromStorage: number; readonly repaired: number };
  /** Times that a lost device was made anew. */
  readonly recoveries: number;
  readonly threads: number;
  readonly milliseconds: Readonly<Record<string, number>>;
}

/** What a manifest alone tells, before anything large is downloaded. */
export interface Inspection {
  readonly name: string;
  readonly bytes: number;
  readonly inputs: readonly Port[];
  readonly outputs: readonly Port[];
  readonly dims: readonly { readonly name: string; readonly min: number; readonly max: number; readonly multiple: number }[];
  readonly variants: readonly {
    readonly id: string;
    readonly device: "webgpu" | "wasm" | "other";
    /** Bytes to download for this variant. */
    readonly download: number;
    readonly peakBytes: number;
    readonly peakBytesMax: number;
    readonly runs: boolean;
    readonly why: string;
  }[];
  /** Whether some variant runs here. */
  readonly runs: boolean;
}
