/** Reading untrusted JSON: every accessor checks the type and names the place where it does not fit. */

import { BundleError } from "../errors.js";
import { validate } from "./expr.js";
import type { Expr } from "./format.js";
import { checkMemberName } from "./members.js";

const MAX_ITEMS = 1_000_000;
const MAX_TEXT = 100_000;
const BAD = "The bundle was made by a faulty or different packer: pack it again.";

/** The value of strict UTF-8 JSON. */
export function parseJson(data: Uint8Array, where: string): unknown {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data));
  } catch (error) {
    throw new BundleError(`not valid JSON (${String(error).slice(0, 120)})`, where);
  }
}

/** A JSON value and its place. */
export class At {
  constructor(readonly value: unknown, private readonly parent: At | null, private readonly key: string | number) {}

  static root(value: unknown, where: string): At {
    return new At(value, null, where);
  }

  get path(): string {
    if (this.parent === null) return String(this.key);
    return `${this.parent.path}${typeof this.key === "number" ? `[${this.key}]` : `.${this.key}`}`;
  }

  fail(why: string): never {
    throw new BundleError(why, this.path, BAD);
  }

  /** A member of an object; its absence is null. */
  optional<T>(key: string, read: (at: At) => T): T | null {
    const value = (this.value as Record<string, unknown>)[key];
    return value === undefined || value === null ? null : read(new At(value, this, key));
  }

  get(key: string): At {
    return new At((this.value as Record<string, unknown>)[key], this, key);
  }

  /** This, if it is an object that has all the required keys and no unknown one ("x-..." are free for notes). */
  object(required: string, optional = ""): this {
    const have = this.keys().filter((k) => !k.startsWith("x-"));
    const need = required.split(" "), may = optional.split(" ");
    const lacks = need.filter((k) => !have.includes(k));
    if (lacks.length) this.fail(`lacks ${lacks.join(", ")}`);
    const unknown = have.filter((k) => !need.includes(k) && !may.includes(k));
    if (unknown.length) this.fail(`has unknown keys ${unknown.sort().join(", ").slice(0, 200)}`);
    return this;
  }

  private keys(): string[] {
    if (typeof this.value !== "object" || this.value === null || Array.isArray(this.value)) this.fail("must be an object");
    return Object.keys(this.value as object);
  }

  has(key: string): boolean {
    return typeof this.value === "object" && this.value !== null && Object.hasOwn(this.value, key);
  }

  /** The members of an object with free keys. */
  map<T>(each: (at: At, key: string) => T): Map<string, T> {
    return new Map(this.keys().map((key) => [key, each(this.get(key), key)]));
  }

  /** The same as a plain record. */
  record<T>(each: (at: At) => T): Readonly<Record<string, T>> {
    return Object.fromEntries(this.map(each));
  }

  array<T>(each: (at: At) => T, length?: number): T[] {
    const value = this.value;
    if (!Array.isArray(value) || value.length > MAX_ITEMS) this.fail("must be an array of reasonable length");
    if (length !== undefined && value.length !== length) this.fail(`must have ${length} elements, has ${value.length}`);
    return value.map((item, i) => each(new At(item, this, i)));
  }

  text(): string {
    if (typeof this.value !== "string" || this.value.length > MAX_TEXT) this.fail("must be a string");
    return this.value;
  }

  name(): string {
    return this.text() || this.fail("must not be empty");
  }

  oneOf<T extends string>(values: readonly T[] | ReadonlySet<T>): T {
    const known: ReadonlySet<T> = Array.isArray(values) ? new Set(values) : (values as ReadonlySet<T>);
    if (!known.has(this.value as T)) this.fail(`must be one of ${[...known].slice(0, 20).join(", ")}`);
    return this.value as T;
  }

  integer(low = 0, high = Number.MAX_SAFE_INTEGER): number {
    const value = this.value as number;
    if (!Number.isSafeInteger(value) || value < low || value > high) this.fail(`must be an integer in ${low}..${high}`);
    return value;
  }

  boolean(): boolean {
    return typeof this.value === "boolean" ? this.value : this.fail("must be true or false");
  }

  /** A finite number that is not negative. */
  number(): number {
    const value = this.value as number;
    return Number.isFinite(value) && value >= 0 ? value : this.fail("must be a finite number, not negative");
  }

  member(): string {
    const name = this.text();
    checkMemberName(name);
    return name;
  }

  /** A size expression over the dimensions. */
  expr(dims: ReadonlySet<string>): Expr {
    validate(this.value, dims, () => this.path);
    return this.value as Expr;
  }
}
