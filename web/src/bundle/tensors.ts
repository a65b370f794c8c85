/** safetensors members: header JSON and offsets, every bound checked. */

import type { DTypeName, Tensor } from "../api.js";
import { BundleError } from "../errors.js";
import { elements, TYPES } from "./dtypes.js";
import { parseJson } from "./json.js";

const DTYPES: Readonly<Record<string, DTypeName>> = {
  F16: "f16", F32: "f32", F64: "f64", I8: "i8", I16: "i16", I32: "i32", I64: "i64",
  U8: "u8", U16: "u16", U32: "u32", U64: "u64", BOOL: "bool",
};
const MAX_HEADER = 4 << 20;
const MAX_RANK = 32;

/** A tensor in a member: its byte range counted from the start of the member. */
export interface Slot {
  readonly dtype: DTypeName;
  readonly shape: readonly number[];
  readonly start: number;
  readonly stop: number;
}

/** The tensors of a safetensors member. */
export function parseTensors(data: Uint8Array, where: string): Map<string, Slot> {
  if (data.length < 8) throw new BundleError("too short for a safetensors file", where);
  const view = new DataView(data.buffer, data.byteOffset, 8);
  const base = 8 + view.getUint32(0, true);
  if (view.getUint32(4, true) || base - 8 > MAX_HEADER || base > data.length) {
    throw new BundleError("safetensors header is longer than the file or the limit", where);
  }
  const header = parseJson(data.subarray(8, base), where);
  if (typeof header !== "object" || header === null || Array.isArray(header)) {
    throw new BundleError("safetensors header is not an object", where);
  }
  const entries = Object.entries(header).filter(([key]) => key !== "__metadata__");
  return new Map(entries.map(([key, entry]) => [key, slot(entry, base, data.length, `${where}: ${key.slice(0, 80)}`)]));
}

function slot(entry: unknown, base: number, total: number, where: string): Slot {
  const { dtype: tag, shape, data_offsets: offsets, ...rest } = Object(entry) as Record<string, unknown>;
  const dtype = typeof tag === "string" && Object.hasOwn(DTYPES, tag) ? DTYPES[tag] : undefined;
  if (!dtype || !naturals(shape) || shape.length > MAX_RANK || !naturals(offsets) || offsets.length !== 2 || Object.keys(rest).length) {
    throw new BundleError("malformed tensor entry", where);
  }
  const [start, stop] = offsets as [number, number];
  if (stop - start !== TYPES[dtype].BYTES_PER_ELEMENT * elements(shape) || base + stop > total) {
    throw new BundleError("tensor bytes do not fit its shape or the file", where);
  }
  return { dtype, shape, start: base + start, stop: base + stop };
}

function naturals(value: unknown): value is number[] {
  return Array.isArray(value) && value.every((v) => Number.isSafeInteger(v) && (v as number) >= 0);
}

/** All tensors of a member; views of its bytes where these are aligned, else copies. */
export function readTensors(data: Uint8Array, where: string): Map<string, Tensor> {
  const result = new Map<string, Tensor>();
  for (const [key, { dtype, shape, start, stop }] of parseTensors(data, where)) {
    const type = TYPES[dtype];
    const aligned = (data.byteOffset + start) % type.BYTES_PER_ELEMENT === 0;
    const bytes = aligned ? data.subarray(start, stop) : data.slice(start, stop);
    result.set(key, { dtype, shape, data: new type(bytes.buffer, bytes.byteOffset, elements(shape)) });
  }
  return result;
}
