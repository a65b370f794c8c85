/** Element types at the boundary of a device, and dimensions from shapes. */

import assert from "node:assert/strict";
import { test } from "node:test";
import type { Extent } from "../src/bundle/layout.js";
import type { Plan } from "../src/bundle/format.js";
import { convert, fromStorage, half, single, toStorage } from "../src/runtime/arrays.js";
import { DimSolver } from "../src/runtime/dims.js";
import { ratio } from "../src/runtime/selftest.js";

test("every half survives the way to f32 and back", () => {
  for (let bits = 0; bits < 65536; bits++) {
    const value = single(bits), nan = (bits & 0x7fff) > 0x7c00;
    if (nan) assert.ok(Number.isNaN(value) && Number.isNaN(single(half(value))));
    else assert.equal(half(value), bits);
  }
});

test("f32 rounds to the nearest half, ties to even, and overflows to infinity", () => {
  for (const [value, bits] of [
    [65519, 0x7bff], [65520, 0x7c00], [1 + 2 ** -11, 0x3c00], [1 + 3 * 2 ** -11, 0x3c02], [2 ** -25, 0], [1.5 * 2 ** -25, 1],
    [2 ** -24, 1], [-(2 ** -14), 0x8400], [-0, 0x8000], [1e9, 0x7c00], [-Infinity, 0xfc00],
  ] as const) assert.equal(half(value), bits, String(value));
});

test("64-bit integers become 32-bit ones exactly, or not at all", () => {
  const fits = BigInt64Array.of(0n, -1n, 2n ** 31n - 1n, -(2n ** 31n));
  const narrow = convert(fits, "i64", "i32")!;
  assert.deepEqual([...narrow], [0, -1, 2 ** 31 - 1, -(2 ** 31)]);
  assert.deepEqual(convert(narrow, "i32", "i64"), fits);
  for (const beyond of [2n ** 31n, -(2n ** 31n) - 1n, 2n ** 40n]) assert.equal(convert(BigInt64Array.of(beyond), "i64", "i32"), null);
  assert.deepEqual([...convert(Int32Array.of(0, 7, -1), "i32", "bool")!], [0, 1, 1]);
  assert.deepEqual([...convert(Int32Array.of(255, -1), "i32", "i8")!], [-1, -1]);
});

test("strided storage", () => {
  const size: Extent = { dtype: "i32", shape: [2, 3], strides: [1, 4], offset: 1, bytes: 64 };
  const bytes = toStorage("x", Int8Array.of(1, 2, 3, 4, 5, 6), "i8", size);
  assert.deepEqual([...new Int32Array(bytes.buffer)].slice(0, 12), [0, 1, 4, 0, 0, 2, 5, 0, 0, 3, 6, 0]);
  assert.deepEqual(fromStorage(bytes.buffer, 0, "i8", size), Int8Array.of(1, 2, 3, 4, 5, 6));
  assert.throws(() => toStorage("x", BigInt64Array.of(2n ** 33n), "i64", { ...size, shape: [1], strides: [1] }), { name: "InputError" });
});

const plan = {
  dims: [{ name: "n", min: 1, max: 9, multiple: 1 }, { name: "m", min: 2, max: 8, multiple: 2 }, { name: "k", min: 0, max: 5, multiple: 2 }],
  constraints: [{ left: "m", right: ["*", "n", 2], why: "Concat" }],
  inputs: [{ name: "a", dtype: "f32", shape: ["n", ["+", "m", 1]] }, { name: "b", dtype: "f32", shape: ["m"] }],
  variants: [{ steps: [{ kind: "dim", index: 0, name: "k", buffer: 0 }] }],
} as unknown as Plan;

test("dimensions are read off shapes, checked, and measured ones begin at their greatest values", () => {
  const solver = new DimSolver(plan), solve = (a: number[], b: number[]): unknown => [...solver.solve(new Map([["a", a], ["b", b]])).values()];
  assert.deepEqual(solve([2, 5], [4]), [2, 4, 4]);
  for (const [a, b, match] of [
    [[2], [4], /axes/], [[2, 4], [4], /must be 5, which is \(m \+ 1\)/], [[3, 5], [4], /must equal .*Concat/],
    [[2, 6], [5], /2\.\.8, a multiple of 2/], [[0, 5], [4], /1\.\.9/],
  ] as const) assert.throws(() => solve([...a], [...b]), (e: Error) => e.name === "InputError" && match.test(e.message));
  assert.throws(() => solver.solve(new Map([["a", [2, 5]]])), /"m"/);
  assert.deepEqual([...solver.solve(new Map([["a", [2, 5]]]), new Map([["m", 4]])).values()], [2, 4, 4]);
});

test("errors over their tolerance", () => {
  const f = (...data: number[]) => ({ dtype: "f32" as const, shape: [data.length], data: Float32Array.from(data) });
  const tolerance = { rtol: 0.5, atol: 1 };
  assert.equal(ratio(f(1, NaN, Infinity), f(1, NaN, Infinity), tolerance), 0);
  assert.equal(ratio(f(4), f(2), tolerance), 1);
  for (const [a, b] of [[f(NaN), f(1)], [f(1), f(NaN)], [f(Infinity), f(-Infinity)], [f(1), f(1, 2)]] as const) assert.equal(ratio(a, b, tolerance), Infinity);
  const i = (v: bigint) => ({ dtype: "i64" as const, shape: [1], data: BigInt64Array.of(v) });
  assert.equal(ratio(i(2n ** 60n), i(2n ** 60n + 1n), tolerance), Infinity);
  assert.equal(ratio(i(5n), { dtype: "i32", shape: [1], data: Int32Array.of(5) }, tolerance), 0);
});
