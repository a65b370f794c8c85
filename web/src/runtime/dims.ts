/** From the shapes of the caller's values to dimension values, with every check that the plan asks for. */

import type { Constraint, Dim, Expr, Plan, PlanPort } from "../bundle/format.js";
import { evaluate, namesOf, show } from "../bundle/expr.js";
import { greatestDims, leastDims } from "../bundle/layout.js";
import type { DimValues } from "../engine.js";
import { InputError } from "../errors.js";

export type Shapes = ReadonlyMap<string, readonly number[]>;

/** Binds the dimensions of a plan: a name alone on an axis binds it, extents that are expressions are checked afterwards. */
export class DimSolver {
  readonly #byName: ReadonlyMap<string, Dim>;
  /** Those that a run measures begin at their greatest values. */
  readonly #start: DimValues;

  constructor(readonly plan: Plan) {
    const measured = new Set(plan.variants.flatMap((v) => v.steps).flatMap((s) => (s.kind === "dim" ? [s.name] : [])));
    this.#byName = new Map(plan.dims.map((d) => [d.name, d]));
    this.#start = greatestDims({ dims: plan.dims.filter((d) => measured.has(d.name)) });
  }

  /** The value of each dimension in the order of the plan; `free` has values for those that no given input binds. */
  solve(shapes: Shapes, free: DimValues = new Map()): Map<string, number> {
    const dims = new Map(this.#start), bound = new Map<string, string>();
    for (const port of this.plan.inputs) {
      const shape = shapes.get(port.name);
      if (shape) this.#bind(port, shape, dims, bound);
    }
    for (const dim of this.plan.dims) {
      if (!dims.has(dim.name)) dims.set(dim.name, unbound(dim, free));
    }
    for (const port of this.plan.inputs) {
      const shape = shapes.get(port.name);
      if (shape) checkExtents(port, shape, dims);
    }
    for (const constraint of this.plan.constraints) checkConstraint(constraint, dims);
    return new Map(this.plan.dims.map((d) => [d.name, dims.get(d.name)!]));
  }

  #bind(port: PlanPort, shape: readonly number[], dims: Map<string, number>, bound: Map<string, string>): void {
    if (shape.length !== port.shape.length) {
      throw new InputError(`has ${shape.length} axes, the model takes ${describe(port)}`, `input "${port.name}"`);
    }
    port.shape.forEach((entry, axis) => {
      if (typeof entry !== "string") return;
      const size = shape[axis]!, where = `input "${port.name}", axis ${axis}`, known = dims.get(entry);
      if (known === undefined) {
        checkRange(this.#byName.get(entry)!, size, where);
        dims.set(entry, size);
        bound.set(entry, `axis ${axis} of input "${port.name}"`);
      } else if (known !== size) {
        throw new InputError(`is ${size}, but "${entry}" is ${known} by ${bound.get(entry) ?? "its range"}`, where);
      }
    });
  }

  shape(port: PlanPort, dims: DimValues): number[] {
    return port.shape.map((e) => evaluate(e, dims));
  }

  /** The shape of a port where the plan alone fixes it, else null. */
  fixedShape(port: PlanPort): number[] | null {
    const most = greatestDims(this.plan), only = new Map([...leastDims(this.plan)].filter(([name, value]) => value === most.get(name)));
    const fixed = port.shape.every((e) => namesOf(e).every((n) => only.has(n)));
    return fixed ? port.shape.map((e) => evaluate(e, only)) : null;
  }
}

function unbound(dim: Dim, free: DimValues): number {
  const value = free.get(dim.name);
  if (value !== undefined) {
    checkRange(dim, value, `dimension "${dim.name}"`);
    return value;
  }
  if (dim.min === dim.max) return dim.min;
  throw new InputError("no given input tells it", `dimension "${dim.name}"`,
    "Give its value or the states, or pack it with this dimension fixed");
}

function checkExtents(port: PlanPort, shape: readonly number[], dims: DimValues): void {
  port.shape.forEach((entry, axis) => {
    const wanted = evaluate(entry, dims);
    if (shape[axis] === wanted) return;
    const reason = namesOf(entry).length > 0 ? `, which is ${show(entry)} for ${text(dims)}` : "";
    throw new InputError(`is ${shape[axis]}, must be ${wanted}${reason}`, `input "${port.name}", axis ${axis}`);
  });
}

function checkConstraint({ left, right, why }: Constraint, dims: DimValues): void {
  const a = evaluate(left, dims), b = evaluate(right, dims);
  if (a !== b) throw new InputError(`${show(left)} = ${a} must equal ${show(right)} = ${b} (${why})`, `dimensions ${text(dims)}`);
}

/** Raise InputError unless a size is a legal value of a dimension. */
export function checkRange(dim: Dim, size: number, where: string): void {
  if (Number.isInteger(size) && size >= dim.min && size <= dim.max && size % dim.multiple === 0) return;
  const multiple = dim.multiple > 1 ? `, a multiple of ${dim.multiple}` : "";
  throw new InputError(`is ${size}; dimension "${dim.name}" must be in ${dim.min}..${dim.max}${multiple}`, where,
    `Pack it with --dim ${dim.name}=lo..hi`);
}

/** `f32 (batch, 3, 224, 224)` for a port. */
export function describe(port: PlanPort): string {
  return `${port.dtype} (${port.shape.map((e: Expr) => show(e)).join(", ")})`;
}

export function text(dims: DimValues): string {
  return [...dims].map(([name, value]) => `${name}=${value}`).join(", ") || "without dimensions";
}
