/** Which parts of a WebAssembly memory are taken. */

import { alignUp } from "../bundle/dtypes.js";
import { SLOT_ALIGN } from "../bundle/layout.js";
import { OutOfMemory } from "../errors.js";

const PAGE = 65536;
/** What 32-bit addresses reach, but for the last page, so that no address behind a block wraps around. */
const MOST = 2 ** 32 - PAGE;

export class Heap {
  /** In the order of their addresses; behind each lies slack, which vectors may read. */
  readonly #blocks: { at: number; end: number }[] = [];

  constructor(readonly base: number, readonly where: string) {}

  /** The address of a new block, in the first gap that holds it. */
  take(bytes: number): number {
    const need = alignUp(bytes, SLOT_ALIGN) + SLOT_ALIGN;
    let at = alignUp(this.base, SLOT_ALIGN), k = 0;
    for (; k < this.#blocks.length && this.#blocks[k]!.at - at < need; k++) at = this.#blocks[k]!.end;
    if (at + need > MOST) throw new OutOfMemory(`${bytes} bytes more are beyond 4 GiB`, this.where, "Use smaller sizes");
    this.#blocks.splice(k, 0, { at, end: at + need });
    return at;
  }

  give(at: number): void {
    const k = this.#blocks.findIndex((b) => b.at === at);
    if (k >= 0) this.#blocks.splice(k, 1);
  }

  /** Bytes that the memory must have. */
  get end(): number {
    return this.#blocks.at(-1)?.end ?? this.base;
  }
}
