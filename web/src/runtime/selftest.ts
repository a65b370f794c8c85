/** The self-test: golden vectors on the device, and the demotion of steps that fail them. */

import type { Demotion, DTypeName, SelfTest, Tensor } from "../api.js";
import type { AnyStep, Golden, Plan, Step } from "../bundle/format.js";
import type { Call, Engine, Feed, Memory } from "../engine.js";
import { BundleError, DeviceError, DeviceLost, KernelRefused } from "../errors.js";
import { bytesOf, single } from "./arrays.js";
import { DimSolver } from "./dims.js";
import { flatten } from "./steps.js";

const RUNS = 3;
const SAMPLES = 256;

type Tensors = ReadonlyMap<string, Tensor>;

export interface Vectors {
  readonly golden: Golden;
  readonly call: Call;
  readonly outputs: Tensors;
  readonly samples: Tensors;
}

interface Failure {
  readonly why: string;
  /** Equal runs gave different answers. */
  readonly erratic: boolean;
}

export interface Subject {
  readonly engine: Engine;
  readonly plan: Plan;
  /** The tensors of a golden member. */
  readonly golden: (file: string) => Promise<Tensors>;
  readonly recover: (error: DeviceLost) => Promise<void>;
  /** Carries demotions out, one party at a time, and tells of them. */
  readonly demote: (find: () => Promise<Demotion[]>) => Promise<void>;
  /** How many there were so far. */
  readonly demotions: () => number;
  readonly progress: (done: number, total: number) => void;
}

/** Runs the first golden vectors, demoting steps until they pass. Rejects with DeviceError where no alternate is left. */
export async function selfTest(subject: Subject): Promise<SelfTest> {
  const golden = subject.plan.golden[0];
  if (!golden) return { outcome: "skipped", why: "the bundle has no golden vectors", vectors: 0, runs: 0, worst: 0 };
  const vectors = await readVectors(subject, golden);
  for (let losses = 0; ; ) {
    try {
      const before = subject.demotions(), found = await attempt(subject, vectors);
      if (typeof found === "number") {
        const outcome = subject.demotions() > 0 ? "passed after demotions" : "passed";
        return { outcome, why: "", vectors: 1, runs: RUNS, worst: found };
      }
      // a run may have met the same fault: then the vectors are tried again
      await subject.demote(async () => (subject.demotions() > before ? [] : demote(subject, vectors, found)));
    } catch (error) {
      if (!(error instanceof DeviceLost) || ++losses > 3) throw error;
      await subject.recover(error);
    }
  }
}

/** The call that golden vectors describe, with what it must give. */
export async function readVectors({ plan, golden: read }: Pick<Subject, "plan" | "golden">, golden: Golden): Promise<Vectors> {
  const arrays = await read(golden.file), feeds = new Map<string, Feed>(), shapes = new Map<string, readonly number[]>();
  for (const port of plan.inputs) {
    const array = arrays.get(`in/${port.name}`);
    if (!array) throw new BundleError(`lacks the input ${port.name}`, golden.file);
    const bits = port.dtype === "bf16" && array.dtype === "u16";
    if (array.dtype !== port.dtype && !bits) throw new BundleError(`the input ${port.name} has dtype ${array.dtype}`, golden.file);
    feeds.set(port.name, { kind: "data", data: array.data });
    shapes.set(port.name, array.shape);
  }
  const outputs = new Map<string, Tensor>(), samples = new Map<string, Tensor>();
  for (const port of plan.outputs) {
    const array = arrays.get(`out/${port.name}`);
    if (!array) throw new BundleError(`lacks the output ${port.name}`, golden.file);
    outputs.set(port.name, array);
  }
  for (const [key, array] of arrays) if (key.startsWith("step/")) samples.set(key.slice(5), array);
  const dims = new DimSolver(plan).solve(shapes, new Map(Object.entries(golden.dims)));
  const call = { dims, feeds, fresh: true, outputs: [...outputs.keys()], first: 0, last: -1 };
  return { golden, call, outputs, samples };
}

async function withMemory<T>(engine: Engine, work: (memory: Memory) => Promise<T>): Promise<T> {
  const memory = engine.memory(true);
  try {
    return await work(memory);
  } finally {
    memory.close();
  }
}

/** Three runs: the failure, or the largest error over its tolerance where all is well. */
async function attempt({ engine, progress }: Subject, { golden, call, outputs }: Vectors): Promise<Failure | KernelRefused | number> {
  return withMemory(engine, async (memory) => {
    let first: Tensors | null = null, worst = 0;
    for (let run = 0; run < RUNS; run++) {
      let made: Tensors;
      try {
        made = await memory.run(call);
      } catch (error) {
        if (error instanceof KernelRefused) return error;
        throw error;
      }
      progress(run + 1, RUNS);
      if (first) {
        for (const [name, tensor] of made) if (!sameBits(tensor, first.get(name)!)) return { why: "equal runs gave different bits", erratic: true };
        continue;
      }
      first = made;
      for (const [name, wanted] of outputs) {
        const error = ratio(made.get(name)!, wanted, golden);
        if (error > 1) return { why: `output ${name} is off by ${error.toPrecision(3)} tolerances`, erratic: false };
        worst = Math.max(worst, error);
      }
    }
    return worst;
  });
}

function sameBits(a: Tensor, b: Tensor): boolean {
  const x = bytesOf(a.data), y = bytesOf(b.data);
  return x.length === y.length && x.every((v, i) => v === y[i]);
}

