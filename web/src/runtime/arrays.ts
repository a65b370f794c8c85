/** Element types on both sides of a device's boundary: exact conversion between the model's and the storage's, dense and strided. */

import type { DTypeName, TypedArray } from "../api.js";
import { elements, TYPES } from "../bundle/dtypes.js";
import type { Extent } from "../bundle/layout.js";
import { BundleError, InputError } from "../errors.js";

const BITS: Readonly<Record<string, number>> = { i8: 8, u8: 8, bool: 8, i16: 16, u16: 16, i32: 32, u32: 32 };

export function bytesOf(array: TypedArray): Uint8Array<ArrayBuffer> {
  return new Uint8Array(array.buffer as ArrayBuffer, array.byteOffset, array.byteLength);
}

export function isTypedArray(value: unknown): value is TypedArray {
  return ArrayBuffer.isView(value) && !(value instanceof DataView);
}

/** Raise BundleError unless the storage type holds the model's exactly, or by a range that is checked. */
export function checkStorable(name: string, dtype: DTypeName, storage: DTypeName, where: string): void {
  const narrow = BITS[dtype] ?? 0, room = BITS[storage] ?? 0;
  const whole = narrow > 0 && narrow <= room && storage !== "bool";
  if (dtype !== storage && !whole && !(dtype === "i64" && storage === "i32") && !(dtype === "f16" && storage === "f32")) {
    throw new BundleError(`${dtype} cannot be stored as ${storage}`, `${where}: ${name}`);
  }
}

/** Dense elements of `from` as dense elements of `to`; null where a value does not fit. */
export function convert(source: TypedArray, from: DTypeName, to: DTypeName): TypedArray | null {
  if (from === to) return source;
  const target = new TYPES[to](source.length);
  if (from === "i64") return narrowed(source, target as Int32Array);
  if (to === "i64") return widened(source as Int32Array, target, from);
  if (from === "f16") return each(source, target, single);
  if (to === "f16") return each(source, target, half);
  if (to === "bool") return each(source, target, (v) => (v === 0 ? 0 : 1));
  (target as Int32Array).set(source as Int32Array);
  return from === "u32" && to === "i32" && (target as Int32Array).some((v) => v < 0) ? null : target;
}

function each(source: TypedArray, target: TypedArray, value: (v: number) => number): TypedArray {
  for (let i = 0; i < source.length; i++) target[i] = value(source[i] as number);
  return target;
}

// two words an element instead of big integers, which are a hundred times slower
function narrowed(source: TypedArray, target: Int32Array): TypedArray | null {
  const words = new Int32Array(source.buffer, source.byteOffset, source.length * 2);
  for (let i = 0; i < target.length; i++) {
    const low = words[2 * i]!;
    if (words[2 * i + 1] !== low >> 31) return null;
    target[i] = low;
  }
  return target;
}

function widened(source: Int32Array | Uint32Array, target: TypedArray, from: DTypeName): TypedArray {
  const words = new Int32Array(target.buffer);
  for (let i = 0; i < source.length; i++) {
    words[2 * i] = source[i]!;
    words[2 * i + 1] = from === "u32" ? 0 : source[i]! >> 31;
  }
  return target;
}

const word = new Uint32Array(1);
const float = new Float32Array(word.buffer);

/** The value of the bits of a half. */
export function single(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return exponent === 0 ? sign * fraction * 2 ** -24 : sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

/** The bits of the half that is nearest to a value, ties to even. */
export function half(value: number): number {
  float[0] = value;
  const bits = word[0]!, sign = (bits >>> 16) & 0x8000, size = bits & 0x7fffffff;
  if (size > 0x7f800000) return sign | 0x7e00;
  if (size >= 0x47800000) return sign | 0x7c00;
  if (size >= 0x38800000) return sign | ((size - 0x38000000 + 0xfff + ((size >> 13) & 1)) >> 13);
  const scaled = Math.abs(float[0]) * 2 ** 24, floor = Math.floor(scaled), rest = scaled - floor;
  return sign | (floor + (rest > 0.5 || (rest === 0.5 && floor % 2 === 1) ? 1 : 0));
}

/** Whether the elements lie row-major without gaps, from the buffer's start. */
export function isDense(size: Extent): boolean {
  let at = 1;
  for (let axis = size.shape.length - 1; axis >= 0; axis--) {
    if (size.shape[axis] !== 1 && size.strides[axis] !== at) return false;
    at *= size.shape[axis]!;
  }
  return size.offset === 0;
}

/** Calls `visit(logical, stored)` with both linear indices of every element, in row-major order. */
export function walk(size: Extent, visit: (logical: number, stored: number) => void): void {
  const rank = size.shape.length, index = new Array<number>(rank).fill(0), total = elements(size.shape);
  let stored = size.offset;
  for (let logical = 0; logical < total; logical++) {
    visit(logical, stored);
    for (let axis = rank - 1; axis >= 0; axis--) {
      stored += size.strides[axis]!;
      if (++index[axis]! < size.shape[axis]!) break;
      stored -= index[axis]! * size.strides[axis]!;
      index[axis] = 0;
    }
  }
}

/** The bytes to write to a buffer's start so that it holds a dense value of `dtype`. Raises InputError for values it cannot hold. */
export function toStorage(name: string, data: TypedArray, dtype: DTypeName, size: Extent): Uint8Array<ArrayBuffer> {
  const values = convert(data, dtype, size.dtype);
  if (values === null) {
    throw new InputError(`has values that this device cannot hold`, `input "${name}"`,
      'Use device: "wasm"');
  }
  if (isDense(size)) return bytesOf(values);
  const stored = new TYPES[size.dtype](Math.floor(size.bytes / TYPES[size.dtype].BYTES_PER_ELEMENT));
  walk(size, (i, k) => void (stored[k] = values[i]!));
  return bytesOf(stored);
}

/** A dense copy, in `dtype`, of the tensor that lies in `bytes` (which begin where its buffer begins). */
export function fromStorage(bytes: ArrayBuffer, start: number, dtype: DTypeName, size: Extent): TypedArray {
  const type = TYPES[size.dtype], count = elements(size.shape);
  if (count === 0) return new TYPES[dtype](0);
  if (isDense(size)) {
    const values = new type(bytes, start, count);
    return dtype === size.dtype ? values.slice() : convert(values, size.dtype, dtype)!;
  }
  const stored = new type(bytes, start, Math.floor(size.bytes / type.BYTES_PER_ELEMENT)), values = new type(count);
  walk(size, (i, k) => void (values[i] = stored[k]!));
  return convert(values, size.dtype, dtype)!;
}
