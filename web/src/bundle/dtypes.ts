/** Element types: the typed array that holds them, their bytes, their names in safetensors. */

import type { DTypeName, TypedArray } from "../api.js";

export interface ArrayType {
  readonly name: string;
  readonly BYTES_PER_ELEMENT: number;
  new (length: number): TypedArray;
  new (buffer: ArrayBufferLike, offset: number, length: number): TypedArray;
}

export const TYPES: Readonly<Record<DTypeName, ArrayType>> = {
  f16: Uint16Array, f32: Float32Array, f64: Float64Array, bf16: Uint16Array,
  i8: Int8Array, i16: Int16Array, i32: Int32Array, i64: BigInt64Array,
  u8: Uint8Array, u16: Uint16Array, u32: Uint32Array, u64: BigUint64Array,
  bool: Uint8Array, i4: Uint8Array, u4: Uint8Array,
};

export const DTYPES: ReadonlySet<DTypeName> = new Set(Object.keys(TYPES) as DTypeName[]);

/** Bytes of `count` elements, stored densely; 4-bit elements lie two a byte. */
export function storageBytes(dtype: DTypeName, count: number): number {
  return dtype === "i4" || dtype === "u4" ? Math.ceil(count / 2) : count * TYPES[dtype].BYTES_PER_ELEMENT;
}

export function elements(shape: readonly number[]): number {
  return shape.reduce((a, b) => a * b, 1);
}

export function alignUp(value: number, to: number): number {
  return Math.ceil(value / to) * to;
}
