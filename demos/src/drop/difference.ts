/** The difference of two texts by lines: Myers' shortest script, with runs of equal lines folded. */

import { h } from "../lib/dom.js";
import { plural } from "../lib/format.js";

export interface Piece { readonly kind: "same" | "gone" | "new"; readonly text: string }

/** Beyond this many changed lines the middle is shown as replaced: the exact script would cost too much. */
const MOST = 1500;

export function difference(before: string, after: string): Piece[] {
  const [a, b] = [before.split("\n"), after.split("\n")];
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head += 1;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail += 1;
  const same = (lines: readonly string[]): Piece[] => lines.map((text) => ({ kind: "same", text }));
  return [...same(a.slice(0, head)), ...script(a.slice(head, a.length - tail), b.slice(head, b.length - tail)), ...same(a.slice(a.length - tail))];
}

function script(a: readonly string[], b: readonly string[]): Piece[] {
  const trace = search(a, b);
  if (!trace) return [...a.map((text): Piece => ({ kind: "gone", text })), ...b.map((text): Piece => ({ kind: "new", text }))];
  const out: Piece[] = [];
  let [x, y] = [a.length, b.length];
  for (let d = trace.length - 1; d >= 0; d--) {
    const reach = trace[d]!;
    const k = x - y;
    const down = k === -d || (k !== d && (reach.get(k - 1) ?? -1) < (reach.get(k + 1) ?? -1));
    const from = down ? k + 1 : k - 1;
    const fromX = d ? reach.get(from)! : 0;
    const fromY = fromX - from;
    const [stopX, stopY] = d ? (down ? [fromX, fromY + 1] : [fromX + 1, fromY]) : [0, 0];
    while (x > stopX && y > stopY) {
      out.push({ kind: "same", text: a[--x]! });
      y -= 1;
    }
    if (!d) break;
    out.push(down ? { kind: "new", text: b[--y]! } : { kind: "gone", text: a[--x]! });
  }
  return out.reverse();
}

/** For each number of edits: how far each diagonal came before it. Null where there are too many edits. */
function search(a: readonly string[], b: readonly string[]): Map<number, number>[] | null {
  const trace: Map<number, number>[] = [];
  let reach = new Map<number, number>([[1, 0]]);
  for (let d = 0; d <= Math.min(MOST, a.length + b.length); d++) {
    trace.push(new Map(reach));
    for (let k = -d; k <= d; k += 2) {
      const down = k === -d || (k !== d && (reach.get(k - 1) ?? -1) < (reach.get(k + 1) ?? -1));
      let x = down ? (reach.get(k + 1) ?? 0) : (reach.get(k - 1) ?? 0) + 1;
      while (x < a.length && x - k < b.length && a[x] === b[x - k]) x += 1;
      reach.set(k, x);
      if (x >= a.length && x - k >= b.length) return trace;
    }
    reach = new Map(reach);
  }
  return null;
}

const CONTEXT = 2;
/** So many lines are laid out; more would only slow the page. */
const SHOWN = 1200;

export function showDifference(pieces: readonly Piece[]): HTMLElement {
  const near = new Uint8Array(pieces.length);
  pieces.forEach((p, i) => {
    if (p.kind !== "same") near.fill(1, Math.max(0, i - CONTEXT), i + CONTEXT + 1);
  });
  const host = h("div", { class: "code diff" });
  let hidden = 0;
  let shown = 0;
  const fold = (): void => {
    if (hidden) host.append(h("div", { class: "fold" }, `${plural(hidden, "line")} unchanged`));
    hidden = 0;
  };
  for (const [i, piece] of pieces.entries()) {
    if (!near[i]) hidden += 1;
    else {
      fold();
      const mark = piece.kind === "new" ? "+" : piece.kind === "gone" ? "−" : " ";
      const said = piece.kind === "new" ? h("span", { class: "visually-hidden" }, "added: ") : piece.kind === "gone" ? h("span", { class: "visually-hidden" }, "removed: ") : null;
      host.append(h("div", { class: piece.kind }, h("b", { "aria-hidden": true }, mark), said, piece.text || " "));
      if (++shown === SHOWN) {
        host.append(h("div", { class: "fold" }, "more is not shown"));
        return host;
      }
    }
  }
  fold();
  return host;
}

export function counts(pieces: readonly Piece[]): { gone: number; fresh: number } {
  return { gone: pieces.filter((p) => p.kind === "gone").length, fresh: pieces.filter((p) => p.kind === "new").length };
}
