/** Slots of an arena spread over GPU buffers of at most 128 MiB, and those that must lie alone. */

import { type Region, SLOT_ALIGN } from "../bundle/layout.js";
import { makeBuffer, STORAGE } from "./gpu.js";

const SEGMENT_BYTES = 128 << 20;

export interface Place {
  readonly buffer: GPUBuffer;
  readonly offset: number;
}

/** Of each slot its segment and the byte offset in it (a slot never straddles; a larger one is alone). Slots of `alone` have none. */
function spread(region: Region, alone: ReadonlySet<number>): { places: (readonly [number, number] | null)[]; sizes: number[] } {
  const places: (readonly [number, number] | null)[] = [], sizes: number[] = [];
  let at = 0;
  region.sizes.forEach((size, slot) => {
    if (alone.has(slot)) return void places.push(null);
    if (sizes.length === 0 || (at > 0 && at + size > SEGMENT_BYTES)) {
      sizes.push(0);
      at = 0;
    }
    places.push([sizes.length - 1, at]);
    sizes[sizes.length - 1] = Math.max(sizes[sizes.length - 1]!, at + Math.max(size, SLOT_ALIGN));
    at += size;
  });
  return { places, sizes };
}

/** What a growth changed: state buffers to copy from old to new, and how to finish or take it back. */
export interface Growth {
  readonly moved: readonly (readonly [from: GPUBuffer, to: GPUBuffer])[];
  /** The new buffers are there: let go of the old ones. */
  commit(): void;
  /** They are not: the states lie where they lay, the rest is made anew when it is needed. */
  revert(): void;
}

/** Buffers grow to the largest sizes that were asked for and never shrink. WebGPU gives them zeroed. */
export class Arena {
  readonly #segments: GPUBuffer[] = [];
  readonly #alone = new Map<number, GPUBuffer>();

  /** A copy inside one buffer is no legal command, so slots of states (`alone`) are buffers of their own. */
  constructor(readonly device: GPUDevice, readonly label: string, readonly alone: ReadonlySet<number> = new Set()) {}

  /** Room for a region; null where there was enough. Whatever was bound to replaced buffers must be bound anew. */
  fit(region: Region): Growth | null {
    const moved: [GPUBuffer, GPUBuffer][] = [], made = new Set<GPUBuffer>();
    const revert = (): void => {
      for (const [slot, buffer] of this.#alone) {
        const old = moved.find(([, to]) => to === buffer)?.[0];
        if (old) this.#alone.set(slot, old);
        else if (made.has(buffer)) this.#alone.delete(slot);
      }
      const kept = this.#segments.filter((b) => !made.has(b));
      for (const buffer of made) buffer.destroy();
      this.#segments.splice(0, this.#segments.length, ...kept);
    };
    try {
      this.#grow(region, moved, made);
    } catch (error) {
      revert();
      throw error;
    }
    if (made.size === 0) return null;
    return { moved, revert, commit: () => moved.forEach(([from]) => from.destroy()) };
  }

  #grow(region: Region, moved: [GPUBuffer, GPUBuffer][], made: Set<GPUBuffer>): void {
    spread(region, this.alone).sizes.forEach((need, k) => {
      const old = this.#segments[k];
      if (old && old.size >= need) return;
      const buffer = makeBuffer(this.device, need, STORAGE, `${this.label} ${k}`);
      old?.destroy();
      made.add((this.#segments[k] = buffer));
    });
    for (const slot of this.alone) {
      const need = Math.max(region.sizes[slot]!, SLOT_ALIGN), old = this.#alone.get(slot);
      if (old && old.size >= need) continue;
      const buffer = makeBuffer(this.device, need, STORAGE, `${this.label} state ${slot}`);
      made.add(buffer);
      if (old) moved.push([old, buffer]);
      this.#alone.set(slot, buffer);
    }
  }

  /** Where the slots of a region lie that was made room for. */
  places(region: Region): Place[] {
    return spread(region, this.alone).places.map((place, slot) =>
      place === null ? { buffer: this.#alone.get(slot)!, offset: 0 } : { buffer: this.#segments[place[0]]!, offset: place[1] });
  }

  get bytes(): number {
    return [...this.#segments, ...this.#alone.values()].reduce((total, b) => total + b.size, 0);
  }

  destroy(): void {
    for (const buffer of [...this.#segments, ...this.#alone.values()]) buffer.destroy();
    this.#segments.length = 0;
    this.#alone.clear();
  }
}
