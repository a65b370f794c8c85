/** From an address or a file to a head and what its members are read from; the network and storage as they are. */

import { NetworkError } from "../errors.js";
import { packHead, readHead, unpackHead, type Head, type Validators } from "./head.js";
import { sha256 } from "./sha256.js";
import { BlobSource, HttpSource, patiently, request, wholeOf, type Source } from "./source.js";
import { nowhere, openStore, type Store } from "./store.js";

export interface OpenOptions {
  readonly cache?: "auto" | "opfs" | "cache" | "none";
  readonly signal?: AbortSignal | undefined;
}

export interface Opened {
  readonly head: Head;
  readonly source: Source;
  readonly store: Store;
  /** "" or what is special about where this came from. */
  readonly note: string;
}

const HEAD = "head-";
/** Bytes at the end of a file that are asked for first: directory, manifest, and often the kernels before them. */
const TAIL = 64 * 1024;
const TRIES = 4;

export async function openSource(from: string | URL | Blob, received: (bytes: number) => void, { signal, cache = "auto" }: OpenOptions): Promise<Opened> {
  signal?.throwIfAborted();
  if (from instanceof Blob) {
    const head = await headOf(new BlobSource(from), { size: from.size, etag: null, modified: null }, signal);
    return { head, source: new BlobSource(from), store: nowhere("a file of the page"), note: "" };
  }
  const url = new URL(from, globalThis.document?.baseURI ?? globalThis.location?.href).href, store = await openStore(cache);
  const key = HEAD + (await sha256(new TextEncoder().encode(url))), known = await unpackHead(await store.get(key));
  try {
    return await patiently(url, known ? 1 : TRIES, signal, async () => {
      const opened = await ask(url, known, received, signal);
      if (opened.head !== known) await remember(store, key, opened.head, known);
      return { ...opened, store };
    });
  } catch (error) {
    // no server, or one that is down: what is stored will do
    if (!known || !(error instanceof NetworkError && error.cause)) throw error;
    const source = new HttpSource(url, known.size, known.etag, received);
    source.tries = 1;
    return { head: known, source, store, note: `offline: ${error.message}` };
  }
}

/** Is the bundle there, is it the one that is known already, and what is at its end. */
async function ask(url: string, known: Head | null, received: (bytes: number) => void, signal?: AbortSignal): Promise<Omit<Opened, "store">> {
  const [response, size] = await question(url, known, signal), { headers } = response;
  const validators = { size, etag: headers.get("ETag"), modified: headers.get("Last-Modified") };
  const http = (size: number, whole: Blob | null = null): HttpSource => new HttpSource(url, size, validators.etag, received, whole);
  if (response.status === 304 || (known && sameVersion(known, validators))) {
    response.body?.cancel().catch(() => {});
    return { head: known!, source: new HttpSource(url, known!.size, known!.etag, received), note: "" };
  }
  if (response.status === 206) {
    const source = http(size);
    source.tail = new Uint8Array(await response.arrayBuffer());
    received(source.tail.length);
    return { head: await readHead(source, validators, source.tail, signal), source, note: "" };
  }
  const whole = await wholeOf(response, received), source = http(whole.size, whole);
  return { head: await headOf(source, { ...validators, size: whole.size }, signal), source, note: "the server has no ranges" };
}

async function headOf(source: Source, validators: Validators, signal?: AbortSignal): Promise<Head> {
  const tail = new Uint8Array(Math.min(source.size, TAIL));
  await source.read(source.size - tail.length, tail, signal);
  return readHead(source, validators, tail, signal);
}

/** The answer to the first question, and the bytes of the file. */
async function question(url: string, known: Validators | null, signal?: AbortSignal): Promise<[Response, number]> {
  const length = (r: Response): number => Number(/\/(\d+)$/.exec(r.headers.get("Content-Range") ?? "")?.[1] ?? r.headers.get("Content-Length"));
  let range = `-${TAIL}`, size = 0, conditions = {};
  if (new URL(url).origin === globalThis.location?.origin) {
    if (known) conditions = known.etag ? { "If-None-Match": known.etag } : { "If-Modified-Since": known.modified ?? "" };
  } else {
    // headers beyond a plain range would make a request to another origin one that its server has to allow beforehand
    size = length(await request(url, { method: "HEAD" }, signal));
    range = `${Math.max(0, size - TAIL)}-`;
  }
  const response = await request(url, { headers: { Range: `bytes=${range}`, ...conditions } }, signal);
  return [response, size || length(response)];
}

function sameVersion(a: Validators, b: Validators): boolean {
  return a.size === b.size && (b.etag !== null ? a.etag === b.etag : b.modified !== null && a.modified === b.modified);
}

/** Keep the head for the next time, and let go of members that only the version before it had. */
async function remember(store: Store, key: string, head: Head, before: Head | null): Promise<void> {
  try {
    await store.put(key, packHead(head));
    if (!before || before.id === head.id) return;
    const needed = new Set<string>();
    for (const other of (await store.keys()).filter((k) => k.startsWith(HEAD))) {
      for (const { sha256: hash } of (await unpackHead(await store.get(other)))?.manifest.files.values() ?? []) needed.add(hash);
    }
    for (const { sha256: hash } of before.manifest.files.values()) if (!needed.has(hash)) await store.remove(hash);
  } catch {
    // storage that fails is as good as none: members say so when they are put away
  }
}
