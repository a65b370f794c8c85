/** From an address or a file to a head and what its members are read from; the network and storage as they are. */

import { BundleError, NetworkError } from "../errors.js";
import { ask } from "./ask.js";
import { packHead, readHead, unpackHead, type Head } from "./head.js";
import { sha256 } from "./sha256.js";
import { backOff, BlobSource, HttpSource, type Source } from "./source.js";
import { nowhere, openStore, type Store } from "./store.js";
import { readWhole } from "./whole.js";

export interface OpenOptions {
  readonly cache?: "auto" | "opfs" | "cache" | "none";
  readonly signal?: AbortSignal | undefined;
}

export interface Opened {
  readonly head: Head;
  readonly source: Source;
  readonly store: Store;
  /** Members of a server without ranges where there is no storage: outside of the JavaScript heap. */
  readonly kept: Map<string, Blob>;
  /** "" or what is special about where this came from. */
  readonly note: string;
}

const HEAD = "head-";
const TRIES = 4;
const BLOB_TAIL = 64 * 1024;

export async function openSource(from: string | URL | Blob, received: (bytes: number) => void, options: OpenOptions): Promise<Opened> {
  options.signal?.throwIfAborted();
  if (from instanceof Blob) return openBlob(from, options.signal);
  const url = new URL(from, globalThis.document?.baseURI ?? globalThis.location?.href).href;
  const store = await openStore(options.cache ?? "auto");
  const known = await stored(store, url);
  for (let failures = 1; ; failures++) {
    try {
      return await openUrl(url, store, known, received, options.signal);
    } catch (error) {
      // only a server without ranges makes everything start anew
      if (!(error instanceof Cut) || failures >= TRIES) throw error instanceof Cut ? error.cause : error;
      await backOff(failures, options.signal);
    }
  }
}

class Cut extends Error {}

async function openBlob(blob: Blob, signal?: AbortSignal): Promise<Opened> {
  const source = new BlobSource(blob), tail = new Uint8Array(Math.min(blob.size, BLOB_TAIL));
  await source.read(blob.size - tail.length, tail, signal);
  const head = await readHead(source, { etag: null, modified: null }, tail, signal);
  return { head, source, store: nowhere("the bundle is a file that the page has"), kept: new Map(), note: "" };
}

async function openUrl(url: string, store: Store, known: Head | null, received: (bytes: number) => void, signal?: AbortSignal): Promise<Opened> {
  const answer = await ask(url, known, signal), kept = new Map<string, Blob>();
  const http = (head: Pick<Head, "size" | "etag">, patient = true): HttpSource => new HttpSource(url, head.size, head.etag, patient, received);
  if (answer.kind === "same") return { head: known!, source: http(known!), store, kept, note: "" };
  if (answer.kind === "offline") return { head: known!, source: http(known!, false), store, kept, note: `offline (${answer.why})` };
  const { validators } = answer;
  if (answer.kind === "tail") {
    received(answer.data.length);
    const source = http({ size: answer.size, etag: validators.etag });
    source.held.push({ start: answer.size - answer.data.length, data: answer.data });
    const head = await readHead(source, validators, answer.data, signal);
    await remember(store, url, head, known);
    return { head, source, store, kept, note: "" };
  }
  const put = async (hash: string, data: Uint8Array): Promise<void> => {
    const saved = store.kind !== "none" && (await store.put(hash, data).then(() => true, () => false));
    if (!saved) kept.set(hash, new Blob([data as BlobPart]));
  };
  try {
    const head = await readWhole(answer.body, validators, put, received, signal);
    await remember(store, url, head, known);
    return { head, source: http(head), store, kept, note: "the server has no ranges: read as a whole" };
  } catch (error) {
    throw error instanceof NetworkError ? new Cut("", { cause: new NetworkError(error.message, url) }) : error;
  }
}

async function stored(store: Store, url: string): Promise<Head | null> {
  const blob = await store.get(HEAD + (await sha256(new TextEncoder().encode(url))));
  return blob && unpackHead(new Uint8Array(await blob.arrayBuffer()));
}

/** Keep the head for the next time, and let go of members that only the version before it had. */
async function remember(store: Store, url: string, head: Head, before: Head | null): Promise<void> {
  try {
    await store.put(HEAD + (await sha256(new TextEncoder().encode(url))), packHead(head));
    if (!before || before.id === head.id) return;
    const needed = new Set<string>();
    for (const key of await store.keys()) {
      const other = key.startsWith(HEAD) ? await store.get(key) : null;
      const parsed = other && (await unpackHead(new Uint8Array(await other.arrayBuffer())));
      for (const { sha256: hash } of parsed?.manifest.files.values() ?? []) needed.add(hash);
    }
    for (const { sha256: hash } of before.manifest.files.values()) if (!needed.has(hash)) await store.remove(hash);
  } catch (error) {
    if (error instanceof BundleError) throw error;
    // storage that fails is as good as none: members say so when they are put away
  }
}
