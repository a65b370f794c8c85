/** The end of a bundle, which tells the rest: its directory and its manifest, checked against each other. */

import { BundleError } from "../errors.js";
import type { Manifest } from "./format.js";
import { parseJson } from "./json.js";
import { AGAIN, MANIFEST, MANIFEST_HASH } from "./members.js";
import { sha256 } from "./sha256.js";
import type { Source } from "./source.js";
import { parseManifest } from "./verify.js";
import { checkLocal, concat, directoryStart, MAX_DIRECTORY, readDirectory, type Entry } from "./zip.js";

export interface Head {
  readonly size: number;
  /** What the server said about this version of the file. */
  readonly etag: string | null;
  readonly modified: string | null;
  /** The bytes of the directory with its end record, and of the manifest. */
  readonly directory: Uint8Array;
  readonly manifestBytes: Uint8Array;
  readonly entries: ReadonlyMap<string, Entry>;
  readonly manifest: Manifest;
  /** The SHA-256 of the manifest: it fixes every byte of the bundle. */
  readonly id: string;
}

export type Validators = Pick<Head, "etag" | "modified">;

/** Everything that can be said about the parts before they are used. */
export async function makeHead(size: number, validators: Validators, directory: Uint8Array, manifestBytes: Uint8Array, hash: string | null): Promise<Head> {
  if (directoryStart(directory, size) + directory.length !== size) throw new BundleError("the directory is not at its place", "bundle", AGAIN);
  const entries = readDirectory(directory), id = await sha256(manifestBytes);
  if (hash !== null && hash.trim() !== id) throw new BundleError("the manifest does not match its SHA-256", MANIFEST, AGAIN);
  const manifest = parseManifest(parseJson(manifestBytes, MANIFEST));
  const listed = new Map([...manifest.files].map(([name, { bytes }]) => [name, bytes]));
  listed.set(MANIFEST, manifestBytes.length).set(MANIFEST_HASH, 64);
  for (const [name, bytes] of listed) {
    const entry = entries.get(name);
    if (!entry) throw new BundleError("member is missing", name, AGAIN);
    if (entry.size !== bytes) throw new BundleError("member has another size than the manifest says", name, AGAIN);
  }
  for (const name of entries.keys()) {
    if (!listed.has(name)) throw new BundleError("member is not in the manifest", name, "Do not use this file.");
  }
  return { size, ...validators, directory, manifestBytes, entries, manifest, id };
}

/** Read the head of a source; `tail` is what is there of its end already. */
export async function readHead(source: Source, validators: Validators, tail: Uint8Array, signal?: AbortSignal): Promise<Head> {
  const start = directoryStart(tail, source.size), length = source.size - start;
  if (length > MAX_DIRECTORY) throw new BundleError("the directory of the file is too large", "bundle", AGAIN);
  let directory = tail.slice(Math.max(0, tail.length - length));
  if (directory.length < length) {
    directory = new Uint8Array(length);
    await source.read(start, directory, signal);
  }
  const entries = readDirectory(directory);
  const manifest = await readEntry(source, entries, MANIFEST, signal);
  const hash = await readEntry(source, entries, MANIFEST_HASH, signal);
  return makeHead(source.size, validators, directory, manifest, new TextDecoder().decode(hash));
}

async function readEntry(source: Source, entries: ReadonlyMap<string, Entry>, name: string, signal?: AbortSignal): Promise<Uint8Array> {
  const entry = entries.get(name);
  if (!entry) throw new BundleError("member is missing", name, AGAIN);
  const bytes = new Uint8Array(entry.start - entry.header + entry.size);
  await source.read(entry.header, bytes, signal);
  checkLocal(entry, bytes.subarray(0, entry.start - entry.header));
  return bytes.slice(entry.start - entry.header);
}

/** The head as one piece for storage. */
export function packHead(head: Head): Uint8Array {
  const { size, etag, modified, directory } = head;
  const line = JSON.stringify({ size, etag, modified, directory: directory.length });
  return concat([new TextEncoder().encode(`${line}\n`), directory, head.manifestBytes]);
}

/** The head in a piece of storage; null where it is none. */
export async function unpackHead(data: Uint8Array): Promise<Head | null> {
  try {
    const end = data.indexOf(10);
    const { size, etag, modified, directory } = JSON.parse(new TextDecoder().decode(data.subarray(0, end)));
    const middle = end + 1 + directory;
    return await makeHead(size, { etag, modified }, data.slice(end + 1, middle), data.slice(middle), null);
  } catch {
    return null; // damaged or of an older version: as if there were none
  }
}
