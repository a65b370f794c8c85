/** Names and sizes of members: checked before anything is read. */

import { BundleError } from "../errors.js";

export const MANIFEST = "manifest.json";
export const MANIFEST_HASH = "manifest.sha256";
export const PLAN = "plan.json";

export const MAX_MEMBERS = 65_000;
export const MAX_NAME = 200;
export const MAX_FILE = 0xfffffffe;
/** The remedy for whatever may be damage on the way. */
export const AGAIN = "Download or pack it again";

const MIB = 2 ** 20;
const NAME = /^[A-Za-z0-9_][A-Za-z0-9_.+-]*(\/[A-Za-z0-9_][A-Za-z0-9_.+-]*)*$/;
const LIMITS: readonly (readonly [RegExp, number])[] = [
  [/^manifest\.json$/, 16 * MIB],
  [/^manifest\.sha256$/, 65],
  [/^weights\/\d{5}\.safetensors$/, 20 * MIB],
  [/^golden\//, 1024 * MIB],
  [/^lib\//, 512 * MIB],
];

/** Raise BundleError unless `name` is a plain relative path of ASCII parts, with no ".." in it. */
export function checkMemberName(name: string): void {
  if (name.length > MAX_NAME || !NAME.test(name) || name.includes("..")) {
    throw new BundleError("unsafe or malformed member name", JSON.stringify(name.slice(0, MAX_NAME)), "Do not use it");
  }
}

/** Raise BundleError where the member declares more bytes than one of its name may have. */
export function checkMemberSize(name: string, size: number): void {
  const limit = LIMITS.find(([pattern]) => pattern.test(name))?.[1] ?? 256 * MIB;
  if (size > limit) throw new BundleError(`has ${size} bytes, more than the ${limit} allowed`, name, "Do not use it");
}
