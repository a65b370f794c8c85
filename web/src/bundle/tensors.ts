/** safetensors members: header JSON and offsets, every bound checked. */

import type { DTypeName, Tensor } from "../api.js";
import { BundleError } from "../errors.js";
import { fail, integer, list, object, oneOf, parseJson, record } from "./check.js";
import { elements, TYPES } from "./dtypes.js";

const TAGS = ["F16", "F32", "F64", "I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64", "BOOL"] as const;
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
  const view = new DataView(data.buffer, data.byteOffset, data.length);
  const base = data.length < 8 ? Infinity : 8 + Number(view.getBigUint64(0, true));
  if (base - 8 > MAX_HEADER || base > data.length) throw new BundleError("the header is too long", where);
  const shape = list(integer()), entry = object({ dtype: oneOf(TAGS), shape, data_offsets: list(integer(), 2) });
  const result = new Map<string, Slot>();
  for (const [key, value] of Object.entries(record((v) => v)(parseJson(data.subarray(8, base), where), where))) {
    if (key === "__metadata__") continue;
    const path = `${where}: ${key.slice(0, 80)}`, made = entry(value, path), dtype = made.dtype.toLowerCase() as DTypeName;
    const [start, stop] = made.data_offsets as [number, number];
    if (made.shape.length > MAX_RANK || stop - start !== TYPES[dtype].BYTES_PER_ELEMENT * elements(made.shape) || base + stop > data.length) {
      fail("does not fit its shape or the file", path);
    }
    result.set(key, { dtype, shape: made.shape, start: base + start, stop: base + stop });
  }
  return result;
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
