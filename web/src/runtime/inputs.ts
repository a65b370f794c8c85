/** What the caller passes, checked against the ports of the plan: names, types, shapes, sizes. Nothing is converted silently. */

import type { GpuTensor, ImageSource, Inputs, InputValue, Tensor, TypedArray } from "../api.js";
import type { PlanPort } from "../bundle/format.js";
import type { Feed } from "../engine.js";
import { InputError } from "../errors.js";
import { type ArrayType, elements, TYPES } from "../bundle/dtypes.js";
import { isTypedArray } from "./arrays.js";
import { describe, type DimSolver } from "./dims.js";

export interface Given {
  readonly shape: readonly number[];
  readonly feed: Feed;
}

/** A picture as the tensor that a port takes; `shape` where the plan fixes it. */
export type ReadImage = (source: ImageSource, port: PlanPort, shape: readonly number[] | null) => Tensor;

const isGpuBuffer = (value: unknown): value is GPUBuffer => typeof GPUBuffer !== "undefined" && value instanceof GPUBuffer;

/** The inputs by name. States may be left out. */
export function checkInputs(solver: DimSolver, inputs: Inputs, readImage: ReadImage | undefined): Map<string, Given> {
  const { plan } = solver;
  if (typeof inputs !== "object" || inputs === null) throw new InputError("takes an object of inputs by name", "run");
  const states = new Set(plan.states.map((s) => s.input)), names = plan.inputs.map((p) => p.name);
  const wrong = [
    ...Object.keys(inputs).filter((n) => !names.includes(n)).map((n) => `"${n}" is no input`),
    ...names.filter((n) => inputs[n] === undefined && !states.has(n)).map((n) => `"${n}" is missing`),
  ];
  if (wrong.length > 0) throw new InputError(wrong.join("; "), "inputs", `The model takes ${names.join(", ")}`);
  const given = new Map<string, Given>();
  for (const port of plan.inputs) {
    const value = inputs[port.name];
    if (value !== undefined) given.set(port.name, checkInput(solver, port, value, readImage));
  }
  return given;
}

function checkInput(solver: DimSolver, port: PlanPort, value: InputValue, readImage: ReadImage | undefined): Given {
  if (isTypedArray(value)) return dense(port, value, shapeOf(solver, port));
  if (isGpuBuffer(value)) return { shape: shapeOf(solver, port), feed: { kind: "gpu", buffer: value } };
  const tensor = value as Partial<Tensor & GpuTensor>;
  if (Array.isArray(tensor.shape) && isGpuBuffer(tensor.buffer)) {
    return { shape: tensor.shape, feed: { kind: "gpu", buffer: tensor.buffer } };
  }
  if (Array.isArray(tensor.shape) && isTypedArray(tensor.data)) return checkTensor(port, value as Tensor);
  if (!readImage || typeof value !== "object") {
    throw new InputError(`is a ${typeof value}, the model takes ${describe(port)}`, `input "${port.name}"`, "Pass a typed array");
  }
  const image = readImage(value as ImageSource, port, solver.fixedShape(port));
  return dense(port, image.data, image.shape);
}

function shapeOf(solver: DimSolver, port: PlanPort): readonly number[] {
  const shape = solver.fixedShape(port);
  if (shape) return shape;
  throw new InputError(`has no fixed shape: the model takes ${describe(port)}`, `input "${port.name}"`,
    "Pass { dtype, shape, data } or { shape, buffer }");
}

/** A tensor for a port, checked. */
export function checkTensor(port: PlanPort, tensor: Tensor): Given {
  if (tensor.dtype !== port.dtype) {
    throw new InputError(`has dtype ${tensor.dtype}, the model takes ${describe(port)}`, `input "${port.name}"`, "Convert it");
  }
  return dense(port, tensor.data, tensor.shape);
}

function dense(port: PlanPort, data: TypedArray, shape: readonly number[]): Given {
  const where = `input "${port.name}"`, type = TYPES[port.dtype];
  if (!(data instanceof type)) {
    throw new InputError(`is a ${(data as TypedArray).constructor.name}, the model takes ${describe(port)}`, where, `Pass a ${type.name}`);
  }
  if (!shape.every((n) => Number.isInteger(n) && n >= 0)) throw new InputError(`has shape ${shape}`, where, "Use natural numbers");
  if (data.length !== elements(shape)) {
    throw new InputError(`has ${data.length} elements, shape ${shape.join(" x ") || "()"} takes ${elements(shape)}`, where);
  }
  if (port.dtype === "bool" && (data as Uint8Array).some((v) => v > 1)) throw new InputError("has values other than 0 and 1", where);
  return { shape, feed: { kind: "data", data } };
}

/** Copies of inputs, so that a call can be repeated although its caller went on with the arrays. */
export class Copies {
  readonly #spare: ArrayBuffer[] = [];

  take(given: ReadonlyMap<string, Given>): Map<string, Given> {
    const copy = (feed: Feed): Feed => (feed.kind === "gpu" ? feed : { kind: "data", data: this.#copy(feed.data) });
    return new Map([...given].map(([name, { shape, feed }]) => [name, { shape, feed: copy(feed) }]));
  }

  #copy(data: TypedArray): TypedArray {
    const at = this.#spare.findIndex((b) => b.byteLength === data.byteLength);
    const buffer = at < 0 ? new ArrayBuffer(data.byteLength) : this.#spare.splice(at, 1)[0]!;
    const type = data.constructor as ArrayType;
    const copy = new type(buffer, 0, data.length);
    (copy as Float32Array).set(data as Float32Array);
    return copy;
  }

  give(given: ReadonlyMap<string, Given>): void {
    for (const { feed } of given.values()) if (feed.kind === "data") this.#spare.push(feed.data.buffer as ArrayBuffer);
    this.#spare.splice(0, Math.max(0, this.#spare.length - 16));
  }
}

