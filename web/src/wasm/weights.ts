/** Packed weights: each step of the prologue runs as soon as its constants are there, and these go when no step needs them. */

import type { DTypeName } from "../api.js";
import { elements, storageBytes, TYPES } from "../bundle/dtypes.js";
import type { Step } from "../bundle/format.js";
import { BundleError } from "../errors.js";
import { bytesOf, checkStorable, convert } from "../runtime/arrays.js";
import { flatten } from "../runtime/steps.js";
import { controlBuffers } from "../webgpu/numbers.js";
import type { WasmEngine } from "./engine.js";
import type { Op } from "./machine.js";

interface Constant {
  readonly name: string;
  readonly index: number;
  /** Bytes as it is stored here. */
  readonly total: number;
  readonly from: DTypeName;
  readonly to: DTypeName;
  at: number;
  got: number;
  /** Steps of the prologue that have yet to read it; one more where the model's own steps do. */
  users: number;
}

/** Resolves with the bytes of constants that stay, since the model's own steps read them. */
export async function fillWeights(engine: WasmEngine): Promise<number> {
  const filling = new Filling(engine);
  await engine.options.weights.stream(filling.names, (name, offset, bytes) => filling.take(name, offset, bytes));
  await filling.finish();
  return filling.kept;
}

class Filling {
  readonly #constants = new Map<string, Constant>();
  readonly #rest: Set<Step>;
  readonly #writers = new Map<number, Step>();
  readonly #scratch: boolean;

  constructor(readonly engine: WasmEngine) {
    const { plan, variant } = engine, read = controlBuffers(variant.steps);
    for (const s of flatten(variant.steps)) if (s.kind === "step") for (const a of s.alternates) for (const d of a.dispatches) for (const arg of d.args) read.add(arg);
    plan.constants.forEach(({ name, dtype, shape }, index) => {
      const used = [...variant.buffers.values()].filter((b) => b.constant === name);
      const to = used[0]?.dtype ?? dtype, total = storageBytes(to, elements(shape)), users = used.some((b) => read.has(b.id)) ? 1 : 0;
      if (used.length > 0) this.#constants.set(name, { name, index, total, from: dtype, to, users, at: 0, got: 0 });
    });
    this.#rest = new Set(variant.prologue as readonly Step[]);
    for (const step of this.#rest) {
      this.#writers.set(step.writes.buffer, step);
      for (const c of this.#needs(step)) c.users++;
    }
    this.#scratch = [...this.#rest].some((s) => this.#args(s).some((id) => variant.buffers.get(id)!.kind === "arena"));
  }

  get names(): ReadonlySet<string> {
    return new Set(this.#constants.keys());
  }

  get kept(): number {
    return [...this.#constants.values()].reduce((sum, c) => sum + (c.users > 0 ? c.total : 0), 0);
  }

  #args(step: Step): number[] {
    return step.alternates[0]!.dispatches.flatMap((d) => d.args);
  }

  #needs(step: Step): Set<Constant> {
    const names = this.#args(step).map((id) => this.engine.variant.buffers.get(id)!.constant);
    return new Set(names.flatMap((n) => (n === null ? [] : [this.#constants.get(n)!])));
  }

  /** Pieces come in their order. */
  async take(name: string, _: number, piece: Uint8Array): Promise<void> {
    const { engine } = this, c = this.#constants.get(name)!, bytes = stored(c, piece.slice());
    if (c.got + bytes.length > c.total) throw new BundleError("has another size than its shape says", `constant ${name}`);
    if (c.got === 0) engine.point(c.index, (c.at = engine.heap.take(c.total)));
    const ops: Op[] = [["grow", engine.heap.end], ["write", c.at + c.got, bytes]];
    c.got += bytes.length;
    if (c.got === c.total && !this.#scratch) ops.push(...this.#ready());
    await engine.ask(ops);
  }

  /** The steps that can run now; what only they needed is given back. */
  #ready(): Op[] {
    const { engine } = this, ops: Op[] = [];
    for (const step of this.#rest) {
      const waits = this.#args(step).some((id) => id !== step.writes.buffer && this.#rest.has(this.#writers.get(id)!));
      if (waits || [...this.#needs(step)].some((c) => c.got < c.total)) continue;
      this.#rest.delete(step);
      ops.push(...engine.prologue(step.index, step.index + 1, 0));
      for (const c of this.#needs(step)) if (--c.users === 0) engine.heap.give(c.at);
    }
    return ops;
  }

  async finish(): Promise<void> {
    const { engine } = this;
    if (this.#scratch) await engine.scratch((arena) => engine.ask([["grow", engine.heap.end], ...engine.prologue(0, -1, arena)]));
    else await engine.ask([["grow", engine.heap.end], ...this.#ready()]);
    if (this.#scratch) for (const step of this.#rest) for (const c of this.#needs(step)) if (--c.users === 0) engine.heap.give(c.at);
    if (!this.#scratch && this.#rest.size > 0) throw new BundleError("a constant has another size than its shape says", engine.variant.id);
  }
}

/** A piece of a constant as it is stored here. */
function stored({ name, from, to }: Constant, bytes: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  if (from === to) return bytes;
  checkStorable(name, from, to, "constant");
  return bytesOf(convert(new TYPES[from](bytes.buffer, 0, bytes.length / TYPES[from].BYTES_PER_ELEMENT), from, to)!);
}
