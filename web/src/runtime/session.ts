/** Separate memory and state for runs of a model. Runs are carried out in the order of the calls; several may be in flight. */

import type { Dims, Inputs, Outputs, RunOptions, Tensor } from "../api.js";
import type { PlanPort } from "../bundle/format.js";
import { leastDims } from "../bundle/layout.js";
import type { Call, DimValues, Engine, Memory } from "../engine.js";
import { DeviceError, DeviceLost, InputError, KernelRefused } from "../errors.js";
import { disposed } from "./disposed.js";
import type { DimSolver, Shapes } from "./dims.js";
import { checkInputs, checkTensor, Copies, type Given, type ReadImage } from "./inputs.js";

/** What a session needs of its model. */
export interface Host {
  readonly engine: Engine;
  readonly solver: DimSolver;
  readonly readImage: ReadImage | undefined;
  /** The device was lost: makes it anew, or rejects. */
  recover(engine: Engine, error: DeviceLost): Promise<void>;
  /** A kernel does not compile here: another alternate for its step, or rejects. */
  refused(engine: Engine, error: KernelRefused): Promise<void>;
  /** The model cannot run any more, and why. */
  readonly failed: Error | null;
}

/** Where the state is: on the device (of these sizes), else values to begin with; those that are absent are zero. */
interface Place {
  readonly home: DimValues | null;
  readonly kept: ReadonlyMap<string, Tensor>;
  /** Calls that go on from each other share it. */
  readonly line: object;
}

interface Turn {
  readonly given: ReadonlyMap<string, Given>;
  readonly call: Call;
  /** Whether it goes on from the state that earlier calls left on the device. */
  readonly depends: boolean;
  readonly before: Place;
  readonly after: Place;
  /** Whether the earlier calls left the state that this one is to find. */
  readonly earlier: Promise<boolean>;
}

const BEGIN_ANEW = "Restore a snapshot or begin anew";
const nowhere = (kept: ReadonlyMap<string, Tensor> = new Map()): Place => ({ home: null, kept, line: {} });

export class Session {
  readonly #host: Host;
  readonly #ports: ReadonlyMap<string, PlanPort>;
  readonly #copies = new Copies();
  #memory: Memory | null = null;
  #engine: Engine | null = null;
  #epoch = 0;
  #place: Place = nowhere();
  #earlier: Promise<boolean> = Promise.resolve(true);
  #repairing: Promise<unknown> | null = null;
  #closed = false;

  constructor(host: Host, readonly onDispose: (session: Session) => void = () => {}) {
    this.#host = host;
    this.#ports = new Map(host.solver.plan.inputs.map((p) => [p.name, p]));
  }

