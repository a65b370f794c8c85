/** A bundle from a server without ranges: read once from its first byte to its last, members put away as they come. */

import { BundleError, NetworkError } from "../errors.js";
import { makeHead, type Head, type Validators } from "./head.js";
import { AGAIN, checkMemberName, checkMemberSize, MANIFEST, MANIFEST_HASH, MAX_FILE, MAX_NAME } from "./members.js";
import { sha256 } from "./sha256.js";
import { checkLocal, LOCAL_BYTES, MAX_DIRECTORY, place, readLocal, type Entry } from "./zip.js";

/** Members that no browser needs. */
const SKIPPED = /^(explain|records)\.json$|^lib\/(?!wasm)/;

export type Put = (hash: string, data: Uint8Array) => Promise<void>;

/** A stream as a queue of bytes. */
class Bytes {
  #reader;
  #piece: Uint8Array = new Uint8Array(0);
  at = 0;

  constructor(stream: ReadableStream<Uint8Array>, private readonly received: (bytes: number) => void, private readonly signal?: AbortSignal) {
    this.#reader = stream.getReader();
  }

  /** Fill as much of `into` as there is; returns how much. */
  async take(into: Uint8Array): Promise<number> {
    let filled = 0;
    while (filled < into.length && (await this.#some())) {
      const part = this.#piece.subarray(0, into.length - filled);
      into.set(part, filled);
      filled += this.#drop(part.length);
    }
    return filled;
  }

  async skip(count: number): Promise<void> {
    while (count > 0 && (await this.#some())) count -= this.#drop(Math.min(count, this.#piece.length));
    if (count > 0) throw new TypeError("the answer ended too early");
  }

  async exactly(count: number): Promise<Uint8Array> {
    const into = new Uint8Array(count);
    if ((await this.take(into)) < count) throw new TypeError("the answer ended too early");
    return into;
  }

  cancel(): void {
    this.#reader.cancel().catch(() => {});
  }

  #drop(count: number): number {
    this.#piece = this.#piece.subarray(count);
    this.at += count;
    return count;
  }

  async #some(): Promise<boolean> {
    while (this.#piece.length === 0) {
      this.signal?.throwIfAborted();
      const { done, value } = await this.#reader.read();
      if (done) return false;
      this.received(value.length);
      this.#piece = value;
    }
    return true;
  }
}

/** Read everything, hand over the members that may be needed by their hash, and return the head. */
export async function readWhole(
  body: ReadableStream<Uint8Array>, validators: Validators, put: Put, received: (bytes: number) => void, signal?: AbortSignal,
): Promise<Head> {
  const bytes = new Bytes(body, received, signal);
  try {
    return await members(bytes, validators, put);
  } catch (error) {
    signal?.throwIfAborted();
    throw error instanceof BundleError ? error : new NetworkError(`the download was cut (${String(error)})`, "", "Load it again.", { cause: error });
  } finally {
    bytes.cancel();
  }
}

async function members(bytes: Bytes, validators: Validators, put: Put): Promise<Head> {
  const kept = new Map<string, Uint8Array>();
  for (;;) {
    const offset = bytes.at, fixed = new Uint8Array(LOCAL_BYTES), got = await bytes.take(fixed);
    const local = got === LOCAL_BYTES ? readLocal(fixed) : null;
    if (!local) return end(bytes, fixed.subarray(0, got), validators, kept);
    const entry = await checked(bytes, fixed, offset, local);
    if (entry.name === MANIFEST || entry.name === MANIFEST_HASH) kept.set(entry.name, await bytes.exactly(entry.size));
    else if (SKIPPED.test(entry.name)) await bytes.skip(entry.size);
    else {
      const data = await bytes.exactly(entry.size);
      await put(await sha256(data), data);
    }
  }
}

async function checked(bytes: Bytes, fixed: Uint8Array, offset: number, local: { crc: number; size: number; nameLength: number }): Promise<Entry> {
  if (local.nameLength > MAX_NAME) throw new BundleError("unsafe or malformed member name", "bundle", "Do not use this file.");
  const name = await bytes.exactly(local.nameLength), text = String.fromCharCode(...name);
  checkMemberName(text);
  checkMemberSize(text, local.size);
  const entry = place(text, local.crc, local.size, offset), header = new Uint8Array(entry.start - offset);
  header.set(fixed);
  header.set(name, LOCAL_BYTES);
  await bytes.take(header.subarray(LOCAL_BYTES + name.length));
  checkLocal(entry, header);
  if (entry.start + entry.size > MAX_FILE) throw new BundleError("the file is too large for a bundle", "bundle", AGAIN);
  return entry;
}

async function end(bytes: Bytes, first: Uint8Array, validators: Validators, kept: ReadonlyMap<string, Uint8Array>): Promise<Head> {
  const none = new BundleError("not a tang bundle, or truncated", "bundle", `${AGAIN} A bundle is made with: tang-edge pack MODEL.onnx`);
  if (first[0] !== 0x50 || first[1] !== 0x4b) throw none;
  const start = bytes.at - first.length, parts = [first];
  for (let total = first.length; ;) {
    const part = new Uint8Array(64 * 1024), got = await bytes.take(part);
    parts.push(part.subarray(0, got));
    total += got;
    if (total > MAX_DIRECTORY) throw none;
    if (got < part.length) break;
  }
  const directory = new Uint8Array(await new Blob(parts as BlobPart[]).arrayBuffer());
  const manifest = kept.get(MANIFEST), hash = kept.get(MANIFEST_HASH);
  if (!manifest || !hash) throw none;
  return makeHead(start + directory.length, validators, directory, manifest, new TextDecoder().decode(hash));
}
