/** A loaded bundle on a device: its weights, a report on how it came to be there, and a first session. */

import type { Demotion, Dims, Inputs, Outputs, Port, Report, RunOptions, SelfTest, StepTime, Tensor } from "../api.js";
import { evaluate, show } from "../bundle/expr.js";
import type { Dim, Plan, PlanPort } from "../bundle/format.js";
import { leastDims } from "../bundle/layout.js";
import type { Call, Engine, Memory } from "../engine.js";
import { DeviceError, type DeviceLost, type KernelRefused } from "../errors.js";
import { disposed } from "./disposed.js";
import { DimSolver } from "./dims.js";
import { checkInputs, type ReadImage } from "./inputs.js";
import type { LiveReport, ModelEvent } from "./report.js";
import { demoteRefused, selfTest } from "./selftest.js";
import { type Host, Session } from "./session.js";

export interface ModelParts {
  readonly name: string;
  readonly plan: Plan;
  readonly engine: Engine;
  readonly report: LiveReport;
  /** The tensors of a golden member, checked. */
  readonly golden: (file: string) => Promise<ReadonlyMap<string, Tensor>>;
  readonly verify: "background" | "before" | "off";
  /** The next device that can run the bundle, when this one fails its self-test; null when there is none. It updates the report. */
  readonly next?: (failure: DeviceError) => Promise<Engine | null>;
  readonly readImage?: ReadImage;
  readonly onSelfTest?: (done: number, total: number) => void;
  /** Lets go of the bundle. */
  readonly onDispose?: () => void;
}

export class Model implements Host {
  readonly name: string;
  /** Resolves when the self-test has ended; rejects when no device is left that passes it. */
  readonly certified: Promise<Report>;
  readonly solver: DimSolver;
  failed: Error | null = null;
  readonly #parts: ModelParts;
  readonly #sessions = new Set<Session>();
  readonly #first: Session;
  readonly #listeners = new Map<ModelEvent, Set<(detail: unknown) => void>>();
  #engine: Engine;
  #demoting: Promise<unknown> = Promise.resolve();
  #recovering: Promise<void> | null = null;
  #disposed = false;

  constructor(parts: ModelParts) {
    this.#parts = parts;
    this.name = parts.name;
    this.solver = new DimSolver(parts.plan);
    this.#engine = parts.engine;
    this.#adopt(parts.engine);
    this.#first = this.session();
    this.certified = this.#certify();
    this.certified.catch(() => undefined); // whoever runs the model is told; a page need not listen here
  }

  get engine(): Engine {
    return this.#engine;
  }

  get readImage(): ReadImage | undefined {
    return this.#parts.readImage;
  }

  get report(): Report {
    return this.#parts.report.now;
  }

