/** Constants on their way into GPU buffers: piece by piece, converted to the dtype and layout that the variant wants. */

import type { Buffer, Constant, Plan, Variant } from "../bundle/format.js";
import { alignUp, elements, storageBytes, TYPES } from "../bundle/dtypes.js";
import { extent, type Extent } from "../bundle/layout.js";
import type { Weights } from "../engine.js";
import { BundleError, DeviceError } from "../errors.js";
import { bytesOf, checkStorable, convert, isDense } from "../runtime/arrays.js";
import { guarded, makeBuffer, STORAGE, write } from "./gpu.js";

const PIECE = 1 << 20;
const IN_FLIGHT = 16 << 20; // bytes that the queue may hold before the download waits for it

interface Target {
  readonly constant: Constant;
  readonly size: Extent;
  readonly buffer: GPUBuffer;
}

/** Streams the constants of a variant into buffers, which it returns by buffer id. */
export async function uploadConstants(device: GPUDevice, plan: Plan, variant: Variant, weights: Weights): Promise<Map<number, GPUBuffer>> {
  const constants = new Map(plan.constants.map((c) => [c.name, c]));
  const wanted = [...variant.buffers.values()].filter((b) => b.kind === "constant" && b.constant !== null);
  const made = guarded(device, `weights of ${variant.id}`, () =>
    wanted.map((b) => [b.id, target(device, b, constants.get(b.constant!)!, variant.id)] as const));
  const result = new Map(made.value.map(([id, t]) => [id, t.buffer]));
  try {
    const refused = await made.failed;
    if (refused) throw refused;
    await fill(device, made.value.map(([, t]) => t), weights, variant.id);
  } catch (error) {
    for (const buffer of result.values()) buffer.destroy();
    throw error;
  }
  return result;
}

async function fill(device: GPUDevice, targets: readonly Target[], weights: Weights, where: string): Promise<void> {
  const by = new Map<string, Upload>();
  for (const t of targets) {
    const upload = by.get(t.constant.name);
    if (upload) upload.targets.push(t);
    else by.set(t.constant.name, new Upload(device, t.constant, [t]));
  }
  let waiting = 0;
  await weights.stream(new Set(by.keys()), (name, _, bytes) => {
    const found = guarded(device, `${where}: constant ${name}`, () => by.get(name)!.take(bytes));
    waiting += bytes.byteLength;
    const drained = waiting >= IN_FLIGHT ? device.queue.onSubmittedWorkDone() : null;
    if (drained) waiting = 0;
    return found.failed.then(async (refused) => {
      if (refused) throw refused;
      await drained;
    });
  });
}

function target(device: GPUDevice, buffer: Buffer, constant: Constant, where: string): Target {
  const size = extent(buffer, new Map());
  checkStorable(constant.name, constant.dtype, buffer.dtype, where);
  if (!isDense(size) || storageBytes(buffer.dtype, elements(constant.shape)) > size.bytes) {
    throw new BundleError("its buffer is not dense", `constant ${constant.name}`);
  }
  return { constant, size, buffer: makeBuffer(device, size.bytes, STORAGE, constant.name) };
}

/** One constant: pieces are gathered so that each write is aligned and small, whatever the source passes. */
class Upload {
  /** Only while bytes come: all constants of a model have one. */
  #piece: Uint8Array<ArrayBuffer> | null = null;
  readonly #total: number;
  #held = 0;
  /** Bytes of the constant that came so far, those in the piece included. */
  #at = 0;

  constructor(readonly device: GPUDevice, readonly constant: Constant, readonly targets: Target[]) {
    this.#total = storageBytes(constant.dtype, elements(constant.shape));
  }

  take(bytes: Uint8Array): void {
    const piece = (this.#piece ??= new Uint8Array(Math.min(PIECE, alignUp(this.#total, 8))));
    for (let from = 0; from < bytes.byteLength; ) {
      const count = Math.min(bytes.byteLength - from, piece.byteLength - this.#held);
      piece.set(bytes.subarray(from, from + count), this.#held);
      from += count;
      this.#held += count;
      this.#at += count;
      if (this.#held === piece.byteLength || this.#at === this.#total) this.#flush(piece.subarray(0, this.#held));
    }
    if (this.#at === this.#total) this.#piece = null;
  }

  #flush(bytes: Uint8Array<ArrayBuffer>): void {
    const start = this.#at - this.#held, item = TYPES[this.constant.dtype].BYTES_PER_ELEMENT;
    this.#held = 0;
    for (const { size, buffer } of this.targets) {
      const values = new TYPES[this.constant.dtype](bytes.buffer, 0, bytes.byteLength / item);
      const stored = convert(values, this.constant.dtype, size.dtype);
      if (!stored) throw new DeviceError("has values that this device cannot hold", `constant ${this.constant.name}`, 'Use device: "wasm"');
      write(this.device, { buffer, offset: (start / item) * stored.BYTES_PER_ELEMENT }, bytesOf(stored));
    }
  }
}
