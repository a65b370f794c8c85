/** The memory of one session on a WebGPU device, and its runs. */

import type { StepTime, Tensor } from "../api.js";
import type { Buffer, Step, Writes } from "../bundle/format.js";
import { alignUp, TYPES } from "../bundle/dtypes.js";
import { checkSlots, extent, leastDims, region, reserved } from "../bundle/layout.js";
import type { Call, DimValues, Feed, Memory } from "../engine.js";
import { DeviceError, DeviceLost, KernelRefused, OutOfMemory } from "../errors.js";
import { disposed } from "../runtime/disposed.js";
import { fromStorage, toStorage } from "../runtime/arrays.js";
import { checkRange } from "../runtime/dims.js";
import type { WebGpuEngine } from "./engine.js";
import { explain } from "./explain.js";
import { type Failed, guarded, mapForReading, write } from "./gpu.js";
import { within } from "./numbers.js";
import { copyIn, type Port, type Ports, portsOf } from "./ports.js";
import { measure, type StepTimer } from "./profile.js";
import { build, type Built } from "./program.js";
import { Readers } from "./readers.js";
import { launchesOf, Recorder, type Element, type Program } from "./record.js";
import { Arena, type Place } from "./segments.js";

const KEPT_SIZES = 8; // dimension values whose calls stay prepared

/** Everything that depends on dimension values only. */
interface Ready extends Ports {
  readonly dims: DimValues;
  readonly places: readonly Place[];
  readonly failed: Failed;
  whole: { readonly version: number; readonly built: Built; readonly failed: Failed } | null;
}

export class GpuMemory implements Memory {
  readonly #device: GPUDevice;
  readonly #arena: Arena;
  readonly #readers: Readers;
  readonly #sizes = new Map<string, Ready>();
  readonly #branching: boolean;
  #growths = 0;
  /** The verdict on growth that is not known yet: all that is made meanwhile stands on it. */
  #growing: Failed = Promise.resolve(null);
  /** The sizes of the last whole call, which left the states in its inputs. */
  #home: DimValues | null = null;
  #tail: Promise<unknown> = Promise.resolve();
  #closed = false;

  constructor(readonly engine: WebGpuEngine, readonly lean: boolean) {
    const { plan, variant } = engine, given = new Set(plan.states.map((s) => s.input));
    const alone = [...variant.buffers.values()].flatMap((b) => (b.kind === "input" && given.has(b.io!) && b.slot !== null ? [b.slot] : []));
    this.#device = engine.device;
    this.#arena = new Arena(this.#device, "arena", new Set(alone));
    this.#readers = new Readers(this.#device);
    this.#branching = variant.steps.some((s) => s.kind !== "step");
  }

