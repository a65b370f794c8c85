/** The first question to a server: is the bundle there, is it the one that is known already, and what is at its end. */

import { NetworkError } from "../errors.js";
import type { Validators } from "./head.js";
import { backOff, passing } from "./source.js";

/** Bytes at the end of a file that are asked for first: directory, manifest, and often the kernels before them. */
const TAIL = 64 * 1024;
const TRIES = 4;

export type Answer =
  | { readonly kind: "same" }
  /** Nobody answered; `why` says what was tried. */
  | { readonly kind: "offline"; readonly why: string }
  | { readonly kind: "tail"; readonly size: number; readonly data: Uint8Array; readonly validators: Validators }
  /** The server has no ranges: the body is the whole file. */
  | { readonly kind: "whole"; readonly body: ReadableStream<Uint8Array>; readonly validators: Validators };

/** Ask; where `known` is the version in storage, a failure is an answer, too. */
export async function ask(url: string, known: (Validators & { readonly size: number }) | null, signal?: AbortSignal): Promise<Answer> {
  for (let failures = 1; ; failures++) {
    let why: string;
    try {
      const response = await question(url, known, signal);
      if (!(response instanceof Response)) return response;
      if (!passing(response.status)) throw new NetworkError(`the server answered ${response.status}`, url, "Check the address.");
      why = `HTTP ${response.status}`;
    } catch (error) {
      signal?.throwIfAborted();
      if (error instanceof NetworkError) throw error;
      why = String(error);
    }
    if (known) return { kind: "offline", why };
    if (failures >= TRIES) throw new NetworkError(`cannot be read (${why})`, url, "Check the address and the connection.");
    await backOff(failures, signal);
  }
}

async function question(url: string, known: (Validators & { readonly size: number }) | null, signal?: AbortSignal): Promise<Answer | Response> {
  const options: RequestInit = { cache: "no-store", ...(signal && { signal }) };
  // headers beyond a plain range would make a cross-origin request one that the server has to allow beforehand
  if (new URL(url).origin !== globalThis.location?.origin) return stranger(url, known, options);
  const headers: Record<string, string> = { Range: `bytes=-${TAIL}` };
  if (known?.etag) headers["If-None-Match"] = known.etag;
  else if (known?.modified) headers["If-Modified-Since"] = known.modified;
  const response = await fetch(url, { ...options, headers });
  if (response.status === 304) return { kind: "same" };
  const total = /\/(\d+)$/.exec(response.headers.get("Content-Range") ?? "")?.[1];
  return answered(response, total === undefined ? null : Number(total));
}

async function stranger(url: string, known: (Validators & { readonly size: number }) | null, options: RequestInit): Promise<Answer | Response> {
  const head = await fetch(url, { ...options, method: "HEAD" });
  const size = Number(head.headers.get("Content-Length") ?? 0), found = validators(head);
  if (!head.ok || size === 0) return answered(await fetch(url, options), null);
  const same = known?.size === size && (found.etag ? found.etag === known.etag : found.modified !== null && found.modified === known.modified);
  if (same) return { kind: "same" };
  const headers = { Range: `bytes=${Math.max(0, size - TAIL)}-${size - 1}` };
  return answered(await fetch(url, { ...options, headers }), size);
}

function validators(response: Response): Validators {
  return { etag: response.headers.get("ETag"), modified: response.headers.get("Last-Modified") };
}

async function answered(response: Response, size: number | null): Promise<Answer | Response> {
  if (!response.ok || !response.body) return response;
  if (response.status !== 206 || size === null) return { kind: "whole", body: response.body, validators: validators(response) };
  return { kind: "tail", size, data: new Uint8Array(await response.arrayBuffer()), validators: validators(response) };
}
