/**
 * Size expressions, evaluated as Python and C do: floor semantics, every value within +-(2^53 - 1).
 * `E := int | "dim" | ["+" | "*" | "max" | "min", E...] | ["-", E, E] | ["//" | "%", E, int > 0]`.
 */

import { BundleError } from "../errors.js";
import type { Expr } from "./format.js";

const MAX_NODES = 4096;
const MAX_DEPTH = 64;

/** Raise BundleError unless `expr` is a well-formed size expression over the dimension names. */
export function validate(expr: unknown, names: ReadonlySet<string>, where: string): asserts expr is Expr {
  let nodes = 0;
  const fail = (why: string): never => { throw new BundleError(why, where) };
  const walk = (e: unknown, depth: number): void => {
    if (++nodes > MAX_NODES || depth > MAX_DEPTH) fail(`a size expression larger than allowed`);
    if (typeof e === "number") {
      if (!Number.isSafeInteger(e)) fail(`${e} is no integer, or beyond 2**53 - 1`);
    } else if (typeof e === "string") {
      if (!names.has(e)) fail(`unknown dimension '${e.slice(0, 60)}'`);
    } else if (!Array.isArray(e) || typeof e[0] !== "string") {
      fail("not a size expression");
    } else {
      if (!arity(e as [string, ...unknown[]])) fail(`malformed operator '${e[0].slice(0, 20)}'`);
      for (const arg of e.slice(1)) walk(arg, depth + 1);
    }
  };
  walk(expr, 0);
}

function arity([op, ...args]: readonly [string, ...unknown[]]): boolean {
  if (op === "//" || op === "%") return args.length === 2 && Number.isSafeInteger(args[1]) && (args[1] as number) > 0;
  if (op === "-") return args.length === 2;
  return args.length > 0 && (op === "+" || op === "*" || op === "max" || op === "min");
}

/** The value of a valid expression. */
export function evaluate(expr: Expr, dims: ReadonlyMap<string, number>): number {
  if (typeof expr === "number") return expr;
  if (typeof expr === "string") {
    const value = dims.get(expr);
    if (value === undefined) throw new BundleError(`'${expr}' has no value`, "size expression");
    return value;
  }
  const value = apply(expr[0], (expr.slice(1) as Expr[]).map((e) => evaluate(e, dims)));
  if (!Number.isSafeInteger(value)) throw new BundleError("a size is beyond 2**53 - 1", "size expression");
  return value + 0; // no negative zero
}

function apply(op: string, values: readonly number[]): number {
  const a = values[0]!, b = values[1]!;
  switch (op) {
    case "-": return a - b;
    // the remainder of doubles is exact, their quotient is not
    case "//": return (a - (a % b)) / b - (a % b < 0 ? 1 : 0);
    case "%": return (a % b) + (a % b < 0 ? b : 0);
    case "max": return Math.max(...values);
    case "min": return Math.min(...values);
    default: return total(op, values);
  }
}

/** A sum or product; where a partial result leaves the exact range, the whole may still be inside. */
function total(op: string, values: readonly number[]): number {
  let result = op === "+" ? 0 : 1;
  for (const v of values) {
    result = op === "+" ? result + v : result * v;
    if (!Number.isSafeInteger(result)) {
      return Number(values.map(BigInt).reduce((x, y) => (op === "+" ? x + y : x * y)));
    }
  }
  return result;
}

/** The dimension names that a valid expression mentions. */
export function namesOf(expr: Expr): string[] {
  if (typeof expr === "number") return [];
  return typeof expr === "string" ? [expr] : (expr.slice(1) as Expr[]).flatMap(namesOf);
}

/** An expression as a person writes it: ["+", "n", 1] is (n + 1). */
export function show(expr: Expr): string {
  if (typeof expr !== "object") return String(expr);
  const args = (expr.slice(1) as Expr[]).map(show);
  return expr[0] === "max" || expr[0] === "min" ? `${expr[0]}(${args.join(", ")})` : `(${args.join(` ${expr[0]} `)})`;
}