  /**
   * Runs the model. The inputs may be changed when the promise has been returned. State inputs may be left out: the session keeps
   * them on the device, and then their outputs are not returned.
   */
  async run(inputs: Inputs, options: RunOptions = {}): Promise<Outputs> {
    const { signal } = options;
    signal?.throwIfAborted();
    const given = this.#copies.take(this.#checked(inputs));
    while (this.#repairing) await this.#repairing;
    signal?.throwIfAborted();
    const running = this.#run(given).finally(() => this.#copies.give(given));
    return signal ? Promise.race([running, aborted(signal, running)]) : running;
  }

  async #run(given: ReadonlyMap<string, Given>): Promise<Outputs> {
    let finish!: (sound: boolean) => void;
    const earlier = this.#earlier, turn = this.#turn(given, earlier);
    this.#earlier = new Promise((resolve) => (finish = resolve));
    try {
      const made = await this.#carryOut(turn);
      await earlier; // answers come in the order of the calls
      finish(true);
      return this.#outputs(made, given);
    } catch (error) {
      const sound = !(error instanceof DeviceLost) && (!turn.depends || (await earlier));
      finish(sound && this.#place === turn.after);
      this.#undo(turn, sound);
      throw error;
    }
  }

  /** The call with its sizes; from here on the state is where this call will leave it. */
  #turn(given: ReadonlyMap<string, Given>, earlier: Promise<boolean>): Turn {
    const { plan } = this.#host.solver, names = plan.states.map((s) => s.input);
    this.#noticeLoss(names.every((n) => given.has(n)));
    const before = this.#place, all = new Map(given);
    for (const [name, value] of before.kept) if (!all.has(name)) all.set(name, checkTensor(this.#ports.get(name)!, value));
    const dims = this.#solve(all, before.home);
    const visible = new Set(plan.outputs.map((p) => p.name));
    for (const s of plan.states) if (!given.has(s.input)) visible.delete(s.output);
    const feeds = new Map([...all].map(([name, { feed }]) => [name, feed]));
    const call = { dims, feeds, fresh: before.home === null, outputs: [...visible], first: 0, last: -1 };
    const depends = before.home !== null && names.some((n) => !given.has(n));
    const after = names.length === 0 ? before : { home: dims, kept: new Map(), line: depends ? before.line : {} };
    this.#place = after;
    return { given, call, depends, before, after, earlier };
  }

  /** The state lay on a device that another session found lost, or that was given up. */
  #noticeLoss(selfContained: boolean): void {
    const { engine } = this.#host;
    if (this.#place.home === null || (engine === this.#engine && engine.epoch === this.#epoch)) return;
    this.#place = nowhere();
    if (!selfContained) throw this.#stateGone();
  }

  #stateGone(): DeviceLost {
    return new DeviceLost("the device was lost and with it the state, which begins anew",
      this.#host.engine.adapter, BEGIN_ANEW);
  }

  #solve(given: ReadonlyMap<string, Given>, home: DimValues | null): Map<string, number> {
    const { solver } = this.#host, shapes = new Map([...given].map(([name, { shape }]) => [name, shape])) as Map<string, readonly number[]>;
    const free = new Map<string, number>();
    if (solver.plan.states.some((s) => !given.has(s.input))) for (const [n, v] of leastDims(solver.plan)) free.set(n, v);
    if (!home) return solver.solve(shapes, free);
    // the states on the device have sizes as well, which the others must fit
    for (const { input } of solver.plan.states) if (!shapes.has(input)) shapes.set(input, solver.shape(this.#ports.get(input)!, home));
    return solver.solve(shapes as Shapes, new Map([...free, ...home]));
  }

  async #carryOut(turn: Turn): Promise<Map<string, Tensor>> {
    const made = await this.#persist((memory) => memory.run(turn.call), () => this.#afterLoss(turn));
    if (!turn.depends || (await turn.earlier)) return made;
    throw new DeviceError("an earlier run failed and with it the state, which begins anew",
      this.#host.engine.adapter, BEGIN_ANEW);
  }

  /** Does the work again with another kernel where one is refused, and on a new device where it was lost, once. */
  async #persist<T>(work: (memory: Memory) => Promise<T>, afterLoss: () => void): Promise<T> {
    for (let lost = false; ; ) {
      try {
        return await work(this.#held());
      } catch (error) {
        if (error instanceof KernelRefused && error.step >= 0) await this.#repair(this.#host.refused(this.#engine!, error));
        else if (error instanceof DeviceLost && !lost) {
          lost = true;
          await this.#repair(this.#host.recover(this.#engine!, error));
          afterLoss();
        } else throw error;
      }
    }
  }

  /** New calls wait until the device or the step is in order again, so that repeated calls come first. */
  async #repair(work: Promise<void>): Promise<void> {
    const repairing = (this.#repairing = work.catch(() => undefined).then(() => {
      if (this.#repairing === repairing) this.#repairing = null;
    }));
    await work;
  }

  #afterLoss(turn: Turn): void {
    if (this.#place !== turn.after && this.#place.line === turn.after.line) this.#place = nowhere();
    if (turn.depends) throw this.#stateGone();
    for (const { feed } of turn.given.values()) {
      if (feed.kind === "gpu") throw new DeviceLost("the device was lost and with it a GPU buffer", this.#host.engine.adapter, "Make it again");
    }
  }

  /** After a failure the state is where it was before the call (if that was sound), unless later calls already went on from it. */
  #undo(turn: Turn, sound: boolean): void {
    if (this.#place === turn.after) this.#place = sound ? turn.before : nowhere();
    else if (this.#place.line === turn.after.line) this.#place = nowhere();
  }

  #outputs(made: ReadonlyMap<string, Tensor>, given: ReadonlyMap<string, Given>): Outputs {
    const { plan } = this.#host.solver, hidden = new Set(plan.states.filter((s) => !given.has(s.input)).map((s) => s.output));
    const shown = plan.outputs.filter((p) => !hidden.has(p.name) && made.has(p.name));
    return Object.fromEntries(shown.map((p) => [p.name, made.get(p.name)!]));
  }

  /** The memory on the present device. */
  #held(): Memory {
    const { engine, failed } = this.#host;
    if (this.#closed) throw disposed();
    if (failed) throw failed;
    if (this.#memory && this.#engine === engine && this.#epoch === engine.epoch) return this.#memory;
    this.#memory?.close();
    this.#engine = engine;
    this.#epoch = engine.epoch;
    return (this.#memory = engine.memory());
  }

  #checked(inputs: Inputs): Map<string, Given> {
    if (this.#closed) throw disposed();
    return checkInputs(this.#host.solver, inputs, this.#host.readImage);
  }

  /** Sets the state to zeros, as in a new session. */
  reset(): void {
    this.#place = nowhere();
  }

  /** A copy of the state by state input name; empty before the first run. */
  async snapshot(): Promise<Record<string, Tensor>> {
    this.#noticeLoss(false);
    const { home, kept } = this.#place, earlier = this.#earlier;
    if (!home) return Object.fromEntries([...kept].map(([name, t]) => [name, { ...t, data: t.data.slice() }]));
    const states = await this.#persist((memory) => memory.readStates(), () => {
      this.#place = nowhere();
      throw this.#stateGone();
    });
    if (!(await earlier) || !states) throw new DeviceError("an earlier run failed", this.#host.engine.adapter);
    return Object.fromEntries(states);
  }

  /** Goes on from a snapshot. Raises InputError where a name or tensor is not of a state of this model. */
  restore(states: Readonly<Record<string, Tensor>>): void {
    const known = new Set(this.#host.solver.plan.states.map((s) => s.input));
    const unknown = Object.keys(states).filter((n) => !known.has(n));
    if (unknown.length > 0) throw new InputError(`no states of this model: ${unknown.join(", ")}`, "restore");
    const kept = new Map<string, Tensor>();
    for (const [name, tensor] of Object.entries(states)) {
      checkTensor(this.#ports.get(name)!, tensor);
      kept.set(name, { ...tensor, data: tensor.data.slice() });
    }
    this.#place = nowhere(kept);
  }

  /** Prepares memory and bindings for sizes, so that the first run with them is as fast as the next. */
  async prepare(dims: Dims): Promise<void> {
    const { solver } = this.#host;
    if (this.#closed) throw disposed();
    const unknown = Object.keys(dims).filter((n) => !solver.plan.dims.some((d) => d.name === n));
    if (unknown.length > 0) throw new InputError(`no dimensions of this model: ${unknown.join(", ")}`, "prepare");
    const values = solver.solve(new Map(), new Map(Object.entries(dims)));
    return this.#persist((memory) => memory.prepare(values), () => {});
  }

  /** Bytes that this session holds on the device. */
  get bytes(): number {
    return this.#memory?.bytes ?? 0;
  }

  /** Frees the memory. Runs in flight and later calls reject. */
  dispose(): void {
    this.#closed = true;
    this.#memory?.close();
    this.#memory = null;
    this.onDispose(this);
  }
}

async function aborted(signal: AbortSignal, running: Promise<unknown>): Promise<never> {
  return new Promise((_, reject) => {
    const stop = (): void => reject(signal.reason);
    signal.addEventListener("abort", stop, { once: true });
    running.catch(() => undefined).finally(() => signal.removeEventListener("abort", stop));
  });
}
