/** An open bundle: members checked against the manifest before their first use, weights part by part. */

import type { Tensor } from "../api.js";
import type { Weights } from "../engine.js";
import { BundleError } from "../errors.js";
import { alignUp } from "./dtypes.js";
import type { Manifest, Plan } from "./format.js";
import type { Head } from "./head.js";
import { parseJson } from "./json.js";
import { AGAIN, PLAN } from "./members.js";
import { openSource, type OpenOptions, type Opened } from "./open.js";
import { sha256 } from "./sha256.js";
import { fill, HttpSource, type Filled, type Source } from "./source.js";
import { readOnly, type Store } from "./store.js";
import { Places } from "./places.js";
import { readTensors } from "./tensors.js";
import { parsePlan } from "./verify.js";
import { checkLocal } from "./zip.js";

const ALIGN = 64;
const TRIES = 3;
const PARALLEL = 2;
/** Bytes besides the plan that are worth fetching with it, to save requests. */
const TOGETHER = 512 * 1024;

export type Sink = (name: string, offset: number, bytes: Uint8Array) => void | Promise<void>;

export class Bundle implements Weights {
  readonly counters = { downloaded: 0, fromStorage: 0, repaired: 0 };
  /** Honoured while the bundle is being loaded; nothing is left half-done when it aborts. */
  signal: AbortSignal | undefined;
  /** Bytes of weights that are there, of those that `stream` was asked for. */
  onWeights: ((done: number, total: number) => void) | undefined;
  #head!: Head;
  #source!: Source;
  #store!: Store;
  #kept!: Map<string, Blob>;
  #note = "";
  #plan: Promise<Plan> | undefined;
  #free: ArrayBuffer[] = [];

