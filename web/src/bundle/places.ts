/** Which parts of which constants lie in which chunk, and how far each constant has come. */

import { BundleError } from "../errors.js";
import { elements, storageBytes } from "./dtypes.js";
import type { Constant } from "./format.js";
import { AGAIN, PLAN } from "./members.js";
import { parseTensors } from "./tensors.js";

interface Piece {
  readonly constant: Constant;
  /** From the constant's start, and in the chunk. */
  readonly offset: number;
  readonly start: number;
  readonly stop: number;
}

export class Places {
  #byChunk = new Map<string, { constant: Constant; part: number; key: string }[]>();
  #come = new Map<Constant, { parts: number; bytes: number }>();

  constructor(constants: readonly Constant[]) {
    for (const constant of constants) {
      this.#come.set(constant, { parts: 0, bytes: 0 });
      constant.parts.forEach(({ chunk, key }, part) => {
        const list = this.#byChunk.get(chunk) ?? [];
        list.push({ constant, part, key });
        this.#byChunk.set(chunk, list);
      });
    }
  }

  chunks(): string[] {
    return [...this.#byChunk.keys()].sort();
  }

  take(chunk: string, data: Uint8Array): Piece[] {
    const slots = parseTensors(data, chunk);
    return this.#byChunk.get(chunk)!.map(({ constant, part, key }) => {
      const slot = slots.get(key), come = this.#come.get(constant)!;
      if (!slot) throw new BundleError(`lacks tensor '${key.slice(0, 80)}'`, chunk, AGAIN);
      if (come.parts !== part) throw new BundleError(`parts of constant '${constant.name.slice(0, 80)}' are not in order`, chunk, AGAIN);
      const piece = { constant, offset: come.bytes, start: slot.start, stop: slot.stop };
      come.parts++;
      come.bytes += slot.stop - slot.start;
      this.#check(constant, come.bytes, come.parts === constant.parts.length);
      return piece;
    });
  }

  #check(constant: Constant, bytes: number, whole: boolean): void {
    const size = storageBytes(constant.dtype, elements(constant.shape));
    if (whole ? bytes !== size : bytes > size) {
      throw new BundleError(`constant '${constant.name.slice(0, 80)}' has another size than its shape says`, PLAN, AGAIN);
    }
  }

  finish(): void {
    for (const [constant, { parts }] of this.#come) {
      if (parts !== constant.parts.length) throw new BundleError(`constant '${constant.name.slice(0, 80)}' is not complete`, PLAN, AGAIN);
    }
  }
}
