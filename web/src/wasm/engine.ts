/** The WebAssembly device: a bundle's C, compiled when it was packed, in a worker of its own, so that a run never blocks a page. */

import type { Plan, Variant } from "../bundle/format.js";
import { alignUp } from "../bundle/dtypes.js";
import { leastDims, region, type Region } from "../bundle/layout.js";
import type { DimValues, Engine, Memory, OpenEngine, OpenOptions } from "../engine.js";
import { BundleError, DeviceError, DeviceLost, OutOfMemory } from "../errors.js";
import { flatten } from "../runtime/steps.js";
import { Heap } from "./heap.js";
import { Link } from "./link.js";
import type { Op } from "./machine.js";
import { WasmMemory } from "./memory.js";
import { fillWeights } from "./weights.js";

const ABI = 1;
const ONE = "wasm32-simd", MANY = "wasm32-simd-threads";
const AUTO_THREADS = 4;
const STACK = 512 << 10; // of a thread; the first one has its own in the library
const INITIAL_PAGES = 256; // of shared memory, as the library is linked

/** A function that makes a vector: browsers without SIMD refuse it. */
const VECTOR = Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 11, 1, 9, 0, 67, 0, 0, 0, 0, 253, 19, 11);

/** Why this browser cannot run a WebAssembly variant, in words; "" where it can. */
export async function wasmLacks(): Promise<string> {
  if (typeof WebAssembly === "undefined") return "this browser has no WebAssembly";
  return WebAssembly.validate(VECTOR) ? "" : "this browser has no WebAssembly SIMD";
}

export const openWasm: OpenEngine = async (options) => {
  const engine = new WasmEngine(options);
  await engine.open();
  return engine;
};

export class WasmEngine implements Engine {
  readonly kind = "wasm";
  readonly plan: Plan;
  readonly variant: Variant;
  readonly packed: Region;
  threads = 1;
  adapter = "WebAssembly SIMD";
  epoch = 0;
  heap!: Heap;
  onLost: ((why: string) => void) | null = null;
  readonly #choices: Uint8Array;
  readonly #pointers: Uint32Array;
  #module: WebAssembly.Module | null = null;
  #links: Link[] = [];
  #packedAt = 0;
  #kept = 0;
  #control = 0;
  #pool = 0;
  #lost = "";
  #closed = false;

  constructor(readonly options: OpenOptions) {
    this.plan = options.plan;
    this.variant = options.variant;
    this.packed = region(this.variant.packed_slots, new Map(), this.variant.id);
    this.#choices = new Uint8Array(flatten(this.variant.steps).length);
    this.#pointers = new Uint32Array(this.plan.constants.length);
  }

  async open(): Promise<void> {
    const { signal } = this.options;
    this.#decideThreads();
    this.#lost = "";
    try {
      this.#module ??= await this.#compile();
      await this.#start(this.#module);
      signal?.throwIfAborted();
      this.#kept = await fillWeights(this);
      signal?.throwIfAborted();
    } catch (error) {
      this.#end("it cannot be set up");
      throw error;
    }
    this.epoch++;
  }

