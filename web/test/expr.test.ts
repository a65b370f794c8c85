import assert from "node:assert/strict";
import { test } from "node:test";
import { evaluate, namesOf, show, validate } from "../src/bundle/expr.js";
import type { Expr } from "../src/bundle/format.js";
import { BundleError } from "../src/errors.js";

const DIMS = new Map([["n", 7], ["m", 3]]);
const NAMES = new Set(DIMS.keys());
const LIMIT = Number.MAX_SAFE_INTEGER;

function value(expr: unknown): number {
  validate(expr, NAMES, "expression");
  return evaluate(expr, DIMS);
}

test("values, with floor semantics", () => {
  const cases: [unknown, number][] = [
    [5, 5], ["n", 7], [["+", "n", "m", 1], 11], [["*", "n", "m"], 21], [["-", "m", "n"], -4], [["//", ["-", "m", "n"], 3], -2],
    [["%", ["-", "m", "n"], 3], 2], [["max", "n", 100, "m"], 100], [["min", "n", "m"], 3], [["+", 4], 4], [["*", ["-", 0, 0], -5], 0],
    [["//", LIMIT, 3], 3002399751580330], [["//", -LIMIT, 2], -4503599627370496], [["%", -1, LIMIT], LIMIT - 1],
  ];
  for (const [expr, wanted] of cases) assert.ok(Object.is(value(expr), wanted), `${JSON.stringify(expr)} is ${value(expr)}`);
});

test("division agrees with exact integers", () => {
  let seed = 1n;
  const next = (): bigint => (seed = (seed * 6364136223846793005n + 1442695040888963407n) & ((1n << 64n) - 1n)) >> 11n;
  for (let i = 0; i < 20_000; i++) {
    const a = Number(next()) * (i % 2 ? 1 : -1), b = Number(next() >> BigInt(i % 52)) + 1;
    if (b > LIMIT || Math.abs(a) > LIMIT) continue;
    const x = BigInt(a), y = BigInt(b), modulo = ((x % y) + y) % y;
    assert.equal(BigInt(evaluate(["//", a, b], DIMS)), (x - modulo) / y);
    assert.equal(BigInt(evaluate(["%", a, b], DIMS)), modulo);
  }
});

test("the exact range is kept, in the end", () => {
  assert.equal(value(["+", LIMIT, 1, -1]), LIMIT);
  assert.equal(value(["*", LIMIT, LIMIT, 0]), 0);
  for (const expr of [["*", "n", LIMIT], ["+", LIMIT, 1], ["-", -LIMIT, 1], ["*", LIMIT, 3, -1]]) assert.throws(() => value(expr), /2\*\*53/);
});

test("refusals", () => {
  const bad = [
    1.5, NaN, true, null, {}, [], [1, 2], ["+"], ["-", 1], ["-", 1, 2, 3], ["//", "n", 0], ["//", "n", -2], ["//", "n", "m"], ["%", "n", true],
    ["^", 1, 2], "k", 2 ** 53, ["+", 1, null], [["+"], 1], undefined,
  ];
  for (const expr of bad) assert.throws(() => validate(expr, NAMES, "here"), (e) => e instanceof BundleError && e.where === "here", JSON.stringify(expr));
});

test("cycles and huge expressions are refused", () => {
  const cyclic: unknown[] = ["+", 1];
  cyclic.push(cyclic);
  let deep: unknown = 1;
  for (let i = 0; i < 100_000; i++) deep = ["+", deep];
  for (const expr of [cyclic, deep, ["+", ...new Array<number>(5000).fill(1)]]) assert.throws(() => validate(expr, NAMES, ""), /larger than/);
});

test("names and text", () => {
  const expr: Expr = ["//", ["+", "n", 63], 64];
  assert.deepEqual([...new Set(namesOf(expr))], ["n"]);
  assert.equal(show(expr), "((n + 63) // 64)");
  assert.equal(show(["max", "n", 1]), "max(n, 1)");
});