  static async open(from: string | URL | Blob, options: OpenOptions = {}): Promise<Bundle> {
    const bundle = new Bundle();
    bundle.signal = options.signal;
    const opened: Opened = await openSource(from, (n) => { bundle.counters.downloaded += n; }, options);
    ({ head: bundle.#head, source: bundle.#source, store: bundle.#store, kept: bundle.#kept, note: bundle.#note } = opened);
    return bundle;
  }

  get manifest(): Manifest {
    return this.#head.manifest;
  }

  /** The SHA-256 of the manifest: it fixes every byte of the bundle. */
  get id(): string {
    return this.#head.id;
  }

  get size(): number {
    return this.#head.size;
  }

  /** Where members are kept, for the report. */
  get storage(): { readonly kind: "opfs" | "cache" | "none"; readonly why: string } {
    return { kind: this.#store.kind, why: [this.#store.why, this.#note].filter(Boolean).join("; ") };
  }

  get store(): Store {
    return this.#store;
  }

  /** The parsed plan, with the members that it names checked to be there. */
  plan(): Promise<Plan> {
    this.#plan ??= this.#readPlan();
    this.#plan.catch(() => { this.#plan = undefined; });
    return this.#plan;
  }

  async #readPlan(): Promise<Plan> {
    await this.#together();
    const plan = parsePlan(parseJson(await this.bytes(PLAN), PLAN));
    const named = [
      ...plan.constants.flatMap((c) => c.parts.map((p) => p.chunk)), ...plan.golden.map((g) => g.file),
      ...plan.variants.flatMap((v) => [v.source, ...Object.values(v.prebuilt)]),
    ];
    for (const name of named) {
      if (!this.manifest.files.has(name)) throw new BundleError("the plan names a member that is not there", name, AGAIN);
    }
    return plan;
  }

  /** What lies between the plan and the end of the file comes with the plan where it is small: mostly kernels. */
  async #together(): Promise<void> {
    const source = this.#source, entry = this.#head.entries.get(PLAN)!;
    if (!(source instanceof HttpSource) || !source.held[0] || (await this.#stored(PLAN))) return;
    const end = source.held[0].start, span = end - entry.header;
    if (span <= 0 || span > entry.size + TOGETHER) return;
    const data = new Uint8Array(span);
    await source.read(entry.header, data, this.signal);
    const tail = source.held[0].data, whole = new Uint8Array(span + tail.length);
    whole.set(data);
    whole.set(tail, span);
    source.held = [{ start: entry.header, data: whole }];
  }

  /** Let go of bytes that were held to save requests. */
  settle(): void {
    if (this.#source instanceof HttpSource) this.#source.held = [];
    this.#free = [];
    this.signal = undefined;
  }

  async text(member: string): Promise<string> {
    const bytes = await this.bytes(member);
    try {
      return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    } catch {
      throw new BundleError("member is not UTF-8 text", member, AGAIN);
    }
  }

  async tensors(member: string): Promise<Map<string, Tensor>> {
    return readTensors(await this.bytes(member), member);
  }

  async bytes(member: string): Promise<Uint8Array> {
    return this.#read(member, (size) => new Uint8Array(size));
  }

  async #stored(member: string): Promise<Blob | null> {
    const listed = this.manifest.files.get(member);
    if (!listed) throw new BundleError("member is missing", member, AGAIN);
    return this.#kept.get(listed.sha256) ?? this.#store.get(listed.sha256);
  }

  /** A member's bytes, checked: from storage, else from the source, from where it is then kept. */
  async #read(member: string, buffer: (bytes: number) => Uint8Array, filled?: Filled): Promise<Uint8Array> {
    const blob = await this.#stored(member), { sha256: hash, bytes } = this.manifest.files.get(member)!;
    const entry = this.#head.entries.get(member)!, header = entry.start - entry.header;
    // the header lies in front of the data so that one request brings both, and the data is aligned
    const front = alignUp(header, ALIGN), whole = buffer(front + bytes), data = whole.subarray(front, front + bytes);
    if (blob) {
      const right = blob.size === bytes && (await fill(blob, data, this.signal, filled).then(() => sha256(data), () => "")) === hash;
      this.signal?.throwIfAborted();
      if (right) {
        this.counters.fromStorage += bytes;
        return data;
      }
      await this.#store.remove(hash);
    }
    let wrong = blob !== null;
    for (let tries = 1; ; tries++) {
      await this.#source.read(entry.header, whole.subarray(front - header, front + bytes), this.signal, (n) => filled?.(Math.max(0, n - header)));
      if ((await sha256(data)) === hash) break;
      if (tries === TRIES || !this.#source.remote) throw new BundleError("member does not match its SHA-256", member, AGAIN);
      this.#forget(entry.header);
      wrong = true;
    }
    checkLocal(entry, whole.subarray(front - header, front));
    if (wrong) this.counters.repaired += bytes;
    await this.#keep(hash, data);
    return data;
  }

  /** Held bytes that were wrong are not asked again. */
  #forget(at: number): void {
    if (this.#source instanceof HttpSource) this.#source.held = this.#source.held.filter((h) => at < h.start || at >= h.start + h.data.length);
  }

  async #keep(hash: string, data: Uint8Array): Promise<void> {
    this.signal?.throwIfAborted();
    if (this.#store.kind === "none") return;
    try {
      await this.#store.put(hash, data);
    } catch (error) {
      // what is stored already stays of use; nothing more is kept
      this.#store = readOnly(this.#store, `${this.#store.kind} takes no more: ${String(error)}`);
    }
  }

  async stream(names: ReadonlySet<string>, sink: Sink): Promise<void> {
    const plan = await this.plan();
    const wanted = plan.constants.filter((c) => names.has(c.name));
    if (wanted.length < names.size) throw new BundleError("the plan lacks a constant that was asked for", PLAN, AGAIN);
    const places = new Places(wanted);
    const chunks = places.chunks(), sizes = chunks.map((c) => this.manifest.files.get(c)!.bytes), total = sizes.reduce((a, b) => a + b, 0);
    const done = sizes.map(() => 0);
    const fetchChunk = async (i: number): Promise<Uint8Array> => {
      const filled = (n: number): void => {
        done[i] = n;
        this.onWeights?.(done.reduce((a, b) => a + b, 0), total);
      };
      const data = await this.#read(chunks[i]!, (bytes) => this.#take(bytes), filled);
      filled(sizes[i]!);
      return data;
    };
    const ahead: Promise<Uint8Array>[] = [];
    for (let i = 0, next = 0; i < chunks.length; i++) {
      for (; next < Math.min(chunks.length, i + PARALLEL); next++) {
        const coming = fetchChunk(next);
        coming.catch(() => {}); // whoever comes first in the row tells
        ahead.push(coming);
      }
      const data = await ahead.shift()!;
      for (const { constant, offset, start, stop } of places.take(chunks[i]!, data)) {
        this.signal?.throwIfAborted();
        await sink(constant.name, offset, data.subarray(start, stop));
      }
      this.#free.push(data.buffer as ArrayBuffer);
    }
    places.finish();
    this.#free = [];
  }

  /** A buffer for a chunk, taken again after its chunk was passed on: collecting large buffers takes its time. */
  #take(bytes: number): Uint8Array {
    const at = this.#free.findIndex((b) => b.byteLength >= bytes);
    return at < 0 ? new Uint8Array(bytes) : new Uint8Array(this.#free.splice(at, 1)[0]!, 0, bytes);
  }
}
