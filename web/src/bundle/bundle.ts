/** An open bundle: members checked against the manifest before their first use, weights part by part. */

import type { Tensor } from "../api.js";
import type { Weights } from "../engine.js";
import { BundleError } from "../errors.js";
import { parseJson } from "./check.js";
import type { Manifest, Plan } from "./format.js";
import { AGAIN, PLAN } from "./members.js";
import { openSource, type Opened, type OpenOptions } from "./open.js";
import { Places } from "./places.js";
import { sha256 } from "./sha256.js";
import { fill, type Filled } from "./source.js";
import { readOnly, type Store } from "./store.js";
import { readTensors } from "./tensors.js";
import { parsePlan } from "./verify.js";

const TRIES = 3;
const PARALLEL = 2;

export type Sink = (name: string, offset: number, bytes: Uint8Array) => void | Promise<void>;

export class Bundle implements Weights {
  /** Bytes of weights that are there, of those that `stream` was asked for. */
  onWeights: ((done: number, total: number) => void) | undefined;
  #plan: Promise<Plan> | undefined;
  #store: Store;
  #free: ArrayBuffer[] = [];

  private constructor(
    private readonly opened: Opened,
    readonly counters: { downloaded: number; fromStorage: number; repaired: number },
    private readonly signal: AbortSignal | undefined,
  ) {
    this.#store = opened.store;
  }

  static async open(from: string | URL | Blob, options: OpenOptions = {}): Promise<Bundle> {
    const counters = { downloaded: 0, fromStorage: 0, repaired: 0 };
    return new Bundle(await openSource(from, (n) => (counters.downloaded += n), options), counters, options.signal);
  }

  get manifest(): Manifest {
    return this.opened.head.manifest;
  }

  /** The SHA-256 of the manifest: it fixes every byte of the bundle. */
  get id(): string {
    return this.opened.head.id;
  }

  get size(): number {
    return this.opened.head.size;
  }

  get store(): Store {
    return this.#store;
  }

  /** Where members are kept, for the report. */
  get storage(): Pick<Store, "kind" | "why"> {
    return { kind: this.#store.kind, why: [this.#store.why, this.opened.note].filter(Boolean).join("; ") };
  }

  /** The parsed plan, with the members that it names checked to be there. */
  plan(): Promise<Plan> {
    this.#plan ??= this.#readPlan();
    this.#plan.catch(() => (this.#plan = undefined));
    return this.#plan;
  }

  async #readPlan(): Promise<Plan> {
    const plan = parsePlan(parseJson(await this.bytes(PLAN), PLAN));
    const named = [
      ...plan.constants.flatMap((c) => c.parts.map((p) => p.chunk)), ...plan.golden.map((g) => g.file),
      ...plan.variants.flatMap((v) => [v.source, ...Object.values(v.prebuilt)]),
    ];
    const missing = named.find((name) => !this.manifest.files.has(name));
    if (missing) throw new BundleError("is missing", missing, AGAIN);
    return plan;
  }

  async text(member: string): Promise<string> {
    const bytes = await this.bytes(member);
    try {
      return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    } catch {
      throw new BundleError("is not UTF-8 text", member, AGAIN);
    }
  }

  async tensors(member: string): Promise<Map<string, Tensor>> {
    return readTensors(await this.bytes(member), member);
  }

  bytes(member: string): Promise<Uint8Array> {
    return this.#read(member, (size) => new Uint8Array(size));
  }

  /** A member's bytes, checked: from storage, else from the source, from where it is then kept. */
  async #read(member: string, buffer: (bytes: number) => Uint8Array, filled?: Filled): Promise<Uint8Array> {
    const listed = this.manifest.files.get(member), { signal } = this, { entries } = this.opened.head, { source } = this.opened;
    if (!listed) throw new BundleError("is missing", member, AGAIN);
    const data = buffer(listed.bytes), right = async (): Promise<boolean> => (await sha256(data)) === listed.sha256;
    const blob = await this.#store.get(listed.sha256);
    if (blob) {
      const whole = blob.size === data.length && (await fill(blob, data, signal, filled).then(right, () => false));
      signal?.throwIfAborted();
      if (whole) {
        this.counters.fromStorage += data.length;
        return data;
      }
      await this.#store.remove(listed.sha256);
    }
    let wrong = blob !== null;
    for (let tries = 1; ; tries++) {
      await source.read(entries.get(member)!.start, data, signal, filled);
      if (await right()) break;
      if (tries === TRIES || !source.again()) throw new BundleError("does not match its SHA-256", member, AGAIN);
      wrong = true;
    }
    if (wrong) this.counters.repaired += data.length;
    signal?.throwIfAborted();
    try {
      await this.#store.put(listed.sha256, data);
    } catch (error) {
      // what is stored already stays of use; nothing more is kept
      this.#store = readOnly(this.#store, `${this.#store.kind} takes no more: ${String(error)}`);
    }
    return data;
  }

  async stream(names: ReadonlySet<string>, sink: Sink): Promise<void> {
    const plan = await this.plan(), places = new Places(plan.constants.filter((c) => names.has(c.name)));
    const chunks = places.chunks(), sizes = chunks.map((c) => this.manifest.files.get(c)!.bytes), sum = (values: number[]) => values.reduce((a, b) => a + b, 0);
    const done = sizes.map(() => 0), total = sum(sizes);
    const fetchChunk = async (i: number): Promise<Uint8Array> => {
      const filled = (n: number): void => {
        done[i] = n;
        this.onWeights?.(sum(done), total);
      };
      const data = await this.#read(chunks[i]!, (bytes) => this.#take(bytes), filled);
      filled(sizes[i]!);
      return data;
    };
    const ahead: Promise<Uint8Array>[] = [];
    for (let i = 0; i < chunks.length; i++) {
      while (ahead.length < Math.min(chunks.length, i + PARALLEL)) {
        const coming = fetchChunk(ahead.length);
        coming.catch(() => {}); // whoever comes first in the row tells
        ahead.push(coming);
      }
      const data = await ahead[i]!;
      ahead[i] = Promise.resolve(new Uint8Array(0));
      for (const { name, offset, start, stop } of places.take(chunks[i]!, data)) {
        this.signal?.throwIfAborted();
        await sink(name, offset, data.subarray(start, stop));
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