  get #where(): string {
    return this.engine.variant.id;
  }

  async run(call: Call): Promise<Map<string, Tensor>> {
    return this.#inTurn(() => this.#run(call, null));
  }

  async prepare(dims: DimValues): Promise<void> {
    await this.#inTurn(async () => {
      const ready = this.#ready(dims), whole = this.#whole(ready);
      await this.#settle(null, [ready.failed, whole.failed]);
    });
  }

  async readStep(writes: Writes, dims: DimValues): Promise<Tensor> {
    return this.#inTurn(async () => {
      const buffer = this.engine.variant.buffers.get(writes.buffer)!, ready = this.#ready(dims);
      const port = { name: "", dtype: buffer.dtype, place: this.#locate(ready.places, buffer), size: extent(buffer, dims, writes) };
      return (await this.#bring(this.#recorder(), [port], [ready.failed])).get("")!;
    });
  }

  async readStates(): Promise<Map<string, Tensor> | null> {
    return this.#inTurn(async () => {
      if (!this.#home) return null;
      const home = this.#ready(this.#home);
      return this.#bring(this.#recorder(), home.states.map((s) => home.inputs.get(s.name)!), [home.failed]);
    });
  }

  /** Times of the steps of a call by the GPU's clock; null where the device has none. */
  async profile(call: Call): Promise<StepTime[] | null> {
    const kernels = (step: Step): string[] => this.engine.alternate(step, false).dispatches.map((d) => d.kernel);
    return measure(this.#device, kernels, (timer) => this.#inTurn(() => this.#run(call, timer)));
  }

  /** Runs the prologue once. */
  async prologue(): Promise<void> {
    const { engine } = this, { variant } = engine;
    const dims = leastDims(engine.plan);
    let places: readonly Place[] | null = null, failed: Failed = Promise.resolve(null);
    const locate = (id: number): Place => {
      const buffer = variant.buffers.get(id)!;
      if (buffer.kind === "constant" || buffer.kind === "packed") return engine.locate(id, buffer.slot);
      if (!places) [places, failed] = this.#fit(dims); // scratch: few prologues have any
      return places[buffer.slot!]!;
    };
    const made = guarded(this.#device, `${variant.id}: bindings of the prologue`, () => build(engine, variant.prologue, dims, locate, true));
    try {
      await this.#attempt(made.value, [made.failed, failed], async (recorder) => {
        await this.#execute(recorder, made.value.program);
        await this.#bring(recorder, [], [made.failed, failed]);
      }, true);
    } finally {
      made.value.destroy();
    }
  }

  #alive(): void {
    if (this.#closed) throw disposed();
    if (this.engine.lost || this.engine.reviving || this.#device !== this.engine.device) throw this.engine.lossError();
  }

  /** With control flow, calls wait for each other; without, each is submitted before the first await. */
  async #inTurn<T>(work: () => Promise<T>): Promise<T> {
    this.#alive();
    if (!this.#branching) return work();
    const turn = this.#tail.then(() => {
      this.#alive();
      return work();
    });
    this.#tail = turn.catch(() => undefined);
    return turn;
  }

  // ------------------------------------------------------------ sizes

  /** Room in the arena; places of the slots, and whether the browser had it. */
  #fit(dims: DimValues): [Place[], Failed] {
    const { plan, variant } = this.engine;
    const space = region(variant.slots, dims, variant.id);
    checkSlots(variant, dims, space, region(variant.packed_slots, new Map(), variant.id));
    const whole = this.lean || this.#arena.bytes > 0 ? null : reserved(plan, variant);
    for (const room of whole ? [whole, space] : [space]) {
      const made = guarded(this.#device, `${variant.id}: arena of ${room.total} bytes`, () => {
        const growth = this.#arena.fit(room);
        if (growth && growth.moved.length > 0) {
          const encoder = this.#device.createCommandEncoder();
          for (const [from, to] of growth.moved) encoder.copyBufferToBuffer(from, 0, to, 0, from.size);
          this.#device.queue.submit([encoder.finish()]);
        }
        return growth;
      });
      if (made.value) this.#grown(made.value, made.failed);
    }
    return [this.#arena.places(space), this.#growing];
  }

  #grown(growth: { commit(): void; revert(): void }, failed: Failed): void {
    this.#forget(); // bound to buffers that are gone
    this.#growths++;
    const before = this.#growing;
    this.#growing = failed.then(async (error) => {
      const alone = --this.#growths === 0;
      if (alone) this.#growing = Promise.resolve(null);
      if (!error) growth.commit();
      else {
        this.#forget();
        if (alone) growth.revert();
        else this.#arena.destroy(); // another growth stands on this one: nothing of them is left
      }
      return error ?? before;
    });
  }

  #forget(): void {
    for (const ready of this.#sizes.values()) ready.whole?.built.destroy();
    this.#sizes.clear();
  }

  #ready(dims: DimValues): Ready {
    const key = [...dims.values()].join();
    let ready = this.#sizes.get(key);
    this.#sizes.delete(key); // the latest is the last
    if (!ready) {
      const [places, failed] = this.#fit(dims);
      ready = { dims, places, failed, whole: null, ...portsOf(this.engine, dims, (b) => this.#locate(places, b)) };
    }
    this.#sizes.set(key, ready);
    if (this.#sizes.size > KEPT_SIZES) {
      const [oldest, dropped] = this.#sizes.entries().next().value!;
      dropped.whole?.built.destroy();
      this.#sizes.delete(oldest);
    }
    return ready;
  }

  #whole(ready: Ready): { readonly built: Built; readonly failed: Failed } {
    const { version, variant } = this.engine;
    if (ready.whole?.version !== version) {
      ready.whole?.built.destroy();
      ready.whole = null;
      const made = this.#build(ready, variant.steps);
      ready.whole = { version, ...made };
    }
    return ready.whole;
  }

  #build(ready: Ready, steps: Parameters<typeof build>[1]): { built: Built; failed: Failed } {
    const { engine } = this;
    const locate = (id: number): Place => this.#locate(ready.places, engine.variant.buffers.get(id)!);
    const made = guarded(this.#device, `${this.#where}: bindings`, () => build(engine, steps, ready.dims, locate));
    return { built: made.value, failed: made.failed };
  }

  #locate(places: readonly Place[], buffer: Buffer): Place {
    const weights = buffer.kind === "constant" || buffer.kind === "packed";
    return weights ? this.engine.locate(buffer.id, buffer.slot) : places[buffer.slot ?? 0]!;
  }

  // ------------------------------------------------------------ runs

  #recorder(timer: StepTimer | null = null): Recorder {
    return new Recorder(this.#device, this.#where, timer);
  }

  async #run(call: Call, timer: StepTimer | null): Promise<Map<string, Tensor>> {
    const ready = this.#ready(call.dims), isWhole = call.first === 0 && call.last < 0;
    const last = call.last < 0 ? Infinity : call.last;
    const { built, failed } = isWhole ? this.#whole(ready) : this.#build(ready, within(this.engine.variant.steps, call.first, last));
    const failures = [ready.failed, failed];
    try {
      return await this.#attempt(built, failures, async (recorder) => {
        failures.push(this.#upload(call, ready, recorder));
        if (!built.straight) await this.#execute(recorder, built.program);
        else for (const launch of launchesOf(built.program)) recorder.launch(launch);
        if (isWhole) {
          for (const { from, to, bytes } of ready.states) recorder.copy(from, to, bytes);
          this.#home = call.dims;
        }
        timer?.resolve(recorder.between());
        return this.#bring(recorder, call.outputs.map((name) => ready.outputs.get(name)!), failures);
      }, false, timer, call.feeds);
    } finally {
      if (!isWhole) built.destroy();
    }
  }

  async #attempt<T>(
    built: Built, failures: readonly Failed[], work: (recorder: Recorder) => Promise<T>, prologue: boolean,
    timer: StepTimer | null = null, feeds: ReadonlyMap<string, Feed> = new Map(),
  ): Promise<T> {
    try {
      return await work(this.#recorder(timer));
    } catch (error) {
      await Promise.all(failures);
      const known = error instanceof OutOfMemory || error instanceof DeviceLost || error instanceof KernelRefused;
      if (known || !(error instanceof DeviceError) || this.engine.lost) throw error;
      throw await explain(this.engine, error, built.program, prologue, feeds);
    }
  }

  #upload(call: Call, ready: Ready, recorder: Recorder): Failed {
    const stored: [Place, Uint8Array<ArrayBuffer>][] = [];
    for (const [name, feed] of call.feeds) {
      const port = ready.inputs.get(name)!;
      if (feed.kind === "gpu") copyIn(feed.buffer, port, recorder);
      else stored.push([port.place, toStorage(name, feed.data, port.dtype, port.size)]);
    }
    if (call.fresh) {
      for (const state of ready.states) {
        const { buffer, offset } = state.to;
        if (!call.feeds.has(state.name)) recorder.between().clearBuffer(buffer, offset, state.bytes);
      }
    }
    return guarded(this.#device, `${this.#where}: inputs`, () => {
      for (const [place, bytes] of stored) write(this.#device, place, bytes);
    }).failed;
  }

  async #execute(recorder: Recorder, program: Program): Promise<void> {
    for (const item of program) {
      if (item.kind === "launch") recorder.launch(item);
      else if (item.kind === "branch") await this.#execute(recorder, (await this.#peek(recorder, item.cond)) ? item.then : item.orelse);
      else if (item.kind === "cycle") {
        const trip = typeof item.trip === "number" ? item.trip : await this.#peek(recorder, item.trip);
        for (let turn = 0; turn < trip; turn++) {
          if (item.cond && !(await this.#peek(recorder, item.cond))) break;
          await this.#execute(recorder, item.body);
        }
      } else {
        const value = await this.#peek(recorder, item.from);
        try {
          checkRange(item.dim, value, `the computed "${item.dim.name}"`);
        } catch (error) {
          throw new DeviceError((error as Error).message, this.#where);
        }
        const rest = guarded(this.#device, `${this.#where}: bindings`, () => item.rest(value));
        const refused = await rest.failed;
        if (refused) throw refused;
        await this.#execute(recorder, rest.value);
      }
    }
  }

  /** One element, when all that was recorded so far is done. */
  #peek(recorder: Recorder, from: Element): Promise<number> {
    return this.#read(recorder, 4, [], (to) => recorder.copy(from, to, 4), (data) => Number(new TYPES[from.dtype](data, 0, 1)[0]));
  }

  /** Copies what lies at the ports, submits, waits, and takes it as tensors. */
  async #bring(recorder: Recorder, ports: readonly Port[], failures: readonly Failed[]): Promise<Map<string, Tensor>> {
    const starts: number[] = [];
    let total = 0;
    for (const { size } of ports) {
      starts.push(total);
      total += alignUp(size.bytes, 16);
    }
    const copy = ({ buffer }: Place): void => ports.forEach(({ place, size }, k) =>
      recorder.copy(place, { buffer, offset: starts[k]! }, alignUp(size.bytes, 4)));
    return this.#read(recorder, total, failures, copy, (bytes) => new Map(ports.map(({ name, dtype, size }, k) =>
      [name, { dtype, shape: size.shape, data: fromStorage(bytes, starts[k]!, dtype, size) }])));
  }

  async #read<T>(
    recorder: Recorder, bytes: number, failures: readonly Failed[], copy: (to: Place) => void, take: (bytes: ArrayBuffer) => T,
  ): Promise<T> {
    const buffer = bytes > 0 ? this.#readers.take(bytes) : null;
    if (buffer) copy({ buffer, offset: 0 });
    let done: Promise<unknown> | null = null;
    const failed = recorder.submit(() => {
      done = buffer ? mapForReading(buffer, bytes) : this.#device.queue.onSubmittedWorkDone();
    });
    try {
      await this.#settle(done, [...failures, failed]);
      const result = take(buffer ? buffer.getMappedRange(0, bytes) : new ArrayBuffer(0));
      buffer?.unmap();
      if (buffer) this.#readers.give(buffer);
      return result;
    } catch (error) {
      if (buffer) this.#readers.drop(buffer);
      throw error;
    }
  }

  /** Waits for work and for the browser's verdict on what led to it; raises what went wrong first. */
  async #settle(work: Promise<unknown> | null, failures: readonly Failed[]): Promise<void> {
    const problem: unknown = await work?.then(() => null, (error: unknown) => error);
    const errors = (await Promise.all(failures)).filter((e) => e !== null);
    if (this.#closed) throw disposed();
    if (this.engine.lost || this.#device !== this.engine.device) throw this.engine.lossError();
    const first = errors.find((e) => e instanceof OutOfMemory) ?? errors[0];
    if (first) throw first;
    if (!problem) return;
    if (await this.engine.isLost()) throw this.engine.lossError();
    throw new DeviceError(`the results cannot be read (${String(problem)})`, this.#where);
  }

  get bytes(): number {
    return this.#arena.bytes + this.#readers.bytes;
  }

  close(): void {
    this.#closed = true;
    this.#forget();
    this.#arena.destroy();
    this.#readers.destroy();
  }
}
