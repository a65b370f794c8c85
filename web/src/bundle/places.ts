/** Which parts of which constants lie in which chunk, and how far each constant has come. */

import { BundleError } from "../errors.js";
import { elements, storageBytes } from "./dtypes.js";
import type { Constant } from "./format.js";
import { AGAIN } from "./members.js";
import { parseTensors } from "./tensors.js";

interface Piece {
  readonly name: string;
  /** From the constant's start, and in the chunk. */
  readonly offset: number;
  readonly start: number;
  readonly stop: number;
}

export class Places {
  #come = new Map<Constant, { parts: number; bytes: number }>();

  constructor(constants: readonly Constant[]) {
    for (const constant of constants) this.#come.set(constant, { parts: 0, bytes: 0 });
  }

  chunks(): string[] {
    return [...new Set([...this.#come.keys()].flatMap((c) => c.parts.map((p) => p.chunk)))].sort();
  }

  /** The pieces that lie in a chunk. */
  take(chunk: string, data: Uint8Array): Piece[] {
    const slots = parseTensors(data, chunk), pieces: Piece[] = [];
    for (const [constant, come] of this.#come) {
      for (let part = constant.parts[come.parts]; part?.chunk === chunk; part = constant.parts[come.parts]) {
        const slot = slots.get(part.key) ?? this.#fail(constant, `is not in its chunk ${chunk}`);
        pieces.push({ name: constant.name, offset: come.bytes, start: slot.start, stop: slot.stop });
        come.bytes += slot.stop - slot.start;
        come.parts++;
        if (come.bytes > sizeOf(constant)) this.#fail(constant, "has another size than its shape says");
      }
    }
    return pieces;
  }

  /** Raise BundleError unless every constant has come as a whole, its parts in order. */
  finish(): void {
    for (const [constant, { bytes, parts }] of this.#come) {
      if (bytes !== sizeOf(constant) || parts !== constant.parts.length) this.#fail(constant, "has another size than its shape says");
    }
  }

  #fail(constant: Constant, why: string): never {
    throw new BundleError(why, `constant '${constant.name.slice(0, 80)}'`, AGAIN);
  }
}

function sizeOf({ dtype, shape }: Constant): number {
  return storageBytes(dtype, elements(shape));
}
