/** Where the buffers of a variant lie for given dimension values; Python and the generated C compute the same. */

import type { DTypeName } from "../api.js";
import { BundleError } from "../errors.js";
import { alignUp, elements, storageBytes } from "./dtypes.js";
import { evaluate } from "./expr.js";
import type { Buffer, Expr, Plan, Variant, Writes } from "./format.js";

type DimValues = ReadonlyMap<string, number>;

/** Of a slot in an arena: the storage offset alignment that every WebGPU device accepts. */
export const SLOT_ALIGN = 256;
/** Bytes of an arena that a session takes for its greatest sizes from the start, so that it never grows; a larger one grows. */
export const RESERVE = 64 * 2 ** 20;

/** A buffer or a step's tensor with its sizes as numbers: strides and offset in elements, bytes of the whole buffer. */
export interface Extent {
  readonly dtype: DTypeName;
  readonly shape: readonly number[];
  readonly strides: readonly number[];
  readonly offset: number;
  readonly bytes: number;
}

/** Slot offsets and sizes in bytes, and the bytes of the whole. */
export interface Region {
  readonly offsets: readonly number[];
  readonly sizes: readonly number[];
  readonly total: number;
}

function text(dims: DimValues): string {
  return [...dims].map(([name, value]) => `${name}=${value}`).join(", ") || "these sizes";
}

/** The value of a size expression that must not be negative. */
export function evaluateSize(expr: Expr, dims: DimValues, where: string): number {
  const value = evaluate(expr, dims);
  if (value < 0) throw new BundleError(`a size is negative for ${text(dims)}`, where);
  return value;
}

/** The slots in order, each aligned to 256 bytes. */
export function region(slots: readonly Expr[], dims: DimValues, where: string): Region {
  const offsets: number[] = [], sizes: number[] = [];
  let at = 0;
  for (const expr of slots) {
    const size = alignUp(evaluateSize(expr, dims, where), SLOT_ALIGN);
    offsets.push(at);
    sizes.push(size);
    at += size;
  }
  return { offsets, sizes, total: at };
}

/** The numbers of a buffer (or of what a step writes into it), checked to stay inside the buffer. */
export function extent(buffer: Buffer, dims: DimValues, writes?: Writes): Extent {
  const where = `buffer ${buffer.name || buffer.id}`;
  const source = writes ?? buffer;
  const shape = source.shape.map((e) => evaluateSize(e, dims, where));
  const strides = source.strides.map((e) => evaluateSize(e, dims, where));
  const offset = writes ? evaluateSize(writes.offset, dims, where) : 0;
  const bytes = evaluateSize(buffer.bytes, dims, where);
  const last = shape.reduce((sum, n, axis) => sum + (n - 1) * strides[axis]!, offset);
  if (!shape.includes(0) && storageBytes(buffer.dtype, last + 1) > bytes) {
    throw new BundleError(`does not fit its ${bytes} bytes for ${text(dims)}`, where);
  }
  return { dtype: buffer.dtype, shape, strides, offset, bytes };
}

/** Raise BundleError unless every buffer fits its slot. */
export function checkSlots(variant: Variant, dims: DimValues, arena: Region, packed: Region): void {
  for (const buffer of variant.buffers.values()) {
    if (buffer.slot === null) continue;
    const room = (buffer.kind === "packed" ? packed : arena).sizes[buffer.slot]!;
    if (evaluateSize(buffer.bytes, dims, variant.id) > room) {
      throw new BundleError(`buffer ${buffer.name || buffer.id} is larger than its slot`, variant.id);
    }
  }
}

/** Bytes of all canonical weights. */
export function constantBytes(plan: Plan): number {
  return plan.constants.reduce((sum, c) => sum + storageBytes(c.dtype, elements(c.shape)), 0);
}

/** The greatest legal value of each dimension, constraints aside. */
export function greatestDims(plan: Pick<Plan, "dims">): Map<string, number> {
  return new Map(plan.dims.map((d) => [d.name, Math.floor(d.max / d.multiple) * d.multiple]));
}

/** The least legal value of each dimension, constraints aside. */
export function leastDims(plan: Pick<Plan, "dims">): Map<string, number> {
  return new Map(plan.dims.map((d) => [d.name, alignUp(d.min, d.multiple)]));
}

/** The arena for the greatest sizes where that is at most RESERVE bytes, else null. */
export function reserved(plan: Plan, variant: Variant): Region | null {
  try {
    const whole = region(variant.slots, greatestDims(plan), variant.id);
    return whole.total <= RESERVE ? whole : null;
  } catch (error) {
    if (error instanceof BundleError) return null; // beyond what sizes can express: such an arena grows with what is asked
    throw error;
  }
}
