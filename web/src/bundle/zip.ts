/**
 * The ZIP layout of a bundle: every byte of its directory is determined by the members' names, sizes and checksums, so it is
 * rebuilt from these and compared byte for byte. docs/bundle.md says what it is.
 */

import { BundleError } from "../errors.js";
import { alignUp } from "./dtypes.js";
import { AGAIN, checkMemberName, checkMemberSize, MAX_FILE, MAX_MEMBERS, MAX_NAME } from "./members.js";

const ALIGN = 64;
const LOCAL = 30;
const CENTRAL = 46;
const END = 22;
const DATE = 0x0021; // 1980-01-01, the least that ZIP can say

/** A member: CRC-32, bytes, offset of its local header and of its data in the file. */
export interface Entry {
  readonly name: string;
  readonly crc: number;
  readonly size: number;
  readonly header: number;
  readonly start: number;
}

const long = (v: number): [number, number] => [v & 0xffff, v >>> 16];
const words = (...values: number[]): Uint8Array => new Uint8Array(Uint16Array.from(values).buffer);

/** The central directory and the end record. */
export function directory(entries: readonly Entry[]): Uint8Array {
  const parts = entries.flatMap((e) => [
    words(...long(0x02014b50), 20, 20, 0, 0, 0, DATE, ...long(e.crc), ...long(e.size), ...long(e.size), e.name.length, 0, 0, 0, 0, 0, 0, ...long(e.header)),
    new TextEncoder().encode(e.name),
  ]);
  const size = concat(parts), last = entries.at(-1);
  return concat([size, words(...long(0x06054b50), 0, 0, entries.length, entries.length, ...long(size.length), ...long(last ? last.start + last.size : 0), 0)]);
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

/** Where the directory of a file of `size` bytes starts, read off the file's end. */
export function directoryStart(tail: Uint8Array, size: number): number {
  const view = new DataView(tail.buffer, tail.byteOffset + Math.max(0, tail.length - END));
  if (tail.length >= END && size <= MAX_FILE && view.getUint32(0, true) === 0x06054b50) {
    const count = view.getUint16(10, true), bytes = view.getUint32(12, true), start = view.getUint32(16, true);
    if (start + bytes + END === size && count <= MAX_MEMBERS && bytes <= count * (CENTRAL + MAX_NAME)) return start;
  }
  throw new BundleError("not a tang bundle, or truncated", "bundle", `${AGAIN}: tang-edge pack MODEL.onnx`);
}

/** The members of a file, by its directory (the bytes from `directoryStart` to the end). */
export function readDirectory(data: Uint8Array): Map<string, Entry> {
  const entries = new Map<string, Entry>(), view = new DataView(data.buffer, data.byteOffset, data.length);
  for (let at = 0, header = 0; at + CENTRAL <= data.length - END;) {
    const crc = view.getUint32(at + 16, true), size = view.getUint32(at + 24, true), length = view.getUint16(at + 28, true);
    at += CENTRAL;
    const name = String.fromCharCode(...data.subarray(at, at + Math.min(length, MAX_NAME + 1)));
    checkMemberName(name);
    checkMemberSize(name, size);
    if (entries.has(name)) throw new BundleError("occurs twice", name, AGAIN);
    const start = alignUp(header + LOCAL + length + 4, ALIGN); // 4: id and length of the padding
    entries.set(name, { name, crc, size, header, start });
    header = start + size;
    at += length;
  }
  const made = directory([...entries.values()]);
  if (made.length !== data.length || made.some((v, i) => v !== data[i])) {
    throw new BundleError("the directory was changed", "bundle", AGAIN);
  }
  return entries;
}
