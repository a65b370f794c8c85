/** What a compile tells while it works, what it gives, and what goes between the page and the worker. */

export interface StageEvent { readonly kind: "stage"; readonly name: string; readonly done: number; readonly total: number }

/**
 * A rewrite pass is done. The texts are the program's items, whole lines of at most 200,000 characters; `whole` is false where
 * more follow (`Compiler.passText` gives all). `before` is null for the program as it was read. A pass that changed nothing has
 * twice the same text.
 */
export interface PassEvent {
  readonly kind: "pass"; readonly name: string; readonly doc: string;
  readonly binds: number; readonly changed: boolean; readonly whole: boolean;
  readonly before: string | null; readonly after: string;
}

/** A kernel is made. `origin` names the model's nodes behind it. */
export interface KernelEvent {
  readonly kind: "kernel"; readonly variant: string; readonly name: string;
  readonly origin: readonly string[]; readonly text: string;
}

export type CompileEvent = StageEvent | PassEvent | KernelEvent;

export interface CompileOptions {
  /** Of the model: it becomes the bundle's. */
  readonly name: string;
  /** Ranges of named dimensions: [least, greatest] or [least, greatest, multiple]. */
  readonly dims?: Readonly<Record<string, readonly [number, number] | readonly [number, number, number]>>;
  /** A target of `tang-edge pack --target` that needs no C compiler. Default: webgpu. */
  readonly target?: string;
  /** "input=output" pairs that a session keeps; not given: found by name and type; []: none. */
  readonly states?: readonly string[];
  /** Accept weights that hold NaN. */
  readonly allowNaN?: boolean;
}

/** What `tang-edge pack --json` says too. */
export interface PackReport {
  readonly manifest_sha256: string;
  readonly bytes: number;
  readonly dims: readonly string[];
  readonly notes: readonly string[];
  readonly variants: readonly Readonly<Record<string, unknown>>[];
}

export interface Compiled { readonly bundle: Uint8Array; readonly report: PackReport }

/** An error as data. `fatal`: the interpreter cannot be used any more. */
export interface Failure {
  readonly kind: string; readonly message: string; readonly where: string; readonly remedy: string;
  readonly detail: string; readonly fatal?: boolean;
}

export type Request =
  | { readonly to: "start"; readonly baseUrl: string; readonly coreUrl: string; readonly interrupt: Uint8Array | null }
  | { readonly to: "compile"; readonly bytes: Uint8Array; readonly options: CompileOptions }
  | { readonly to: "text"; readonly pass: string };

export type Reply =
  | { readonly from: "event"; readonly event: CompileEvent }
  | { readonly from: "started" }
  | { readonly from: "compiled"; readonly made: Compiled }
  | { readonly from: "text"; readonly text: string }
  | { readonly from: "failed"; readonly failure: Failure };
