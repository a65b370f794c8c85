/** The memory of one session on WebAssembly: an arena whose places are those of the plan, and its runs. */

import type { DTypeName, Tensor } from "../api.js";
import type { Buffer, PlanPort, Writes } from "../bundle/format.js";
import { checkSlots, extent, region, reserved, type Extent, type Region } from "../bundle/layout.js";
import type { Call, DimValues, Memory } from "../engine.js";
import { DeviceLost, InputError, OutOfMemory } from "../errors.js";
import { disposed } from "../runtime/disposed.js";
import { fromStorage, toStorage } from "../runtime/arrays.js";
import type { WasmEngine } from "./engine.js";
import type { Op } from "./machine.js";

const KEPT_SIZES = 8;
/** C counts the bytes of one object in 31 bits. */
const MOST = 2 ** 31;

/** `at` counts from the start of the arena. */
interface Port { readonly name: string; readonly dtype: DTypeName; readonly at: number; readonly size: Extent }
interface Ready {
  readonly key: string;
  readonly dims: DimValues;
  readonly space: Region;
  readonly inputs: ReadonlyMap<string, Port>;
  readonly outputs: ReadonlyMap<string, Port>;
  readonly states: readonly { readonly from: Port; readonly to: Port }[];
}

export class WasmMemory implements Memory {
  readonly #epoch: number;
  readonly #sizes = new Map<string, Ready>();
  #arena = 0;
  #room = 0;
  /** The sizes by which the states lie in the arena, when a whole call has left them there. */
  #home: Ready | null = null;
  #growing: Promise<void> | null = null;
  #closed = false;

  constructor(readonly engine: WasmEngine, readonly lean: boolean) {
    this.#epoch = engine.epoch;
  }

  async run(call: Call): Promise<Map<string, Tensor>> {
    this.#alive();
    const ready = this.#ready(call.dims), inputs = this.#inputs(call, ready);
    await this.#fit(ready);
    const base = this.#arena, isWhole = call.first === 0 && call.last < 0, ports = call.outputs.map((name) => ready.outputs.get(name)!);
    const ops: Op[] = call.fresh ? [] : this.#moved(ready, base);
    for (const { to } of call.fresh ? ready.states : []) ops.push(["zero", base + to.at, to.size.bytes]);
    for (const [port, bytes] of inputs) ops.push(["write", base + port.at, bytes]);
    ops.push(...this.engine.steps(call.dims, base, call.first, call.last));
    if (isWhole) for (const { from, to } of ready.states) ops.push(["copy", base + from.at, base + to.at, to.size.bytes]);
    this.#home = isWhole ? ready : call.fresh ? null : this.#home && ready;
    return this.#bring(ops, ports, base, ready.key);
  }

  async prepare(dims: DimValues): Promise<void> {
    this.#alive();
    const ready = this.#ready(dims);
    await this.#fit(ready);
    await this.#settled(this.engine.check(dims, ready.space.total));
  }

