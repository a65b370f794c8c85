/** What goes into a network and comes out of it, as bars around zero. */

import { h, s } from "../lib/dom.js";

const WIDTH = 405;
const HALF = 15;

export class Cells {
  readonly element: HTMLElement;
  private readonly bars: SVGRectElement[];

  constructor(label: string, groups: readonly (readonly [string, number])[], private readonly reach: number) {
    const count = groups.reduce((sum, [, n]) => sum + n, 0);
    const step = WIDTH / count;
    const gap = Math.min(2, step / 8);
    this.bars = Array.from({ length: count }, (_, i) => s("rect", { x: i * step + gap, width: step - 2 * gap, y: HALF, height: 0, rx: 1.5 }));
    const marks: SVGElement[] = [];
    let at = 0;
    for (const [name, n] of groups) {
      marks.push(s("line", { x1: at * step, x2: at * step, y1: 0, y2: 2 * HALF, class: "axis" }, s("title", {}, name)));
      at += n;
    }
    this.element = h("figure", {},
      s("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${2 * HALF}`, role: "img", "aria-label": label },
        s("line", { x1: 0, x2: WIDTH, y1: HALF, y2: HALF, class: "grid" }), ...marks, ...this.bars),
      h("figcaption", { class: "faint small" }, groups.map(([name]) => name).join(" · ")));
  }

  show(values: ArrayLike<number>): void {
    this.bars.forEach((bar, i) => {
      const size = Math.min(HALF, (Math.abs(values[i]!) / this.reach) * HALF);
      bar.setAttribute("height", size.toFixed(1));
      bar.setAttribute("y", (values[i]! > 0 ? HALF - size : HALF).toFixed(1));
      bar.setAttribute("class", values[i]! > 0 ? "plus" : "minus");
    });
  }
}