const isFloat = (dtype: DTypeName): boolean => dtype.startsWith("f");

function numberAt(tensor: Tensor, i: number): number {
  const value = tensor.data[i]!;
  return tensor.dtype === "f16" ? single(Number(value)) : Number(value);
}

/** The largest error over its tolerance; infinite where shapes, NaN or infinities differ. Integers and booleans must be equal. */
export function ratio(have: Tensor, wanted: Tensor, { rtol, atol }: Pick<Golden, "rtol" | "atol">): number {
  if (String(have.shape) !== String(wanted.shape)) return Infinity;
  const exact = !isFloat(have.dtype) && !isFloat(wanted.dtype);
  let worst = 0;
  for (let i = 0; i < have.data.length; i++) {
    if (exact) {
      if (have.data[i]! != wanted.data[i]!) return Infinity; // loosely: a big integer may equal a number
      continue;
    }
    const a = numberAt(have, i), b = numberAt(wanted, i);
    if (Object.is(a, b) || a === b) continue;
    const gap = Math.abs(a - b), room = atol + rtol * Math.abs(b);
    if (!Number.isFinite(gap) || room === 0) return Infinity;
    worst = Math.max(worst, gap / room);
  }
  return worst;
}

/** The step at fault to its next alternate; where no single one is at fault, all to their last. */
async function demote(subject: Subject, vectors: Vectors, failure: Failure | KernelRefused): Promise<Demotion[]> {
  if (failure instanceof KernelRefused) {
    if (failure.step < 0) throw failure;
    return demoteRefused(subject.engine, failure);
  }
  const { engine } = subject, { why } = failure;
  const found = await firstDeparting(engine, vectors, failure);
  if (found) return [await next(engine, found, why)];
  const demoted: Demotion[] = [];
  for (const step of stepsOf(engine)) {
    if (step.kind === "step" && engine.choice(step.index) < step.alternates.length - 1) {
      demoted.push(await use(engine, step, step.alternates.length - 1, `${why}; no single step departs`));
    }
  }
  if (demoted.length > 0) return demoted;
  throw new DeviceError(`the self-test failed: ${why}, and no single step departs`, whereOf(engine), "Use another device and report this");
}

/** Another alternate for the step whose kernel was refused; none where that happened already. */
export async function demoteRefused(engine: Engine, error: KernelRefused): Promise<Demotion[]> {
  const step = stepsOf(engine)[error.step];
  if (step?.kind !== "step") throw error;
  const now = step.alternates[engine.choice(step.index)]!;
  if (error.kernel !== "" && !now.dispatches.some((d) => d.kernel === error.kernel)) return [];
  return [await next(engine, step, error.message)];
}

async function next(engine: Engine, step: Step, why: string): Promise<Demotion> {
  const current = engine.choice(step.index);
  if (current + 1 < step.alternates.length) return use(engine, step, current + 1, why);
  const tried = step.alternates.map((a) => a.tag).join(", "), nodes = step.origin.join(", ") || "none";
  throw new DeviceError(
    `the self-test failed: ${why}. Step ${step.index} (${step.name}) departs and has no alternate left (tried: ${tried}; model nodes: ${nodes})`,
    whereOf(engine), "Use another device and report this");
}

async function use(engine: Engine, step: Step, alternate: number, why: string): Promise<Demotion> {
  const from = step.alternates[engine.choice(step.index)]!.tag, to = step.alternates[alternate]!.tag;
  await engine.choose(step.index, alternate);
  return { step: step.index, name: step.name, origin: step.origin, from, to, why };
}

/** The first step whose tensor departs from its sample (or, for an erratic failure, from itself). */
async function firstDeparting(engine: Engine, { golden, call, samples }: Vectors, failure: Failure): Promise<Step | null> {
  return withMemory(engine, async (memory) => {
    const seen = new Map<number, Tensor>(), none = { ...call, feeds: new Map(), fresh: false, outputs: [] };
    for (let run = 0; run < (failure.erratic ? RUNS : 1); run++) {
      await memory.run({ ...call, outputs: [], last: 0 });
      for (const step of stepsOf(engine)) {
        await memory.run({ ...none, first: step.index, last: step.index + 1 });
        const sample = step.kind === "step" ? samples.get(step.name) : undefined;
        if (step.kind !== "step" || !sample) continue;
        const have = await memory.readStep(step.writes, call.dims), before = seen.get(step.index);
        seen.set(step.index, have);
        if (before && !sameBits(have, before)) return step;
        if (!failure.erratic && departs(have, sample, golden)) return step;
      }
    }
    return null;
  });
}

function departs(have: Tensor, sample: Tensor, golden: Golden): boolean {
  // the indices that the compiler sampled, rounding included
  const size = have.data.length, count = Math.min(size, SAMPLES), step = (size - 1) / Math.max(1, count - 1), picks: number[] = [];
  for (let k = 0; k < count; k++) {
    const at = k > 0 && k === count - 1 ? size - 1 : Math.floor(k * step);
    if (at !== picks[picks.length - 1]) picks.push(at);
  }
  if (picks.length !== sample.data.length) return true;
  const shape = [picks.length], values = Float64Array.from(picks, (i) => numberAt(have, i));
  return ratio({ dtype: "f64", shape, data: values }, { ...sample, shape }, golden) > 1;
}

function stepsOf(engine: Engine): AnyStep[] {
  return flatten(engine.variant.steps);
}

function whereOf(engine: Engine): string {
  return `${engine.adapter}, variant ${engine.variant.id}`;
}
