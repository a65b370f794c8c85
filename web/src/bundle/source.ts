/** Where the bytes of a bundle come from: a Blob, or a server, with ranges or without. */

import { BundleError, NetworkError } from "../errors.js";

/** Bytes of the buffer that are there, absolute; called as they arrive. */
export type Filled = (bytes: number) => void;

export interface Source {
  readonly size: number;
  /** Whether reading again may give other bytes. */
  readonly remote: boolean;
  /** Fill `into` with the bytes from `start` on. */
  read(start: number, into: Uint8Array, signal?: AbortSignal, filled?: Filled): Promise<void>;
}

export class BlobSource implements Source {
  readonly remote = false;
  constructor(private readonly blob: Blob) {}

  get size(): number {
    return this.blob.size;
  }

  async read(start: number, into: Uint8Array, signal?: AbortSignal, filled?: Filled): Promise<void> {
    await fill(this.blob.slice(start, start + into.length), into, signal, filled);
  }
}

/** Fill `into` with a Blob, without a second copy of it. */
export async function fill(blob: Blob, into: Uint8Array, signal?: AbortSignal, filled?: Filled): Promise<void> {
  const cursor = { at: 0 };
  await pour(blob.stream(), 0, into, cursor, signal, filled);
  if (cursor.at < into.length) throw new BundleError("the file ends too early, or it was changed while it was read", "bundle");
}

/** Pour a stream into a buffer from `cursor.at` on, after skipping bytes; ends when the buffer is full or the stream ends. */
export async function pour(
  stream: ReadableStream<Uint8Array>, skip: number, into: Uint8Array, cursor: { at: number }, signal?: AbortSignal, filled?: Filled,
): Promise<void> {
  const reader = stream.getReader();
  try {
    while (cursor.at < into.length) {
      signal?.throwIfAborted();
      const { done, value } = await reader.read();
      if (done) return;
      const from = Math.min(skip, value.length);
      skip -= from;
      const piece = value.subarray(from, from + into.length - cursor.at);
      into.set(piece, cursor.at);
      cursor.at += piece.length;
      filled?.(cursor.at);
    }
  } finally {
    reader.cancel().catch(() => {}); // the rest, if there is one, is not wanted
  }
}

const TRIES = 6;
const FIRST_WAIT = 200; // milliseconds; doubled by each failure without progress

/** Wait before the next try, longer each time; rejects when the signal aborts. */
export async function backOff(failures: number, signal?: AbortSignal): Promise<void> {
  signal?.throwIfAborted();
  await new Promise<void>((resolve, reject) => {
    const stop = (): void => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, FIRST_WAIT * 2 ** (failures - 1));
    signal?.addEventListener("abort", stop, { once: true });
  });
}

/** Whether a request that failed so may succeed later. */
export function passing(status: number): boolean {
  return status >= 500 || status === 429 || status === 408;
}

export const KEPT = "What was received is kept where the browser offers storage; load it again to go on from there.";

export class HttpSource implements Source {
  readonly remote = true;
  /** Regions that came along with the answer to another question. */
  held: { readonly start: number; readonly data: Uint8Array }[] = [];

  constructor(
    private readonly url: string, readonly size: number, private readonly etag: string | null,
    /** False where the server was not there a moment ago: then one try is enough. */
    private readonly patient: boolean, private readonly received: (bytes: number) => void,
  ) {}

  async read(start: number, into: Uint8Array, signal?: AbortSignal, filled?: Filled): Promise<void> {
    const held = this.held.find((h) => h.start <= start && h.start + h.data.length >= start + into.length);
    if (held) return into.set(held.data.subarray(start - held.start, start - held.start + into.length));
    const cursor = { at: 0 };
    for (let failures = 0; cursor.at < into.length;) {
      const before = cursor.at;
      try {
        await this.#once(start, into, cursor, signal, filled);
        if (cursor.at < into.length) throw new TypeError("the answer ended too early");
      } catch (error) {
        signal?.throwIfAborted();
        if (error instanceof NetworkError) throw error;
        failures = cursor.at > before ? 1 : failures + 1;
        if (failures >= TRIES || !this.patient) throw new NetworkError(`cannot be read (${String(error)})`, this.url, KEPT, { cause: error });
        await backOff(failures, signal);
      } finally {
        this.received(cursor.at - before);
      }
    }
  }

  async #once(start: number, into: Uint8Array, cursor: { at: number }, signal?: AbortSignal, filled?: Filled): Promise<void> {
    const headers = { Range: `bytes=${start + cursor.at}-${start + into.length - 1}` };
    const response = await fetch(this.url, { headers, cache: "no-store", ...(signal && { signal }) });
    if (!response.ok || !response.body) {
      if (passing(response.status)) throw new TypeError(`HTTP ${response.status}`);
      throw new NetworkError(`the server answered ${response.status}`, this.url, KEPT);
    }
    const etag = response.headers.get("ETag");
    if (this.etag && etag && etag !== this.etag) {
      response.body.cancel().catch(() => {});
      throw new NetworkError("the file on the server changed while it was read", this.url, "Load it again.");
    }
    // a server that ignores ranges sends everything: what lies before is skipped
    await pour(response.body, response.status === 206 ? 0 : start + cursor.at, into, cursor, signal, filled);
  }
}
