/** Where the bytes of a bundle come from: a file of the page, or a server, with ranges or without. */

import { BundleError, NetworkError } from "../errors.js";

/** Bytes of the buffer that are there, absolute; called as they arrive. */
export type Filled = (bytes: number) => void;

export interface Source {
  readonly size: number;
  /** Fill `into` with the bytes from `start` on. */
  read(start: number, into: Uint8Array, signal?: AbortSignal, filled?: Filled): Promise<void>;
  /** What was read was wrong: whether reading again may give something else. */
  again(): boolean;
}

export class BlobSource implements Source {
  constructor(private readonly blob: Blob) {}

  get size(): number {
    return this.blob.size;
  }

  read(start: number, into: Uint8Array, signal?: AbortSignal, filled?: Filled): Promise<void> {
    return fill(this.blob.slice(start, start + into.length), into, signal, filled);
  }

  again(): boolean {
    return false;
  }
}

/** Fill `into` with a Blob, without a second copy of it. */
export async function fill(blob: Blob, into: Uint8Array, signal?: AbortSignal, filled?: Filled): Promise<void> {
  const cursor = { at: 0 };
  await pour(blob.stream(), into, cursor, signal, filled);
  if (cursor.at < into.length) throw new BundleError("ends too early", "bundle");
}

const SCRATCH = 256 * 1024;

/** Pour a stream into a buffer from `cursor.at` on, until the buffer is full or the stream ends. */
async function pour(stream: ReadableStream<Uint8Array>, into: Uint8Array, cursor: { at: number }, signal?: AbortSignal, filled?: Filled): Promise<void> {
  const reader = readerOf(stream);
  try {
    for (let scratch = new Uint8Array(SCRATCH); cursor.at < into.length;) {
      signal?.throwIfAborted();
      const { done, value } = await reader.read(scratch);
      if (done) return;
      const piece = value.subarray(0, into.length - cursor.at);
      into.set(piece, cursor.at);
      cursor.at += piece.length;
      filled?.(cursor.at);
      scratch = new Uint8Array(value.buffer); // the same memory again
    }
  } finally {
    reader.cancel().catch(() => {}); // the rest, if there is one, is not wanted
  }
}

/** A reader that fills the memory it is given, so that pieces are no garbage; where a browser has none, one that does not. */
function readerOf(stream: ReadableStream<Uint8Array>): ReadableStreamBYOBReader {
  try {
    return stream.getReader({ mode: "byob" });
  } catch {
    return stream.getReader() as unknown as ReadableStreamBYOBReader;
  }
}

const TRIES = 6;
const FIRST_WAIT = 200; // milliseconds; doubled by each failure without progress

/**
 * `work` until it succeeds, with pauses that grow. It gives null where a failure is no matter of time, by throwing NetworkError,
 * and says through `progress` that it came further than before.
 */
export async function patiently<T>(url: string, tries: number, signal: AbortSignal | undefined, work: (progress: () => void) => Promise<T>): Promise<T> {
  for (let failures = 1; ; failures++) {
    try {
      return await work(() => (failures = 0));
    } catch (error) {
      signal?.throwIfAborted();
      if (error instanceof NetworkError || error instanceof BundleError) throw error;
      if (failures >= tries) throw new NetworkError(`cannot be read (${String(error)})`, url, KEPT, { cause: error });
      await pause(FIRST_WAIT * 2 ** Math.max(0, failures - 1), signal);
    }
  }
}

async function pause(milliseconds: number, signal?: AbortSignal): Promise<void> {
  await new Promise<void>((resolve) => {
    setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => resolve(), { once: true });
  });
  signal?.throwIfAborted();
}

const KEPT = "Check the address and the connection";

/** An answer with a body; throws NetworkError where asking again makes no sense. */
export async function request(url: string, init: RequestInit, signal?: AbortSignal): Promise<Response> {
  const response = await fetch(url, { cache: "no-store", ...init, ...(signal && { signal }) }), { status } = response;
  if (status < 400) return response;
  if (status >= 500 || status === 429 || status === 408) throw new TypeError(`HTTP ${status}`);
  throw new NetworkError(`the server answered ${status}`, url, "Check the address");
}

export class HttpSource implements Source {
  /** The end of the file, which came along with the answer to the first question. */
  tail: Uint8Array = new Uint8Array(0);
  /** Tries before giving up: one where the server was not there a moment ago. */
  tries = TRIES;

  /** `whole` is the file where the server has no ranges; the browser holds it outside of the JavaScript heap. */
  constructor(
    private readonly url: string, readonly size: number, private readonly etag: string | null,
    private readonly received: (bytes: number) => void, private whole: Blob | null = null,
  ) {}

  again(): boolean {
    this.tail = new Uint8Array(0);
    this.whole = null;
    return true;
  }

  async read(start: number, into: Uint8Array, signal?: AbortSignal, filled?: Filled): Promise<void> {
    const kept = start - (this.size - this.tail.length), cursor = { at: 0 };
    if (kept >= 0 && kept + into.length <= this.tail.length) return into.set(this.tail.subarray(kept, kept + into.length));
    await patiently(this.url, this.tries, signal, async (progress) => {
      if (this.whole) return fill(this.whole.slice(start, start + into.length), into, signal, filled);
      const before = cursor.at;
      try {
        await this.#once(start, into, cursor, signal, filled);
        if (cursor.at < into.length) throw new TypeError("ended too early");
      } finally {
        this.received(cursor.at - before);
        if (cursor.at > before) progress();
      }
    });
  }

  async #once(start: number, into: Uint8Array, cursor: { at: number }, signal?: AbortSignal, filled?: Filled): Promise<void> {
    const response = await request(this.url, { headers: { Range: `bytes=${start + cursor.at}-${start + into.length - 1}` } }, signal);
    const etag = response.headers.get("ETag");
    if (this.etag && etag && etag !== this.etag) {
      response.body?.cancel().catch(() => {});
      throw new NetworkError("changed on the server", this.url, "Load it again");
    }
    if (response.status === 206) return pour(response.body!, into, cursor, signal, filled);
    this.whole = await wholeOf(response, this.received);
    cursor.at = 0;
    await fill(this.whole.slice(start, start + into.length), into, signal, filled);
    cursor.at = into.length;
    this.received(-into.length); // counted with the whole
  }
}

/** The body as a Blob, which browsers keep outside of the JavaScript heap. */
export async function wholeOf(response: Response, received: (bytes: number) => void): Promise<Blob> {
  const blob = await response.blob();
  received(blob.size);
  return blob;
}
