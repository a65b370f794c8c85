/** Read-back buffers: as many as runs are in flight, kept for the next runs. */

import { makeBuffer, READ } from "./gpu.js";

const KEPT = 4;

export class Readers {
  readonly #free: GPUBuffer[] = [];
  readonly #all = new Set<GPUBuffer>();

  constructor(readonly device: GPUDevice) {}

  /** A buffer of at least `bytes`, nobody else's until it is given back. */
  take(bytes: number): GPUBuffer {
    const at = this.#free.findIndex((b) => b.size >= bytes);
    if (at >= 0) return this.#free.splice(at, 1)[0]!;
    const buffer = makeBuffer(this.device, bytes, READ, "read-back");
    this.#all.add(buffer);
    return buffer;
  }

  give(buffer: GPUBuffer): void {
    this.#free.push(buffer);
    this.#free.sort((a, b) => a.size - b.size);
    if (this.#free.length > KEPT) this.drop(this.#free.shift()!);
  }

  drop(buffer: GPUBuffer): void {
    buffer.destroy();
    this.#all.delete(buffer);
  }

  get bytes(): number {
    return [...this.#all].reduce((total, b) => total + b.size, 0);
  }

  destroy(): void {
    for (const buffer of this.#all) buffer.destroy();
    this.#all.clear();
    this.#free.length = 0;
  }
}
