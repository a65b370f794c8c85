/** A parsed plan and manifest: docs/bundle.md and tang_edge/bundle/format.py say the same. Data only. */

import type { DTypeName } from "../api.js";

/** int | dimension name | [operator, ...]: see docs/bundle.md, "Sizes". */
export type Expr = number | string | readonly [string, ...Expr[]];

export interface Dim { readonly name: string; readonly min: number; readonly max: number; readonly multiple: number }
export interface Constraint { readonly left: Expr; readonly right: Expr; readonly why: string }
export interface PlanPort { readonly name: string; readonly dtype: DTypeName; readonly shape: readonly Expr[] }
export interface State { readonly input: string; readonly output: string; readonly shape: readonly Expr[]; readonly dtype: DTypeName; readonly reset: string }
export interface Part { readonly chunk: string; readonly key: string }
export interface Constant { readonly name: string; readonly dtype: DTypeName; readonly shape: readonly number[]; readonly parts: readonly Part[] }

export interface Buffer {
  readonly id: number;
  readonly name: string;
  readonly kind: "input" | "output" | "arena" | "constant" | "packed";
  readonly dtype: DTypeName;
  readonly shape: readonly Expr[];
  /** In elements of the storage dtype. */
  readonly strides: readonly Expr[];
  readonly bytes: Expr;
  readonly slot: number | null;
  readonly constant: string | null;
  readonly io: string | null;
}

export interface Kernel {
  readonly id: string;
  readonly entry: string;
  readonly workgroup: readonly number[];
  readonly bindings: readonly ("read" | "read_write")[];
  readonly params: number;
  readonly safe: boolean;
}

export interface Dispatch {
  readonly kernel: string;
  readonly args: readonly number[];
  readonly params: readonly Expr[];
  readonly grid: readonly Expr[];
}
export interface Alternate { readonly tag: string; readonly dispatches: readonly Dispatch[] }
export interface Writes { readonly buffer: number; readonly shape: readonly Expr[]; readonly strides: readonly Expr[]; readonly offset: Expr }

/** `index` is the preorder number; `end` the index after a control step's children. */
export interface Step { readonly kind: "step"; readonly index: number; readonly name: string; readonly origin: readonly string[]; readonly writes: Writes; readonly alternates: readonly Alternate[] }
export interface IfStep { readonly kind: "if"; readonly index: number; readonly end: number; readonly cond: number; readonly then: readonly AnyStep[]; readonly else: readonly AnyStep[] }
export interface LoopStep { readonly kind: "loop"; readonly index: number; readonly end: number; readonly trip: Expr | { readonly buffer: number }; readonly cond: number | null; readonly body: readonly AnyStep[] }
export interface DimStep { readonly kind: "dim"; readonly index: number; readonly name: string; readonly from: number }
export type AnyStep = Step | IfStep | LoopStep | DimStep;

export interface Variant {
  readonly id: string;
  readonly backend: string;
  readonly class: string;
  readonly features: readonly string[];
  readonly limits: Readonly<Record<string, number>>;
  readonly source: string;
  readonly prebuilt: Readonly<Record<string, string>>;
  readonly cpu_adapter_prefers: string | null;
  readonly buffers: ReadonlyMap<number, Buffer>;
  readonly slots: readonly Expr[];
  readonly packed_slots: readonly Expr[];
  readonly kernels: ReadonlyMap<string, Kernel>;
  readonly prologue: readonly AnyStep[];
  readonly steps: readonly AnyStep[];
}

export interface Golden { readonly dims: Readonly<Record<string, number>>; readonly file: string; readonly rtol: number; readonly atol: number }

export interface Plan {
  readonly dims: readonly Dim[];
  readonly constraints: readonly Constraint[];
  readonly inputs: readonly PlanPort[];
  readonly outputs: readonly PlanPort[];
  readonly states: readonly State[];
  readonly constants: readonly Constant[];
  readonly variants: readonly Variant[];
  readonly golden: readonly Golden[];
}

export interface Member { readonly sha256: string; readonly bytes: number }
export interface Manifest {
  readonly name: string;
  readonly files: ReadonlyMap<string, Member>;
  readonly dims: readonly Dim[];
  readonly inputs: readonly PlanPort[];
  readonly outputs: readonly PlanPort[];
  readonly variants: readonly {
    readonly id: string;
    readonly backend: string;
    readonly class: string;
    readonly peak_bytes: number;
    readonly peak_bytes_max: number | null;
    /** What the variant needs of an adapter, and which members it is made of (manifest version 1.1; empty before). */
    readonly features: readonly string[];
    readonly limits: Readonly<Record<string, number>>;
    readonly members: readonly string[];
  }[];
}