  #decideThreads(): void {
    const { threads: asked } = this.options, able = globalThis.crossOriginIsolated === true && typeof Worker !== "undefined" && MANY in this.variant.prebuilt;
    const auto = Math.min(AUTO_THREADS, (globalThis.navigator?.hardwareConcurrency ?? 1) >> 1);
    this.threads = able ? Math.max(1, asked || auto) : 1;
    const why = able || asked <= 1 ? "" : " (more: needs a cross-origin isolated page)";
    this.adapter = `WebAssembly SIMD, ${this.threads} thread${this.threads > 1 ? "s" : ""}${why}`;
  }

  async #compile(): Promise<WebAssembly.Module> {
    const member = this.variant.prebuilt[this.threads > 1 ? MANY : ONE];
    if (!member) throw new DeviceError("has no WebAssembly library", this.variant.id, "Pack it with --target browser");
    const bytes = await this.options.weights.bytes(member);
    try {
      return await WebAssembly.compile(bytes as Uint8Array<ArrayBuffer>);
    } catch (error) {
      throw new DeviceError(`the browser refused it (${String(error)})`, member, "The page's policy must allow 'wasm-unsafe-eval'");
    }
  }

  async #start(module: WebAssembly.Module): Promise<void> {
    const { plan, packed } = this, memory = this.threads > 1 ? sharedMemory(this.variant.id) : null;
    const link = this.#link(), [abi, base] = (await link.ask({ open: { module, memory, stack: 0 } })) as [number, number];
    if (abi !== ABI) throw new BundleError(`the library has version ${abi}, not ${ABI}`, this.variant.id);
    const heap = (this.heap = new Heap(base, this.variant.id));
    this.#pointers.fill(0);
    this.#control = heap.take(this.#layout.bytes);
    this.#packedAt = heap.take(packed.total);
    const stacks = Array.from({ length: this.threads - 1 }, () => alignUp(heap.take(STACK), 16) + STACK);
    await link.ops([["grow", heap.end]]);
    const others = stacks.map(() => this.#link());
    await Promise.all(others.map((other, k) => other.ask({ open: { module, memory, stack: stacks[k]! } })));
    this.#pool = others.length > 0 ? ((await link.ops([["pool", this.threads]]))[0] as number) : 0;
    for (const other of others) other.join(this.#pool);
    const least = leastDims(plan);
    await this.check(least, region(this.variant.slots, least, this.variant.id).total);
  }

  #link(): Link {
    const link = new Link(this.adapter, this.threads === 1);
    link.onGone = (why) => this.#gone(link, why);
    this.#links.push(link);
    return link;
  }

  #gone(link: Link, why: string): void {
    if (!this.#links.includes(link)) return;
    this.#end(why);
    if (this.epoch > 0 && !this.#closed) this.onLost?.(why);
  }

  #end(why: string): void {
    const links = this.#links;
    this.#links = [];
    this.#lost = why;
    for (const link of links) link.close(why);
  }

  /** Raises DeviceLost when it is gone. */
  alive(): void {
    if (this.#lost) throw new DeviceLost(`WebAssembly ended (${this.#lost})`, this.adapter);
  }

  // ------------------------------------------------------------ calls

  /** `sizes`: the dimension values of a run. */
  async ask(ops: readonly Op[], sizes?: string): Promise<readonly (number | ArrayBuffer)[]> {
    this.alive();
    return this.#links[0]!.ops(ops, sizes);
  }

  /** Where the parts of the block lie by which the library is called. */
  get #layout(): { readonly choices: number; readonly pointers: number; readonly sizes: number; readonly bytes: number } {
    const choices = 64 + 8 * this.plan.dims.length, pointers = alignUp(choices + this.#choices.length, 8), sizes = alignUp(pointers + 4 * this.#pointers.length, 8);
    return { choices, pointers, sizes, bytes: sizes + 16 };
  }

  #block(dims: DimValues, call: readonly number[]): Op {
    const { choices, pointers, sizes } = this.#layout, view = new DataView(new ArrayBuffer(sizes));
    call.forEach((value, k) => view.setInt32(4 * k, value, true));
    [...dims.values()].forEach((value, k) => view.setBigInt64(64 + 8 * k, BigInt(value), true));
    const bytes = new Uint8Array(view.buffer);
    bytes.set(this.#choices, choices);
    bytes.set(new Uint8Array(this.#pointers.buffer), pointers);
    return ["write", this.#control, bytes];
  }

  #call(dims: DimValues, arena: number, phase: number, first: number, last: number): Op[] {
    const at = this.#control, { choices, pointers } = this.#layout;
    const call = [at + 64, arena, this.#packedAt, at + pointers, this.#pool, phase === 0 ? 0 : at + choices, phase, first, last];
    return [this.#block(dims, call), ["run", at]];
  }

  steps(dims: DimValues, arena: number, first: number, last: number): Op[] {
    return this.#call(dims, arena, 1, first, last);
  }

  prologue(first: number, last: number, arena: number): Op[] {
    return this.#call(leastDims(this.plan), arena, 0, first, last);
  }

  /** An arena for the time of the prologue. */
  async scratch<T>(work: (arena: number) => Promise<T>): Promise<T> {
    const least = leastDims(this.plan);
    const arena = this.heap.take(region(this.variant.slots, least, this.variant.id).total);
    try {
      return await work(arena);
    } finally {
      this.heap.give(arena);
    }
  }

  /** Raise BundleError unless the library counts the same bytes as the plan. */
  async check(dims: DimValues, arena: number): Promise<void> {
    const at = this.#control + this.#layout.sizes;
    const [read] = await this.ask([this.#block(dims, []), ["sizes", this.#control + 64, at], ["read", at, 16]]);
    const [own, packed] = new BigInt64Array(read as ArrayBuffer);
    if (Number(own) !== arena || Number(packed) !== this.packed.total) {
      throw new BundleError(`the library takes ${own} and ${packed} bytes, not ${arena} and ${this.packed.total}`, this.variant.id);
    }
  }

  /** Where the library finds a constant. */
  point(constant: number, at: number): void {
    this.#pointers[constant] = at;
  }

  packedAt(slot: number): number {
    return this.#packedAt + this.packed.offsets[slot]!;
  }

  // ------------------------------------------------------------ engine

  get weightBytes(): number {
    return this.packed.total + this.#kept;
  }

  choice(step: number): number {
    return this.#choices[step]!;
  }

  async choose(step: number, alternate: number): Promise<void> {
    this.#choices[step] = alternate;
  }

  memory(lean = false): Memory {
    return new WasmMemory(this, lean);
  }

  async revive(): Promise<void> {
    if (this.#closed) throw new DeviceError("the session or its model was disposed of", this.adapter);
    this.#end("it is started anew");
    await this.open();
  }

  close(): void {
    this.#closed = true;
    this.#end("it was closed");
  }
}

/** Browsers set aside addresses for all that a shared memory may become: with fewer of them, a smaller one does. */
function sharedMemory(where: string): WebAssembly.Memory {
  for (const maximum of [65535, 32768, 16384, 8192]) {
    try {
      return new WebAssembly.Memory({ initial: INITIAL_PAGES, maximum, shared: true });
    } catch {
      continue;
    }
  }
  throw new OutOfMemory("no room for a shared memory", where, "Use threads: 1");
}
