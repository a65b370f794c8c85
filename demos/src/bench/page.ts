/** The benchmark page. Programs use `window.tangBenchmark(options)`, which gives the results as data. */

import { byId, errorBox, h } from "../lib/dom.js";
import { bytes, ms } from "../lib/format.js";
import { bars, table } from "../lib/charts.js";
import { Progress } from "../lib/progress.js";
import { start } from "../lib/shell.js";
import { site } from "../lib/site.js";
import { measure, type Results, type SideResult } from "./measure.js";
import { SHAPES, SIDES } from "./sides.js";

declare global {
  interface Window { tangBenchmark: typeof measure }
}
window.tangBenchmark = measure;

const form = byId("setup", HTMLFormElement);
const begin = byId("start", HTMLButtonElement);
const stop = byId("stop", HTMLButtonElement);
const host = byId("bench-progress", HTMLElement);
const status = byId("bench-status", HTMLElement);
let job: AbortController | null = null;
let latest: Results | null = null;

async function setUp(): Promise<void> {
  const held = await site();
  const select = byId("model", HTMLSelectElement);
  select.append(...Object.keys(SHAPES).filter((n) => held.models[n]).map((n) => h("option", { value: n }, held.models[n]!.title)));
  const wanted = new URLSearchParams(location.search).get("model");
  select.value = wanted && held.models[wanted] ? wanted : "ppocr-cls" in held.models ? "ppocr-cls" : select.options[0]?.value ?? "";
  const boxes = await Promise.all(SIDES.map(async (s) => {
    const why = await s.lacks();
    return h("label", { class: "choice", title: why || null }, h("input", { type: "checkbox", value: s.id, checked: !why, disabled: Boolean(why) }), s.label);
  }));
  byId("sides", HTMLElement).replaceChildren(...boxes);
  byId("isolated", HTMLElement).textContent = crossOriginIsolated ? "This page is isolated: threads can be measured." : "Threads need an isolated page: tang-edge demo --isolate.";
}

async function run(): Promise<void> {
  job = new AbortController();
  const progress = new Progress("Starting");
  host.replaceChildren(progress.element);
  begin.disabled = true;
  stop.disabled = false;
  try {
    const sides = [...document.querySelectorAll<HTMLInputElement>("#sides input:checked")].map((i) => i.value);
    if (!sides.length) throw new Error("Choose at least one side.");
    latest = await measure({
      model: byId("model", HTMLSelectElement).value, rounds: Number(byId("rounds", HTMLInputElement).value), sides, signal: job.signal,
      onProgress: (what, done, total) => progress.show(what, done, total),
    });
    host.replaceChildren();
    show(latest);
    status.textContent = "Measured";
  } catch (problem) {
    host.replaceChildren(job.signal.aborted ? h("p", { class: "quiet" }, "Stopped.") : errorBox(problem));
  } finally {
    begin.disabled = false;
    stop.disabled = true;
  }
}

function show(results: Results): void {
  const good = results.sides.filter((s) => !s.problem);
  byId("results", HTMLElement).hidden = false;
  const chart = (pick: (s: SideResult) => number, label: string): SVGSVGElement =>
    bars(good.map((s) => ({ label: s.label, value: pick(s), series: s.series, text: ms(pick(s)) })), label);
  byId("steady", HTMLElement).replaceChildren(chart((s) => s.steady, `Median time of one run: ${spoken(good, (s) => s.steady)}`), verdict(good));
  byId("cold", HTMLElement).replaceChildren(chart((s) => s.cold, `Time to the first answer: ${spoken(good, (s) => s.cold)}`),
    h("p", { class: "caption" }, "From the import of the runtime to the first answer. Only the first measurement after loading the page fetches the runtimes."));
  const rows = results.sides.map((s) => s.problem ? [s.label, "–", "–", "–", "–", "–", s.problem] : [
    s.label, ms(s.steady), ms(s.cold), s.bytes.runtime ? bytes(s.bytes.runtime) : "had it", bytes(s.bytes.model), Number.isFinite(s.heap) ? bytes(Math.max(0, s.heap)) : "not told", s.where,
  ]);
  byId("figures", HTMLElement).replaceChildren(table(`${results.model}, ${Object.entries(results.shapes).map(([n, x]) => `${n} [${x.join(", ")}]`).join(", ")}, ${results.rounds} rounds`,
    ["side", "one run", "first answer", "runtime", "model", "heap", "where"], rows, ["where"]));
  byId("bench-caption", HTMLElement).textContent = `Answers were compared with ${results.reference}. Bytes as fetched; heap: growth of the JavaScript heap until the first answer. ${results.browser}`;
}

const spoken = (sides: readonly SideResult[], pick: (s: SideResult) => number): string => sides.map((s) => `${s.label} ${ms(pick(s))}`).join(", ");

/** How the two runtimes compare on each device, in words. */
function verdict(sides: readonly SideResult[]): HTMLElement {
  const by = new Map(sides.map((s) => [s.id, s]));
  const lines = [["webgpu", "WebGPU"], ["wasm", "WebAssembly"], ["wasm-threads", "WebAssembly with threads"]].flatMap(([id, name]) => {
    const [own, peer] = [by.get(`tang-${id}`), by.get(`ort-${id}`)];
    if (!own || !peer) return [];
    const ratio = peer.steady / own.steady;
    return [`${name}: tang-edge ${ratio >= 1 ? `is ${ratio.toFixed(2)} times as fast` : `takes ${(1 / ratio).toFixed(2)} times as long`}`];
  });
  return h("p", { class: "caption" }, lines.join(". "), lines.length ? "." : "");
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  void run();
});
stop.addEventListener("click", () => job?.abort());
byId("rounds", HTMLInputElement).addEventListener("input", (event) => {
  byId("rounds-value", HTMLOutputElement).value = (event.target as HTMLInputElement).value;
});
byId("save-results", HTMLButtonElement).addEventListener("click", () => {
  const url = URL.createObjectURL(new Blob([JSON.stringify(latest, null, 1)], { type: "application/json" }));
  h("a", { href: url, download: `tang-edge-benchmark-${latest?.model ?? ""}.json` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
});
void start();
setUp().catch((problem: unknown) => host.replaceChildren(errorBox(problem)));
