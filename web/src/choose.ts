/** Which device runs the model, and why: the candidates in order, what was measured, and what is remembered of it. */

import type { DeviceName, Report } from "./api.js";
import { sha256 } from "./bundle/sha256.js";
import type { Store } from "./bundle/store.js";
import type { Plan, Variant } from "./bundle/format.js";
import { DEVICES, describeAdapter, rank, stranger, type Device } from "./devices.js";
import type { Engine } from "./engine.js";
import { InputError } from "./errors.js";
import { readVectors, type Vectors } from "./runtime/selftest.js";

export interface Candidate {
  readonly device: Device;
  readonly variant: Variant;
  readonly why: string;
}

export interface Choice {
  /** What may run the model, the best first. */
  readonly candidates: readonly Candidate[];
  /** Devices and variants that were passed over, with the reasons. */
  readonly passed: Report["considered"];
  readonly measured: Readonly<Record<string, number>>;
  /** Where a measurement is remembered; null where nothing is to be measured. */
  readonly key: string | null;
}

interface Remembered {
  readonly device: string;
  readonly measured: Readonly<Record<string, number>>;
}

/** The candidates in order of preference. */
export async function choose(plan: Plan, id: string, asked: DeviceName, store: Store): Promise<Choice> {
  if (!["auto", "webgpu", "wasm"].includes(asked)) {
    throw new InputError(`is no device: "${String(asked)}"`, "load", 'Use "auto", "webgpu" or "wasm"');
  }
  const passed: { device: string; taken: boolean; why: string }[] = [];
  const found: { device: Device; variant: Variant }[] = [];
  for (const variant of [...plan.variants].sort((a, b) => rank(a.class) - rank(b.class))) {
    const device = DEVICES.find((d) => d.takes(variant));
    const why = !device ? stranger(variant) : asked !== "auto" && device.kind !== asked ? `the caller asked for ${asked}` : await device.lacks(variant);
    if (!device || why) passed.push({ device: `${device?.kind ?? variant.backend} ${variant.id}`, taken: false, why });
    else found.push({ device, variant });
  }
  const missing = DEVICES.filter((d) => !plan.variants.some((v) => d.takes(v)));
  for (const { kind } of missing) passed.push({ device: kind, taken: false, why: "the bundle has no variant for it" });
  const adapter = await describeAdapter(), both = new Set(found.map((f) => f.device.kind)).size > 1;
  const key = asked === "auto" && both ? await keyOf(id, adapter?.name ?? "") : null;
  const known = key === null ? null : await recall(store, key);
  const reason = (kind: string): string => {
    if (asked !== "auto") return "as asked";
    if (known) return `measured here before: ${times(known.measured)}`;
    if (kind === "webgpu") return adapter?.isCpu ? `the adapter ${adapter.name} computes on the CPU` : `the adapter ${adapter?.name ?? ""} is a GPU`;
    return adapter?.isCpu ? "the WebGPU adapter computes on the CPU" : "behind WebGPU";
  };
  const first = known?.device ?? (adapter?.isCpu ? "wasm" : "webgpu");
  found.sort((a, b) => Number(b.device.kind === first) - Number(a.device.kind === first)); // stable
  return { candidates: found.map((f) => ({ ...f, why: reason(f.device.kind) })), passed, measured: known?.measured ?? {}, key: known ? null : key };
}

function times(measured: Readonly<Record<string, number>>): string {
  return Object.entries(measured).map(([kind, ms]) => `${kind} ${ms.toPrecision(3)} ms`).join(", ");
}

/** A measurement holds for a bundle, a browser and an adapter. */
async function keyOf(id: string, adapter: string): Promise<string> {
  return `choice-${await sha256(new TextEncoder().encode([id, navigator.userAgent, adapter].join("\n")))}`;
}

async function recall(store: Store, key: string): Promise<Remembered | null> {
  try {
    const { device, measured } = JSON.parse((await (await store.get(key))?.text()) ?? "") as Remembered;
    const sound = DEVICES.some((d) => d.kind === device) && Object.values(measured).every(Number.isFinite);
    return sound ? { device, measured } : null;
  } catch {
    return null; // none, or damaged: it is measured again
  }
}

const RUNS = 5;
/** Milliseconds that the runs on one device may take; one run is always made. */
const BUDGET = 1000;
/** A device that is faster by less than this is not worth going to. */
const GAIN = 1.1;

/** Measure both devices and remember which is better for the next load. Resolves with medians in milliseconds. */
export async function measure(
  plan: Plan, golden: (file: string) => ReturnType<import("./bundle/bundle.js").Bundle["tensors"]>, engine: Engine,
  other: () => Promise<Engine>, store: Store, key: string,
): Promise<Record<string, number>> {
  const vectors = await readVectors({ plan, golden }, plan.golden.at(-1)!);
  const measured: Record<string, number> = { [engine.kind]: await median(engine, vectors) };
  const second = await other();
  try {
    measured[second.kind] = await median(second, vectors);
  } finally {
    second.close();
  }
  const better = measured[second.kind]! * GAIN < measured[engine.kind]! ? second.kind : engine.kind;
  await store.put(key, new TextEncoder().encode(JSON.stringify({ device: better, measured }))).catch(() => {}); // then it is measured again
  return measured;
}

async function median(engine: Engine, { call }: Vectors): Promise<number> {
  const memory = engine.memory(true), found: number[] = [];
  try {
    await memory.run(call); // to warm up
    for (let spent = 0; found.length < RUNS && spent < BUDGET; spent += found.at(-1)!) {
      const start = performance.now();
      await memory.run(call);
      found.push(performance.now() - start);
    }
  } finally {
    memory.close();
  }
  return found.sort((a, b) => a - b)[found.length >> 1]!;
}
