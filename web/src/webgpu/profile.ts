/** Times of steps by the GPU's own clock. Browsers round it, so short steps are repeated within their pass. */

import type { StepTime } from "../api.js";
import type { Step } from "../bundle/format.js";
import { makeBuffer, READ } from "./gpu.js";
import type { Timer } from "./record.js";

const PASSES = 2048; // two timestamps each; a set holds 4096
const ENOUGH_MS = 1; // what a step's pass should take to be measured well
const MOST = 64;
const QUERY = 0x200 | 0x04; // QUERY_RESOLVE, COPY_SRC

export class StepTimer implements Timer {
  readonly #set: GPUQuerySet;
  readonly #resolved: GPUBuffer;
  readonly #reader: GPUBuffer;
  readonly #steps: Step[] = [];

  constructor(device: GPUDevice, readonly times: ReadonlyMap<Step, number>) {
    this.#set = device.createQuerySet({ type: "timestamp", count: 2 * PASSES });
    this.#resolved = makeBuffer(device, 16 * PASSES, QUERY, "timestamps");
    this.#reader = makeBuffer(device, 16 * PASSES, READ, "timestamps");
  }

  /** How often a step is done in its pass. */
  repeat(step: Step): number {
    const once = this.times.get(step);
    return once === undefined ? 1 : Math.max(1, Math.min(MOST, Math.ceil(ENOUGH_MS / Math.max(once, ENOUGH_MS / MOST))));
  }

  /** Passes beyond what a set holds share the last pair. */
  writes(step: Step): GPUComputePassTimestampWrites {
    if (this.#steps.length < PASSES) this.#steps.push(step);
    const at = 2 * (this.#steps.length - 1);
    return { querySet: this.#set, beginningOfPassWriteIndex: at, endOfPassWriteIndex: at + 1 };
  }

  resolve(encoder: GPUCommandEncoder): void {
    const count = 2 * this.#steps.length;
    if (count === 0) return;
    encoder.resolveQuerySet(this.#set, 0, count, this.#resolved, 0);
    encoder.copyBufferToBuffer(this.#resolved, 0, this.#reader, 0, 8 * count);
  }

  /** Each pass in order with the milliseconds of one repetition. */
  async read(): Promise<[Step, number][]> {
    await this.#reader.mapAsync(1);
    const stamps = new BigUint64Array(this.#reader.getMappedRange());
    return this.#steps.map((step, k) => [step, Math.max(0, Number(stamps[2 * k + 1]! - stamps[2 * k]!)) / 1e6 / this.repeat(step)]);
  }

  destroy(): void {
    this.#set.destroy();
    this.#resolved.destroy();
    this.#reader.destroy();
  }
}

/** Runs three times: to warm up, to see how long steps take, and to measure. Null where the device has no clock. */
export async function measure(
  device: GPUDevice, kernelsOf: (step: Step) => string[], run: (timer: StepTimer | null) => Promise<unknown>,
): Promise<StepTime[] | null> {
  if (!device.features.has("timestamp-query")) return null;
  await run(null);
  const rough = await timed(device, new Map(), run);
  const passes = await timed(device, new Map(rough), run);
  let start = 0;
  return passes.map(([step, duration]) => {
    const time = { step: step.index, name: step.name, kernels: kernelsOf(step), origin: step.origin, start, duration, clock: "gpu" as const };
    start += duration;
    return time;
  });
}

async function timed(device: GPUDevice, times: ReadonlyMap<Step, number>, run: (timer: StepTimer) => Promise<unknown>): Promise<[Step, number][]> {
  const timer = new StepTimer(device, times);
  try {
    await run(timer);
    return await timer.read();
  } finally {
    timer.destroy();
  }
}
