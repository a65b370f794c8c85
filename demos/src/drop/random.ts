/** Seeded random inputs, so that two visits see the same numbers. */

import type { DTypeName, TypedArray } from "tang-edge";

/** mulberry32 */
export function generator(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

const MAKE: Partial<Record<DTypeName, (count: number) => TypedArray>> = {
  f32: (n) => new Float32Array(n), f64: (n) => new Float64Array(n), i8: (n) => new Int8Array(n), u8: (n) => new Uint8Array(n), bool: (n) => new Uint8Array(n),
  i16: (n) => new Int16Array(n), u16: (n) => new Uint16Array(n), i32: (n) => new Int32Array(n), u32: (n) => new Uint32Array(n),
  i64: (n) => new BigInt64Array(n), u64: (n) => new BigUint64Array(n), f16: (n) => new Uint16Array(n),
};

/** Reals are uniform in -1..1; integers 0 or 1, which every index and flag bears; f16 are the bits of numbers in 0.5..1. */
export function fillRandom(dtype: DTypeName, count: number, seed = 1): TypedArray {
  const make = MAKE[dtype];
  if (!make) throw new Error(`random inputs of type ${dtype} are not made in this page`);
  const next = generator(seed);
  const out = make(count);
  for (let i = 0; i < count; i++) {
    if (out instanceof BigInt64Array || out instanceof BigUint64Array) out[i] = BigInt(next() < 0.5 ? 0 : 1);
    else if (dtype === "f32" || dtype === "f64") out[i] = 2 * next() - 1;
    else if (dtype === "f16") out[i] = 0x3800 + Math.floor(next() * 0x400);
    else out[i] = next() < 0.5 ? 0 : 1;
  }
  return out;
}
