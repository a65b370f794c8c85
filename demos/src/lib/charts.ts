/** Charts as SVG; a table beside each says the same. */

import { h, s } from "./dom.js";
import { ms } from "./format.js";

export interface Bar {
  readonly label: string;
  readonly value: number;
  readonly series: number;
  readonly text: string;
}

/** Horizontal bars from zero. */
export function bars(rows: readonly Bar[], label: string): SVGSVGElement {
  // text keeps its size on a narrow screen
  const width = Math.max(280, Math.min(480, innerWidth - 90));
  const step = 46;
  const most = Math.max(...rows.map((r) => r.value), 1e-9);
  const chart = s("svg", { class: "chart", viewBox: `0 0 ${width} ${rows.length * step}`, role: "img", "aria-label": label });
  rows.forEach((row, i) => {
    const y = i * step;
    const long = Math.max(2, (row.value / most) * (width - 110));
    chart.append(
      s("text", { x: 0, y: y + 12, class: "strong" }, row.label),
      s("rect", { x: 0, y: y + 18, width: long, height: 14, rx: 3, class: `c${row.series % 4}` }),
      s("text", { x: long + 8, y: y + 29.5 }, row.text),
    );
  });
  return chart;
}

export interface Span {
  readonly label: string;
  readonly start: number;
  readonly duration: number;
  readonly series: number;
}

/** Spans over time, one row each, as a scrollable strip. */
export function timeline(spans: readonly Span[], label: string): SVGSVGElement {
  const width = 760;
  const left = 190;
  const step = 22;
  const end = Math.max(...spans.map((t) => t.start + t.duration), 1e-6);
  const height = spans.length * step + 28;
  const chart = s("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  for (let i = 0; i <= 4; i++) {
    const x = left + ((width - left - 60) * i) / 4;
    chart.append(s("line", { class: "grid", x1: x, x2: x, y1: 18, y2: height }), s("text", { x, y: 10, "text-anchor": "middle" }, i ? ms((end * i) / 4) : "0"));
  }
  const scale = (width - left - 60) / end;
  spans.forEach((span, i) => {
    const y = 24 + i * step;
    const x = left + span.start * scale;
    const long = Math.max(1.5, span.duration * scale);
    chart.append(
      s("text", { x: left - 10, y: y + 12, "text-anchor": "end", class: "strong" }, clip(span.label, 24), s("title", {}, span.label)),
      s("rect", { x, y: y + 2, width: long, height: 14, rx: 2, class: `c${span.series % 4}` }, s("title", {}, `${span.label}: ${ms(span.duration)}`)),
      s("text", { x: x + long + 6, y: y + 13 }, ms(span.duration)),
    );
  });
  return chart;
}

const clip = (text: string, most: number): string => (text.length <= most ? text : `${text.slice(0, most - 1)}…`);

/** The latest values as a line that moves. */
export class Spark {
  readonly element: SVGSVGElement;
  private readonly values: number[] = [];
  private readonly line = s("polyline", { class: "l0", "stroke-width": 1.5, "vector-effect": "non-scaling-stroke" });
  private readonly limit = s("line", { class: "axis", x1: 0, x2: 300, "stroke-dasharray": "3 4", "vector-effect": "non-scaling-stroke" });

  constructor(private readonly count: number, private readonly budget: number, label: string) {
    this.element = s("svg", { class: "spark", viewBox: "0 0 300 80", preserveAspectRatio: "none", role: "img", "aria-label": label }, this.limit, this.line);
  }

  push(value: number): void {
    this.values.push(value);
    if (this.values.length > this.count) this.values.shift();
    const top = Math.max(this.budget * 1.2, ...this.values);
    const y = (v: number): string => (78 - (v / top) * 74).toFixed(1);
    const points = this.values.map((v, i) => `${((i / (this.count - 1)) * 300).toFixed(1)},${y(v)}`);
    this.line.setAttribute("points", points.join(" "));
    this.limit.setAttribute("y1", y(this.budget));
    this.limit.setAttribute("y2", y(this.budget));
  }

  get latest(): readonly number[] {
    return this.values;
  }
}

/** The table that goes with a chart: names first, then figures; the columns in `words` hold text. */
export function table(caption: string, heads: readonly string[], rows: readonly (readonly string[])[], words: readonly string[] = []): HTMLElement {
  const kind = (i: number): string => (i === 0 ? "" : words.includes(heads[i]!) ? "words" : "n");
  const cell = (text: string, i: number): HTMLElement => (i ? h("td", { class: kind(i) }, text) : h("th", { scope: "row" }, text));
  return h("div", { class: "table-wrap", tabindex: 0, role: "region", "aria-label": caption },
    h("table", {}, h("caption", {}, caption),
      h("thead", {}, h("tr", {}, ...heads.map((t, i) => h("th", { scope: "col", class: kind(i) || null }, t)))),
      h("tbody", {}, ...rows.map((r) => h("tr", {}, ...r.map(cell))))));
}
