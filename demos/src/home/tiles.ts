/** The figure at the head of the page: a product of matrices computed tile by tile, as a scheduled kernel walks it. */

import { reducedMotion, s } from "../lib/dom.js";

const CELL = 15;
const GAP = 3;
const [ROWS, COLUMNS, DEPTH, TILE] = [12, 16, 12, 4] as const;
const STEP = 150;

interface Grid { readonly node: SVGGElement; readonly cells: readonly (readonly SVGRectElement[])[] }

function grid(rows: number, columns: number, x: number, y: number, name: string): Grid {
  const node = s("g", { transform: `translate(${x} ${y})`, class: `grid-${name}` });
  const cells = Array.from({ length: rows }, (_, r) => Array.from({ length: columns }, (_, c) =>
    s("rect", { x: c * (CELL + GAP), y: r * (CELL + GAP), width: CELL, height: CELL, rx: 2.5 })));
  for (const row of cells) node.append(...row);
  return { node, cells };
}

export function tiles(host: Element): void {
  const pitch = CELL + GAP;
  const gap = 26;
  const [left, top] = [DEPTH * pitch + gap, DEPTH * pitch + gap];
  const a = grid(ROWS, DEPTH, 0, top, "a");
  const b = grid(DEPTH, COLUMNS, left, 0, "b");
  const c = grid(ROWS, COLUMNS, left, top, "c");
  const frame = s("rect", { class: "tile-frame", width: TILE * pitch + 3, height: TILE * pitch + 3, rx: 5 });
  const picture = s("svg", { viewBox: `-4 -4 ${left + COLUMNS * pitch + 6} ${top + ROWS * pitch + 6}` }, a.node, b.node, c.node,
    s("g", { transform: `translate(${left - GAP} ${top - GAP})` }, frame));
  host.append(picture);

  const perRow = COLUMNS / TILE;
  const turns = DEPTH / TILE;
  const total = (ROWS / TILE) * perRow * turns;
  const show = (at: number): void => {
    const tile = Math.floor(at / turns);
    const [ti, tj, k] = [Math.floor(tile / perRow), tile % perRow, at % turns];
    mark(a, (r, q) => within(r, ti) && within(q, k), (r) => within(r, ti));
    mark(b, (r, q) => within(r, k) && within(q, tj), (_, q) => within(q, tj));
    mark(c, (r, q) => within(r, ti) && within(q, tj), (r, q) => Math.floor(r / TILE) * perRow + Math.floor(q / TILE) < tile);
    frame.setAttribute("transform", `translate(${tj * TILE * pitch} ${ti * TILE * pitch})`);
  };
  if (reducedMotion()) {
    show(19);
    return;
  }
  let at = 0;
  const advance = (): void => {
    if (!document.hidden) show(at++ % total);
  };
  advance();
  setInterval(advance, STEP);
}

const within = (index: number, tile: number): boolean => Math.floor(index / TILE) === tile;

function mark({ cells }: Grid, now: (r: number, c: number) => boolean, used: (r: number, c: number) => boolean): void {
  cells.forEach((row, r) => row.forEach((cell, c) => cell.setAttribute("class", now(r, c) ? "now" : used(r, c) ? "used" : "")));
}
