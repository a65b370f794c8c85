/**
 * The ZIP layout of a bundle: every byte of it is determined by the members' names, sizes and checksums, so it is rebuilt from
 * these and compared byte for byte. docs/bundle.md says what it is.
 */

import { BundleError } from "../errors.js";
import { alignUp } from "./dtypes.js";
import { AGAIN, checkMemberName, checkMemberSize, MAX_FILE, MAX_MEMBERS, MAX_NAME } from "./members.js";

const ALIGN = 64;
const LOCAL = 30;
const CENTRAL = 46;
const END = 22;
const DATE = 0x0021; // 1980-01-01, the least that ZIP can say
const PAD_ID = 0xd935;

export const LOCAL_BYTES = LOCAL;
/** Bytes of the largest directory with its end record. */
export const MAX_DIRECTORY = MAX_MEMBERS * (CENTRAL + MAX_NAME) + END;

/** A member: CRC-32, bytes, offset of its local header and of its data in the file. */
export interface Entry {
  readonly name: string;
  readonly crc: number;
  readonly size: number;
  readonly header: number;
  readonly start: number;
}

/** The entry of a member whose local header is at `header`; its data starts at a multiple of 64. */
export function place(name: string, crc: number, size: number, header: number): Entry {
  return { name, crc, size, header, start: alignUp(header + LOCAL + name.length + 4, ALIGN) };
}

/** Writes little-endian fields: widths are 2 and 4 bytes. */
function pack(length: number, fields: readonly (readonly [width: 2 | 4, value: number])[], name = ""): Uint8Array {
  const bytes = new Uint8Array(length), view = new DataView(bytes.buffer);
  let at = 0;
  for (const [width, value] of fields) {
    if (width === 2) view.setUint16(at, value, true);
    else view.setUint32(at, value, true);
    at += width;
  }
  for (let i = 0; i < name.length; i++) bytes[at + i] = name.charCodeAt(i);
  return bytes;
}

/** The local header, with its padding. */
export function localHeader(e: Entry): Uint8Array {
  const extra = e.start - e.header - LOCAL - e.name.length;
  const bytes = pack(e.start - e.header, [
    [4, 0x04034b50], [2, 20], [2, 0], [2, 0], [2, 0], [2, DATE], [4, e.crc], [4, e.size], [4, e.size], [2, e.name.length], [2, extra],
  ], e.name);
  const view = new DataView(bytes.buffer);
  view.setUint16(LOCAL + e.name.length, PAD_ID, true);
  view.setUint16(LOCAL + e.name.length + 2, extra - 4, true);
  return bytes;
}

/** The central directory and the end record. */
export function directory(entries: readonly Entry[]): Uint8Array {
  const parts = entries.map((e) => pack(CENTRAL + e.name.length, [
    [4, 0x02014b50], [2, 20], [2, 20], [2, 0], [2, 0], [2, 0], [2, DATE], [4, e.crc], [4, e.size], [4, e.size],
    [2, e.name.length], [2, 0], [2, 0], [2, 0], [2, 0], [4, 0], [4, e.header],
  ], e.name));
  const size = parts.reduce((sum, p) => sum + p.length, 0), last = entries.at(-1);
  const start = last ? last.start + last.size : 0;
  parts.push(pack(END, [[4, 0x06054b50], [2, 0], [2, 0], [2, entries.length], [2, entries.length], [4, size], [4, start], [2, 0]]));
  return concat(parts);
}

export function concat(parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const whole = new Uint8Array(parts.reduce((sum, p) => sum + p.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

export function same(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((v, i) => v === b[i]);
}

/** Where the directory of a file of `size` bytes starts, read off the file's end. */
export function directoryStart(tail: Uint8Array, size: number): number {
  const none = new BundleError("not a tang bundle, or truncated", "bundle", `${AGAIN} A bundle is made with: tang-edge pack MODEL.onnx`);
  if (size > MAX_FILE) throw new BundleError("the file is too large for a bundle", "bundle", AGAIN);
  if (tail.length < END) throw none;
  const view = new DataView(tail.buffer, tail.byteOffset + tail.length - END, END);
  const count = view.getUint16(10, true), bytes = view.getUint32(12, true), start = view.getUint32(16, true);
  if (view.getUint32(0, true) !== 0x06054b50 || start + bytes + END !== size || count > MAX_MEMBERS) throw none;
  if (bytes > count * (CENTRAL + MAX_NAME)) throw new BundleError("the directory of the file is too large", "bundle", AGAIN);
  return start;
}

/** The members of a file, by its directory (the bytes from `directoryStart` to the end). */
export function readDirectory(data: Uint8Array): Map<string, Entry> {
  const entries = new Map<string, Entry>(), view = new DataView(data.buffer, data.byteOffset, data.length);
  let at = 0, offset = 0;
  while (at + CENTRAL <= data.length - END) {
    const crc = view.getUint32(at + 16, true), size = view.getUint32(at + 24, true), length = view.getUint16(at + 28, true);
    const name = String.fromCharCode(...data.subarray(at + CENTRAL, at + CENTRAL + Math.min(length, MAX_NAME + 1)));
    checkMemberName(name);
    checkMemberSize(name, size);
    if (entries.has(name)) throw new BundleError(`member ${name} occurs twice`, "bundle", AGAIN);
    const entry = place(name, crc, size, offset);
    entries.set(name, entry);
    offset = entry.start + size;
    at += CENTRAL + length;
  }
  if (!same(directory([...entries.values()]), data)) {
    throw new BundleError("the directory at the end of the file was changed, or another program made it", "bundle", AGAIN);
  }
  return entries;
}

/** The member that a local header (at `offset` in the file) declares; its name is the `name.length` bytes behind the fixed part. */
export function readLocal(fixed: Uint8Array): { readonly crc: number; readonly size: number; readonly nameLength: number } | null {
  const view = new DataView(fixed.buffer, fixed.byteOffset, LOCAL);
  if (view.getUint32(0, true) !== 0x04034b50) return null;
  return { crc: view.getUint32(14, true), size: view.getUint32(22, true), nameLength: view.getUint16(26, true) };
}

/** Raise BundleError unless the bytes in front of a member's data are its local header. */
export function checkLocal(entry: Entry, header: Uint8Array): void {
  if (!same(header, localHeader(entry))) throw new BundleError("member header was changed", entry.name, AGAIN);
}
