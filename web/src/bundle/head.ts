/** The end of a bundle, which tells the rest: its directory and its manifest, checked against each other. */

import { BundleError } from "../errors.js";
import { parseJson } from "./check.js";
import type { Manifest } from "./format.js";
import { AGAIN, MANIFEST, MANIFEST_HASH } from "./members.js";
import { sha256 } from "./sha256.js";
import type { Source } from "./source.js";
import { parseManifest } from "./verify.js";
import { concat, directoryStart, readDirectory, type Entry } from "./zip.js";

/** What a server said about a version of a file. */
export interface Validators {
  readonly size: number;
  readonly etag: string | null;
  readonly modified: string | null;
}

export interface Head extends Validators {
  /** The bytes of the directory with its end record, and of the manifest. */
  readonly directory: Uint8Array;
  readonly raw: Uint8Array;
  readonly entries: ReadonlyMap<string, Entry>;
  readonly manifest: Manifest;
  /** The SHA-256 of the manifest: it fixes every byte of the bundle. */
  readonly id: string;
}

/** Everything that can be said about the parts before they are used. */
async function makeHead(validators: Validators, directory: Uint8Array, raw: Uint8Array, hash: string | null): Promise<Head> {
  const entries = readDirectory(directory), id = await sha256(raw), { size, etag, modified } = validators;
  if (hash !== null && hash.trim() !== id) throw new BundleError("does not match its SHA-256", MANIFEST, AGAIN);
  const manifest = parseManifest(parseJson(raw, MANIFEST));
  const listed = new Map([...manifest.files].map(([name, { bytes }]) => [name, bytes]));
  listed.set(MANIFEST, raw.length).set(MANIFEST_HASH, 64);
  for (const [name, bytes] of listed) {
    const found = entries.get(name)?.size;
    if (found !== bytes) throw new BundleError(found === undefined ? "is missing" : "has another size than the manifest says", name, AGAIN);
  }
  for (const name of entries.keys()) {
    if (!listed.has(name)) throw new BundleError("is not in the manifest", name, "Do not use it");
  }
  return { size, etag, modified, directory, raw, entries, manifest, id };
}

/** Read the head of a source; `tail` is what is there of its end already. */
export async function readHead(source: Source, validators: Validators, tail: Uint8Array, signal?: AbortSignal): Promise<Head> {
  const start = directoryStart(tail, source.size), directory = new Uint8Array(source.size - start);
  if (directory.length <= tail.length) directory.set(tail.subarray(tail.length - directory.length));
  else await source.read(start, directory, signal);
  const entries = readDirectory(directory);
  const read = async (name: string): Promise<Uint8Array> => {
    const entry = entries.get(name);
    if (!entry) throw new BundleError("is missing", name, AGAIN);
    const bytes = new Uint8Array(entry.size);
    await source.read(entry.start, bytes, signal);
    return bytes;
  };
  return makeHead(validators, directory, await read(MANIFEST), new TextDecoder().decode(await read(MANIFEST_HASH)));
}

/** The head as one piece for storage. */
export function packHead({ size, etag, modified, directory, raw }: Head): Uint8Array {
  return concat([new TextEncoder().encode(`${JSON.stringify([size, etag, modified, directory.length])}\n`), directory, raw]);
}

/** The head in a piece of storage; null where there is none, or a damaged one. */
export async function unpackHead(blob: Blob | null): Promise<Head | null> {
  try {
    const data = new Uint8Array(await blob!.arrayBuffer()), end = data.indexOf(10) + 1;
    const [size, etag, modified, length] = JSON.parse(new TextDecoder().decode(data.subarray(0, end)));
    return await makeHead({ size, etag, modified }, data.slice(end, end + length), data.slice(end + length), null);
  } catch {
    return null;
  }
}
