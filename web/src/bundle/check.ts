/** Reading untrusted JSON: readers check a value and give it a type, or name the place where it does not fit. */

import { BundleError } from "../errors.js";
import { validate } from "./expr.js";
import type { Expr } from "./format.js";
import { checkMemberName } from "./members.js";

export interface Reader<T> {
  (value: unknown, path: string, key?: string): T;
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
  throw new BundleError(why, path, "Pack it again");
}

/** A reader of what passes a test. */
export function that<T>(test: (value: T) => boolean, must: string): Reader<T> {
  return (v, path) => (test(v as T) ? (v as T) : fail(`must be ${must}`, path));
}

/** What a reader gives, looked at further or made into something else. */
export function then<T, U>(read: Reader<T>, next: (made: T, path: string, key: string) => U): Reader<U> {
  return (v, path, key) => next(read(v, path), path, key!);
}

export function integer(low = 0, high = Number.MAX_SAFE_INTEGER): Reader<number> {
  return that((v) => Number.isSafeInteger(v) && v >= low && v <= high, `an integer in ${low}..${high}`);
}

export const boolean: Reader<boolean> = that((v) => typeof v === "boolean", "true or false");
export const size: Reader<number> = that((v) => Number.isFinite(v) && v >= 0, "a number from 0 on");
export const text: Reader<string> = that((v) => typeof v === "string" && v.length <= MAX_TEXT, "a string");
export const name: Reader<string> = then(text, (v, path) => v || fail("must not be empty", path));
export const member: Reader<string> = then(text, (v) => {
  checkMemberName(v);
  return v;
});

export function oneOf<const T extends string | number>(values: Iterable<T>): Reader<T> {
  const known = new Set(values);
  return that((v) => known.has(v), `one of ${[...known].slice(0, 20).join(", ")}`);
}

/** A size expression over the dimensions. */
export function expr(dims: ReadonlySet<string>): Reader<Expr> {
  return (v, path) => {
    validate(v, dims, path);
    return v;
  };
}

/** Raise BundleError unless there are so many items. */
export function count(items: readonly unknown[], wanted: number, path: string): void {
  if (items.length !== wanted) fail(`must have ${wanted} elements, has ${items.length}`, path);
}

export function list<T>(each: Reader<T>, length?: number): Reader<T[]> {
  return then(that<unknown[]>((v) => Array.isArray(v) && v.length <= MAX_ITEMS, "an array"), (items, path) => {
    count(items, length ?? items.length, path);
    return items.map((item, i) => each(item, `${path}[${i}]`));
  });
}

const plain = that<Record<string, unknown>>((v) => typeof v === "object" && v !== null && !Array.isArray(v), "an object");

/** An object with free keys. */
export function record<T>(each: Reader<T>): Reader<Record<string, T>> {
  return then(plain, (value, path) => Object.fromEntries(Object.entries(value).map(([key, item]) => [key, each(item, `${path}.${key}`, key)])));
}

export function optional<T, D>(each: Reader<T>, absent: D): Reader<T | D> {
  return Object.assign((v: unknown, path: string) => (v == null ? absent : each(v, path)), { optional: true });
}

/** An object with these members, read in this order, and no others ("x-..." are free for notes). */
export function object<S extends Record<string, Reader<unknown>>>(readers: S): Reader<Read<S>> {
  return then(plain, (value, path) => {
    const unknown = Object.keys(value).filter((k) => !Object.hasOwn(readers, k) && !k.startsWith("x-"));
    if (unknown.length > 0) fail(`has unknown keys ${unknown.join(", ").slice(0, 200)}`, path);
    return Object.fromEntries(Object.entries(readers).map(([k, read]) => {
      if (!read.optional && !Object.hasOwn(value, k)) fail(`lacks ${k}`, path);
      return [k, read(value[k], `${path}.${k}`)];
    })) as Read<S>;
  });
}