  /** The GPU device that the model runs on, for buffers that are inputs. Another one after a loss. */
  get device(): GPUDevice | null {
    return (this.#engine as { device?: GPUDevice }).device ?? null;
  }

  get inputs(): readonly Port[] {
    return this.#parts.plan.inputs.map(portOf);
  }

  get outputs(): readonly Port[] {
    return this.#parts.plan.outputs.map(portOf);
  }

  get dims(): readonly Dim[] {
    return this.#parts.plan.dims;
  }

  /** State inputs, which a session keeps between runs. */
  get states(): readonly Port[] {
    return this.#parts.plan.states.map((s) => portOf({ name: s.input, dtype: s.dtype, shape: s.shape }));
  }

  /** Bytes of weights and of all sessions on the device. */
  get bytes(): number {
    return [...this.#sessions].reduce((total, s) => total + s.bytes, this.#engine.weightBytes);
  }

  /** Runs the model in its first session; see Session.run. */
  run(inputs: Inputs, options?: RunOptions): Promise<Outputs> {
    return this.#first.run(inputs, options);
  }

  reset(): void {
    this.#first.reset();
  }

  snapshot(): Promise<Record<string, Tensor>> {
    return this.#first.snapshot();
  }

  restore(states: Readonly<Record<string, Tensor>>): void {
    this.#first.restore(states);
  }

  prepare(dims: Dims): Promise<void> {
    return this.#first.prepare(dims);
  }

  /** A new session, with its own memory and state, over the same weights. */
  session(): Session {
    if (this.#disposed) throw disposed();
    const session = new Session(this, (gone) => this.#sessions.delete(gone));
    this.#sessions.add(session);
    return session;
  }

  on(event: ModelEvent, listener: (detail: unknown) => void): () => void {
    const listeners = this.#listeners.get(event) ?? new Set();
    this.#listeners.set(event, listeners.add(listener));
    return () => void listeners.delete(listener);
  }

  #tell(event: ModelEvent, detail: unknown): void {
    for (const listener of this.#listeners.get(event) ?? []) listener(detail);
  }

  #adopt(engine: Engine): void {
    this.#engine = engine;
    engine.onLost = (why) => this.#tell("lost", why);
  }

  async recover(engine: Engine, error: DeviceLost): Promise<void> {
    if (this.#disposed) throw disposed(error);
    if (engine !== this.#engine) return; // given up in the meantime
    this.#recovering ??= this.#revive(engine).finally(() => (this.#recovering = null));
    return this.#recovering;
  }

  async #revive(engine: Engine): Promise<void> {
    const before = engine.epoch;
    await engine.revive();
    if (engine.epoch === before) return;
    const recoveries = this.report.recoveries + 1;
    this.#parts.report.set({ recoveries });
    this.#tell("recovered", recoveries);
  }

  refused(engine: Engine, error: KernelRefused): Promise<void> {
    return this.#demote(async () => (engine === this.#engine ? demoteRefused(engine, error) : []));
  }

  /** One party at a time: the self-test and runs may meet the same fault. */
  #demote(find: () => Promise<Demotion[]>): Promise<void> {
    const done = this.#demoting.then(async () => {
      for (const demotion of await find()) {
        this.#parts.report.set({ demotions: [...this.report.demotions, demotion] });
        this.#tell("demoted", demotion);
      }
    });
    this.#demoting = done.catch(() => undefined);
    return done;
  }

  async #certify(): Promise<Report> {
    const { plan, golden, verify, report, next, onSelfTest } = this.#parts;
    if (verify === "off") {
      report.set({ selfTest: { ...NOT_YET, outcome: "skipped", why: 'the caller said verify: "off"' } });
      return this.report;
    }
    report.set({ selfTest: { ...NOT_YET, outcome: "running", why: "" } });
    if (verify === "background") await new Promise((done) => setTimeout(done)); // the first answer comes first
    for (;;) {
      const engine = this.#engine;
      try {
        const found = await selfTest({
          engine, plan, golden,
          recover: (error) => this.recover(engine, error),
          demote: (find) => this.#demote(find),
          demotions: () => this.report.demotions.length,
          progress: (done, total) => onSelfTest?.(done, total),
        });
        report.set({ selfTest: found });
        return this.report;
      } catch (error) {
        if (this.#disposed) throw error;
        const other = error instanceof DeviceError && next ? await next(error) : null;
        if (!other) return this.#fail(error as Error);
        this.#adopt(other);
        engine.close();
      }
    }
  }

  #fail(error: Error): never {
    this.failed = error;
    this.#parts.report.set({ selfTest: { ...this.report.selfTest, outcome: "failed", why: error.message } });
    throw error;
  }

  /**
   * Runs once in memory of its own and times each step: by the GPU's clock where the browser has one, else by the page's, each
   * step submitted alone.
   */
  async profile(inputs: Inputs): Promise<StepTime[]> {
    const given = checkInputs(this.solver, inputs, this.readImage), shapes = new Map([...given].map(([name, { shape }]) => [name, shape]));
    const dims = this.solver.solve(shapes, this.solver.plan.states.length > 0 ? leastDims(this.solver.plan) : new Map());
    const feeds = new Map([...given].map(([name, { feed }]) => [name, feed]));
    const call = { dims, feeds, fresh: true, outputs: [], first: 0, last: -1 }, memory = this.#engine.memory(true);
    try {
      return (await memory.profile?.(call)) ?? (await this.#stepwise(memory, call));
    } finally {
      memory.close();
    }
  }

  async #stepwise(memory: Memory, call: Call): Promise<StepTime[]> {
    await memory.run(call); // to warm up
    await memory.run({ ...call, last: 0 });
    const times: StepTime[] = [];
    let start = 0;
    for (const step of this.#engine.variant.steps) {
      if (step.kind === "dim") continue;
      const began = performance.now(), last = step.kind === "step" ? step.index + 1 : step.end;
      await memory.run({ ...call, feeds: new Map(), fresh: false, first: step.index, last });
      const duration = performance.now() - began, plain = step.kind === "step" ? step : null;
      const dispatches = plain?.alternates[this.#engine.choice(step.index)]?.dispatches ?? [];
      const about = { step: step.index, name: plain?.name ?? step.kind, kernels: dispatches.map((d) => d.kernel), origin: plain?.origin ?? [] };
      times.push({ ...about, start, duration, clock: "wall" });
      start += duration;
    }
    return times;
  }

  /** The shape of each output for dimension values. */
  outputShapes(dims: Dims): Record<string, number[]> {
    const values = new Map(Object.entries(dims));
    return Object.fromEntries(this.#parts.plan.outputs.map((p) => [p.name, p.shape.map((e) => evaluate(e, values))]));
  }

  /** Frees all sessions, the weights and the device. */
  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    for (const session of this.#sessions) session.dispose();
    this.#engine.close();
    this.#parts.onDispose?.();
  }
}

const NOT_YET: SelfTest = { outcome: "running", why: "", vectors: 0, runs: 0, worst: 0 };

function portOf(port: PlanPort): Port {
  return { name: port.name, dtype: port.dtype, shape: port.shape.map((e) => (typeof e === "number" ? e : show(e))) };
}
