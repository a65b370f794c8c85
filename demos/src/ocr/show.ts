/** Shows a reading: boxes and text over the picture, the lines as a list, the time of each stage. */

import { h, s } from "../lib/dom.js";
import { ms } from "../lib/format.js";
import { corners } from "./geometry.js";
import type { Line, Reading, Stage } from "./reader.js";

export interface Overlay { readonly width: number; readonly height: number; readonly boxes: boolean; readonly text: boolean }

export function drawOverlay(overlay: SVGSVGElement, lines: readonly Line[], { width, height, boxes, text }: Overlay): void {
  overlay.setAttribute("viewBox", `0 0 ${width} ${height}`);
  overlay.classList.toggle("with-text", text);
  overlay.replaceChildren(...lines.map((line) => {
    const points = corners(line.box).map((p) => `${p.x.toFixed(1)},${p.y.toFixed(1)}`).join(" ");
    const turned = line.box.height >= 1.5 * line.box.width;
    const angle = (Math.atan2(line.box.along.y, line.box.along.x) * 180) / Math.PI + (turned ? 90 : 0) + (line.upsideDown ? 180 : 0);
    const [long, deep] = turned ? [line.box.height, line.box.width] : [line.box.width, line.box.height];
    const words = s("text", {
      transform: `translate(${line.box.centre.x.toFixed(1)} ${line.box.centre.y.toFixed(1)}) rotate(${angle.toFixed(2)})`,
      "font-size": (deep * 0.62).toFixed(1), "text-anchor": "middle", dy: "0.35em", textLength: Math.max(8, long * 0.9).toFixed(1), lengthAdjust: "spacingAndGlyphs",
    }, line.text);
    return s("g", { class: "hit" }, boxes || text ? s("polygon", { points, class: boxes ? "box" : "" }) : null, words);
  }));
}

export function showLines(list: HTMLElement, lines: readonly Line[], lit: (index: number) => void): void {
  if (!lines.length) {
    list.replaceChildren(h("li", { class: "quiet" }, "No text was found. More detail may help with small letters."));
    return;
  }
  list.replaceChildren(...lines.map((line, i) => {
    const sure = `${Math.round(line.confidence * 100)} %`;
    return h("li", { mouseenter: () => lit(i), mouseleave: () => lit(-1) },
      h("span", { class: "line-text" }, line.text),
      h("span", { class: "tag", title: "confidence" }, line.upsideDown ? `turned, ${sure}` : sure));
  }));
}

const NAMES: Readonly<Record<Stage, string>> = { prepare: "prepare", detect: "find text", boxes: "boxes", turn: "turn", read: "read" };

export function showTiming(host: HTMLElement, { milliseconds, size }: Reading): void {
  const stages = (Object.keys(NAMES) as Stage[]).map((stage) => ({ stage, time: milliseconds[stage] }));
  const total = stages.reduce((sum, x) => sum + x.time, 0);
  const strip = h("div", { class: "strip", "aria-hidden": true }, ...stages.map((x, i) => h("i", { class: `k${i}`, style: `flex-grow:${x.time}` })));
  const rows = stages.map((x, i) => h("div", {}, h("dt", {}, h("i", { class: `dot k${i}` }), NAMES[x.stage]), h("dd", { class: "numbers" }, ms(x.time))));
  host.replaceChildren(strip, h("dl", { class: "times" }, ...rows, h("div", {}, h("dt", {}, "together"), h("dd", { class: "numbers" }, ms(total)))),
    h("p", { class: "caption" }, `The detector saw ${size.width} × ${size.height} pixels.`));
}