  async readStep(writes: Writes, dims: DimValues): Promise<Tensor> {
    this.#alive();
    const { engine } = this, buffer = engine.variant.buffers.get(writes.buffer)!, ready = this.#ready(dims), size = extent(buffer, dims, writes);
    const isPacked = buffer.kind === "packed", at = isPacked ? engine.packedAt(buffer.slot!) : ready.space.offsets[buffer.slot!]!;
    return (await this.#bring([], [{ name: "", dtype: buffer.dtype, at, size }], isPacked ? 0 : this.#arena)).get("")!;
  }

  async readStates(): Promise<Map<string, Tensor> | null> {
    this.#alive();
    return this.#home && this.#bring([], this.#home.states.map((s) => s.to), this.#arena);
  }

  #alive(): void {
    if (this.#closed) throw disposed();
    if (this.#epoch !== this.engine.epoch) throw new DeviceLost("WebAssembly was started anew", this.engine.adapter);
    this.engine.alive();
  }

  // ------------------------------------------------------------ sizes

  #ready(dims: DimValues): Ready {
    const key = [...dims.values()].join();
    const ready = this.#sizes.get(key) ?? this.#layout(dims, key);
    this.#sizes.delete(key); // the latest is the last
    this.#sizes.set(key, ready);
    if (this.#sizes.size > KEPT_SIZES) this.#sizes.delete(this.#sizes.keys().next().value!);
    return ready;
  }

  #layout(dims: DimValues, key: string): Ready {
    const { plan, variant } = this.engine, space = region(variant.slots, dims, variant.id);
    if (space.sizes.some((n) => n >= MOST)) {
      throw new OutOfMemory("a tensor has 2 GiB or more", variant.id, "Use smaller sizes");
    }
    checkSlots(variant, dims, space, this.engine.packed);
    const port = (kind: Buffer["kind"], { name, dtype }: PlanPort): [string, Port] => {
      const buffer = [...variant.buffers.values()].find((b) => b.kind === kind && b.io === name)!;
      return [name, { name, dtype, at: space.offsets[buffer.slot!]!, size: extent(buffer, dims) }];
    };
    const inputs = new Map(plan.inputs.map((p) => port("input", p))), outputs = new Map(plan.outputs.map((p) => port("output", p)));
    const states = plan.states.map((s) => ({ from: outputs.get(s.output)!, to: inputs.get(s.input)! }));
    return { key, dims, space, inputs, outputs, states };
  }

  /** States on their way from where they lie to where these sizes have them. */
  #moved(ready: Ready, base: number): Op[] {
    const home = this.#home;
    if (!home || (home === ready && base === this.#arena)) return [];
    const keep = home.states.map(({ to }): Op => ["keep", this.#arena + to.at, to.size.bytes]);
    return [...keep, ...ready.states.map(({ to }): Op => ["put", base + to.at])];
  }

  /** Room for the sizes; returns without waiting where there is enough. */
  async #fit(ready: Ready): Promise<void> {
    while (this.#growing) await this.#growing;
    if (ready.space.total <= this.#room) return;
    this.#growing = this.#grow(ready);
    await this.#growing;
  }

  async #grow(ready: Ready): Promise<void> {
    const { heap, plan, variant } = this.engine, old = this.#arena;
    const most = this.lean || old > 0 ? null : reserved(plan, variant), room = Math.max(ready.space.total, most?.total ?? 0);
    const arena = heap.take(room);
    try {
      await this.#settled(this.engine.ask([["grow", heap.end], ...this.#moved(ready, arena)]));
      this.#arena = arena;
      this.#room = room;
      this.#home &&= ready;
      if (old > 0) heap.give(old);
    } catch (error) {
      heap.give(arena);
      throw error;
    } finally {
      this.#growing = null;
    }
  }

  // ------------------------------------------------------------ data

  #inputs(call: Call, ready: Ready): [Port, Uint8Array<ArrayBuffer>][] {
    return [...call.feeds].map(([name, feed]) => {
      const port = ready.inputs.get(name)!;
      if (feed.kind === "gpu") throw new InputError("is a GPU buffer, the device is wasm", `input "${name}"`, "Pass a typed array");
      return [port, toStorage(name, feed.data, port.dtype, port.size).slice()]; // a copy: the engine gives it away
    });
  }

  async #bring(ops: readonly Op[], ports: readonly Port[], base: number, sizes?: string): Promise<Map<string, Tensor>> {
    const reads = ports.map(({ at, size }): Op => ["read", base + at, size.bytes]);
    const results = await this.#settled(this.engine.ask([...ops, ...reads], sizes));
    return new Map(ports.map(({ name, dtype, size }, k) =>
      [name, { dtype, shape: size.shape, data: fromStorage(results[k] as ArrayBuffer, 0, dtype, size) }]));
  }

  async #settled<T>(work: Promise<T>): Promise<T> {
    const made = await work.catch((error: unknown) => {
      throw this.#closed ? disposed() : error;
    });
    if (this.#closed) throw disposed();
    return made;
  }

  get bytes(): number {
    return this.#room;
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    if (this.#arena > 0 && this.#epoch === this.engine.epoch) this.engine.heap.give(this.#arena);
    this.#room = 0;
  }
}
