/** Steps and sizes as numbers: grids, parameters, spans, ranges of steps. */

import type { AnyStep, Alternate, Dispatch, LoopStep, Step } from "../bundle/format.js";
import { evaluate } from "../bundle/expr.js";
import { evaluateSize, type Extent } from "../bundle/layout.js";
import type { DimValues } from "../engine.js";
import { BundleError } from "../errors.js";
import { alignUp, storageBytes } from "../bundle/dtypes.js";
import { flatten } from "../runtime/steps.js";

const MAX_GRID = 65_535;

/** Bytes from a buffer's start to behind the last element, a multiple of 4. */
export function span(size: Extent): number {
  if (size.shape.includes(0)) return 0;
  const last = size.shape.reduce((at, n, axis) => at + (n - 1) * size.strides[axis]!, size.offset);
  return alignUp(storageBytes(size.dtype, last + 1), 4);
}

/** The workgroups of a dispatch. Raises BundleError where they are more than WebGPU allows. */
export function grid(dispatch: Dispatch, dims: DimValues, step: Step): readonly [number, number, number] {
  const [x, y, z] = dispatch.grid.map((e) => evaluateSize(e, dims, `step ${step.name}: grid`)) as [number, number, number];
  if (Math.max(x, y, z) > MAX_GRID) {
    throw new BundleError(`a grid of ${x} x ${y} x ${z} workgroups exceeds ${MAX_GRID}`,
      `step ${step.name}, kernel ${dispatch.kernel}`, "Pack it again");
  }
  return [x, y, z];
}

/** The parameters of a dispatch, which must fit 32 bits. */
export function params(dispatch: Dispatch, dims: DimValues): number[] {
  return dispatch.params.map((e) => {
    const value = evaluate(e, dims);
    if (value < -(2 ** 31) || value >= 2 ** 31) {
      throw new BundleError(`a parameter is ${value}, beyond 32 bits`, `kernel ${dispatch.kernel}`, "Use smaller sizes");
    }
    return value;
  });
}

/** The steps in the range; an "if" stays if a child does, with the children in the range; a loop is one step. */
export function within(steps: readonly AnyStep[], first: number, last: number): AnyStep[] {
  return steps.flatMap((step): AnyStep[] => {
    if (step.kind === "if") {
      const then = within(step.then, first, last), orelse = within(step.else, first, last);
      return then.length + orelse.length > 0 ? [{ ...step, then, else: orelse }] : [];
    }
    return (step.kind === "dim" ? 0 : first) <= step.index && step.index < last ? [step] : [];
  });
}

/** The buffer that a trip count is read from; null where the plan tells it. */
export function tripBuffer({ trip }: LoopStep): number | null {
  return (trip as { buffer?: number }).buffer ?? null;
}

/** The buffers that decide what runs: conditions, trip counts and measured sizes. */
export function controlBuffers(steps: readonly AnyStep[]): Set<number> {
  const found = flatten(steps).flatMap((step) => {
    if (step.kind === "if") return [step.cond];
    if (step.kind === "loop") return [step.cond, tripBuffer(step)];
    return step.kind === "dim" ? [step.from] : [];
  });
  return new Set(found.filter((b): b is number => b !== null));
}

/** Which alternate a step takes by its tag; the first where no alternate has the tag. */
export function preferred(alternates: readonly Alternate[], tag: string | null): number {
  return Math.max(0, alternates.findIndex((a) => a.tag === tag));
}
