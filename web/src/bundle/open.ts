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
    return { head, source: new BlobSource(from), store: nowhere("the bundle is a file that the page has"), note: "" };
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
  const response = await question(url, known, signal), validators = await validatorsOf(response);
  const http = (v: Validators, whole: Blob | null = null): HttpSource => new HttpSource(url, v.size, v.etag, received, whole);
  if (!response.body || response.status === 304 || (known && sameVersion(known, validators))) {
    response.body?.cancel().catch(() => {});
    return { head: known!, source: http(known!), note: "" };
  }
  if (response.status === 206) {
    const source = http(validators), tail = new Uint8Array(await response.arrayBuffer());
    received(tail.length);
    source.tail = tail;
    return { head: await readHead(source, validators, tail, signal), source, note: "" };
  }
  const whole = await wholeOf(response, received), found = { ...validators, size: whole.size }, source = http(found, whole);
  return { head: await headOf(source, found, signal), source, note: "the server has no ranges: it was read as a whole" };
}

async function headOf(source: Source, validators: Validators, signal?: AbortSignal): Promise<Head> {
  const tail = new Uint8Array(Math.min(source.size, TAIL));
  await source.read(source.size - tail.length, tail, signal);
  return readHead(source, validators, tail, signal);
}

async function question(url: string, known: Validators | null, signal?: AbortSignal): Promise<Response> {
  const headers: Record<string, string> = { Range: `bytes=-${TAIL}` };
  if (new URL(url).origin === globalThis.location?.origin) {
    if (known?.etag) headers["If-None-Match"] = known.etag;
    else if (known?.modified) headers["If-Modified-Since"] = known.modified;
    return request(url, { headers }, signal);
  }
  // headers beyond a plain range would make a request to another origin one that its server has to allow beforehand
  const head = await request(url, { method: "HEAD" }, signal), size = Number(head.headers.get("Content-Length"));
  if (!size) return request(url, {}, signal);
  const response = await request(url, { headers: { Range: `bytes=${Math.max(0, size - TAIL)}-${size - 1}` } }, signal);
  sizes.set(response, size);
  return response;
}

/** Sizes of files whose server does not show a range's place to other origins. */
const sizes = new WeakMap<Response, number>();

async function validatorsOf(response: Response): Promise<Validators> {
  const { headers } = response, total = /\/(\d+)$/.exec(headers.get("Content-Range") ?? "")?.[1];
  return { size: Number(total ?? sizes.get(response) ?? headers.get("Content-Length")), etag: headers.get("ETag"), modified: headers.get("Last-Modified") };
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
