/** Reading untrusted JSON: readers check a value and give it a type, or name the place where it does not fit. */

import { BundleError } from "../errors.js";
import { validate } from "./expr.js";
import type { Expr } from "./format.js";
import { checkMemberName } from "./members.js";

export interface Reader<T> {
  (value: unknown, path: string): T;
  readonly optional?: boolean;
}
type Read<S> = { [K in keyof S]: S[K] extends Reader<infer T> ? T : never };

const MAX_ITEMS = 1_000_000;
const MAX_TEXT = 100_000;

/** The value of strict UTF-8 JSON. */
export function parseJson(data: Uint8Array, where: string): unknown {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data));
  } catch (error) {
    throw new BundleError(`not valid JSON (${String(error).slice(0, 120)})`, where);
  }
}

export function fail(why: string, path: string): never {
  throw new BundleError(why, path, "Pack it again.");
}

export function integer(low = 0, high = Number.MAX_SAFE_INTEGER): Reader<number> {
  return (v, path) => (Number.isSafeInteger(v) && (v as number) >= low && (v as number) <= high ? (v as number) : fail(`must be an integer in ${low}..${high}`, path));
}

export const boolean: Reader<boolean> = (v, path) => (typeof v === "boolean" ? v : fail("must be true or false", path));
export const size: Reader<number> = (v, path) => (Number.isFinite(v) && (v as number) >= 0 ? (v as number) : fail("must be a number, not negative", path));
export const text: Reader<string> = (v, path) => (typeof v === "string" && v.length <= MAX_TEXT ? v : fail("must be a string", path));
export const name: Reader<string> = (v, path) => text(v, path) || fail("must not be empty", path);

export const member: Reader<string> = (v, path) => {
  checkMemberName(text(v, path));
  return v as string;
};

export function oneOf<T extends string | number>(values: Iterable<T>): Reader<T> {
  const known = new Set(values);
  return (v, path) => (known.has(v as T) ? (v as T) : fail(`must be one of ${[...known].slice(0, 20).join(", ")}`, path));
}

/** A size expression over the dimensions. */
export function expr(dims: ReadonlySet<string>): Reader<Expr> {
  return (v, path) => {
    validate(v, dims, path);
    return v;
  };
}

export function list<T>(each: Reader<T>, length?: number): Reader<T[]> {
  return (v, path) => {
    if (!Array.isArray(v) || v.length > MAX_ITEMS) return fail("must be an array", path);
    if (v.length !== (length ?? v.length)) fail(`must have ${length} elements, has ${v.length}`, path);
    return v.map((item, i) => each(item, `${path}[${i}]`));
  };
}

/** An object with free keys. */
export function record<T>(each: (value: unknown, path: string, key: string) => T): Reader<Map<string, T>> {
  return (v, path) => new Map(Object.entries(plain(v, path)).map(([key, item]) => [key, each(item, `${path}.${key}`, key)]));
}

export function optional<T, D>(each: Reader<T>, absent: D): Reader<T | D> {
  return Object.assign((v: unknown, path: string) => (v == null ? absent : each(v, path)), { optional: true });
}

function plain(v: unknown, path: string): Record<string, unknown> {
  return typeof v === "object" && v !== null && !Array.isArray(v) ? (v as Record<string, unknown>) : fail("must be an object", path);
}

/** An object with these members, read in this order, and no others ("x-..." are free for notes). */
export function object<S extends Record<string, Reader<unknown>>>(readers: S): Reader<Read<S>> {
  return (v, path) => {
    const value = plain(v, path);
    const unknown = Object.keys(value).filter((k) => !Object.hasOwn(readers, k) && !k.startsWith("x-"));
    if (unknown.length > 0) fail(`has unknown keys ${unknown.join(", ").slice(0, 200)}`, path);
    const lacks = Object.keys(readers).filter((k) => !readers[k]!.optional && !Object.hasOwn(value, k));
    if (lacks.length > 0) fail(`lacks ${lacks.join(", ")}`, path);
    return Object.fromEntries(Object.entries(readers).map(([k, read]) => [k, read(value[k], `${path}.${k}`)])) as Read<S>;
  };
}
