/** Opens every side, compares their answers, and lets them take turns. `window.tangBenchmark` is this for programs. */

import { median } from "../lib/format.js";
import { generator } from "../drop/random.js";
import { SHAPES, SIDES, type Running, type Side, type Values } from "./sides.js";

export interface Options {
  readonly model: string;
  /** Sides by id; all if not given. */
  readonly sides?: readonly string[];
  readonly rounds?: number;
  readonly shapes?: Readonly<Record<string, readonly number[]>>;
  readonly signal?: AbortSignal;
  readonly onProgress?: (what: string, done: number, total: number) => void;
}

export interface SideResult {
  readonly id: string;
  readonly label: string;
  readonly series: number;
  readonly where: string;
  /** "" or why there are no figures. */
  readonly problem: string;
  /** Milliseconds from the import of the runtime to the first answer. */
  readonly cold: number;
  readonly steady: number;
  readonly times: readonly number[];
  readonly bytes: { readonly runtime: number; readonly model: number };
  /** Growth of the JavaScript heap while loading; NaN where the browser does not say. */
  readonly heap: number;
  /** Largest difference to the first side, over the largest value. */
  readonly difference: number;
}

export interface Results {
  readonly model: string;
  readonly shapes: Readonly<Record<string, readonly number[]>>;
  readonly rounds: number;
  readonly browser: string;
  readonly isolated: boolean;
  readonly reference: string;
  readonly sides: readonly SideResult[];
}

type Draft = { -readonly [K in keyof SideResult]: SideResult[K] } & { times: number[]; running: Running | null };

/** Answers may differ by this share of the largest value: the order of sums differs. */
const TOLERANCE = 2e-3;
/** A side this slow does not make the others wait for all its rounds. */
const PATIENCE = 20_000;
const WARM_UP = 3;

export async function measure(options: Options): Promise<Results> {
  const shapes = options.shapes ?? SHAPES[options.model];
  if (!shapes) throw new Error(`The benchmark knows no sizes for ${options.model}: pass shapes.`);
  const rounds = options.rounds ?? 30;
  const inputs = randomInputs(shapes);
  const drafts = SIDES.filter((s) => options.sides?.includes(s.id) ?? true).map(draft);
  const answers = new Map<string, Values>();
  try {
    for (const [i, d] of drafts.entries()) {
      options.signal?.throwIfAborted();
      options.onProgress?.(`Loading: ${d.label}`, i, drafts.length);
      await open(d, options.model, inputs, answers);
    }
    const reference = compare(drafts, answers);
    await turns(drafts.filter((d) => !d.problem), inputs, rounds, options);
    return {
      model: options.model, shapes, rounds, browser: navigator.userAgent, isolated: crossOriginIsolated, reference,
      sides: drafts.map(({ running: _, ...d }) => ({ ...d, steady: d.problem ? NaN : median(d.times) })),
    };
  } finally {
    for (const d of drafts) await d.running?.dispose();
  }
}

const draft = (s: Side): Draft => ({
  id: s.id, label: s.label, series: s.series, where: "", problem: "", cold: NaN, steady: NaN, times: [], bytes: { runtime: 0, model: 0 }, heap: NaN, difference: NaN, running: null,
});

async function open(d: Draft, model: string, inputs: Values, answers: Map<string, Values>): Promise<void> {
  const side = SIDES.find((s) => s.id === d.id)!;
  d.problem = await side.lacks();
  if (d.problem) return;
  const before = heap();
  const from = performance.now();
  try {
    d.running = await side.open(model);
    answers.set(d.id, await d.running.run(inputs));
    d.cold = performance.now() - from;
    d.heap = heap() - before;
    d.where = d.running.where;
    d.bytes = d.running.bytes;
  } catch (problem) {
    d.problem = problem instanceof Error ? problem.message : String(problem);
  }
}

const heap = (): number => (performance as Performance & { memory?: { usedJSHeapSize: number } }).memory?.usedJSHeapSize ?? NaN;

/** The reference is ONNX Runtime on WebAssembly where it runs, else the first side that does. */
function compare(drafts: readonly Draft[], answers: ReadonlyMap<string, Values>): string {
  const id = answers.has("ort-wasm") ? "ort-wasm" : [...answers.keys()][0];
  if (id === undefined) return "";
  const reference = answers.get(id)!;
  for (const d of drafts) {
    const own = answers.get(d.id);
    if (!own) continue;
    d.difference = Math.max(...Object.keys(reference).map((name) => distance(own[name]?.data, reference[name]!.data)));
    if (!(d.difference <= TOLERANCE)) d.problem = `its answer differs from ${id} by ${(100 * d.difference).toPrecision(2)} % of the largest value`;
  }
  return id;
}

function distance(own: Float32Array | undefined, reference: Float32Array): number {
  if (own?.length !== reference.length) return NaN;
  let [most, apart] = [1e-6, 0];
  for (let i = 0; i < reference.length; i++) {
    most = Math.max(most, Math.abs(reference[i]!));
    const by = Math.abs(own[i]! - reference[i]!);
    if (!(by <= apart)) apart = by;
  }
  return apart / most;
}

/** Every round each side runs once, and another one begins: drift of the machine hits all alike. */
async function turns(drafts: readonly Draft[], inputs: Values, rounds: number, { signal, onProgress }: Options): Promise<void> {
  const spent = new Map<string, number>();
  for (let round = -WARM_UP; round < rounds; round++) {
    onProgress?.(round < 0 ? "Warming up" : "Taking turns", Math.max(0, round), rounds);
    for (let k = 0; k < drafts.length; k++) {
      signal?.throwIfAborted();
      const d = drafts[(k + round + WARM_UP) % drafts.length]!;
      if ((spent.get(d.id) ?? 0) > PATIENCE && d.times.length > 2) continue;
      const from = performance.now();
      await d.running!.run(inputs);
      const took = performance.now() - from;
      spent.set(d.id, (spent.get(d.id) ?? 0) + took);
      if (round >= 0) d.times.push(took);
    }
    // the page must be able to paint and to hear the stop button
    await new Promise((done) => setTimeout(done));
  }
}

function randomInputs(shapes: Readonly<Record<string, readonly number[]>>): Values {
  const next = generator(7);
  return Object.fromEntries(Object.entries(shapes).map(([name, shape]) =>
    [name, { shape, data: Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, () => 2 * next() - 1) }]));
}
