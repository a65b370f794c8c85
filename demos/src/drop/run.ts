/** Loads the bundle that was made, tests it, and runs it on random inputs at sizes of the visitor's choice. */

import { load, type Dims, type Model, type Outputs, type Port, type StepTime, type Tensor, type TypedArray } from "tang-edge";
import { byId, errorBox, h, nextFrame } from "../lib/dom.js";
import { bytes, median, ms, number, plural } from "../lib/format.js";
import { table, timeline } from "../lib/charts.js";
import { Progress } from "../lib/progress.js";
import { wantedDevice } from "../lib/load.js";
import { fillRandom } from "./random.js";

const RUNS = 7;
/** More spans than this make no readable picture: the longest are shown. */
const SPANS = 36;
const CHOSEN = 64;

export class Runner {
  private model: Model | null = null;
  private dims: Record<string, number> = {};
  private readonly panel = byId("run-panel", HTMLElement);
  private readonly verdict = byId("verdict", HTMLElement);
  private readonly note = byId("run-note", HTMLElement);
  private readonly button = byId("run", HTMLButtonElement);
  private busy = false;

  constructor() {
    this.button.addEventListener("click", () => void this.run());
  }

  clear(): void {
    this.model?.dispose();
    this.model = null;
    this.panel.hidden = true;
    for (const id of ["run-facts", "sizes", "outputs", "timeline"]) byId(id, HTMLElement).replaceChildren();
    this.note.textContent = "";
  }

  async open(bundle: Blob, signal: AbortSignal): Promise<void> {
    this.clear();
    this.panel.hidden = false;
    this.tell("testing", "tag");
    const progress = new Progress("Loading the bundle");
    byId("outputs", HTMLElement).replaceChildren(progress.element);
    try {
      const from = performance.now();
      this.model = await load(bundle, { device: wantedDevice(), verify: "before", cache: "none", signal, onProgress: progress.load });
      this.facts(bundle.size, performance.now() - from);
      this.laySizes();
      await this.run();
    } catch (problem) {
      this.tell("does not run here", "tag bad");
      byId("outputs", HTMLElement).replaceChildren(errorBox(problem));
      throw problem;
    }
  }

  private tell(text: string, kind: string): void {
    this.verdict.textContent = text;
    this.verdict.className = kind;
  }

  private facts(size: number, took: number): void {
    const { report } = this.model!;
    const test = report.selfTest;
    const good = test.outcome === "passed" || test.outcome === "passed after demotions";
    this.tell(test.outcome === "skipped" ? "not tested" : `self-test ${test.outcome}`, good ? "tag good" : "tag warn");
    const facts: [string, string, string][] = [
      ["Device", report.device === "webgpu" ? "WebGPU" : "WebAssembly", report.adapter],
      ["Bundle", bytes(size), report.variant],
      ["Self-test", `${plural(test.runs, "run")}`, test.why || `largest error ${(100 * test.worst).toFixed(1)} % of its tolerance`],
      ["Loaded in", ms(took), report.demotions.length ? report.demotions.map((d) => `${d.name}: ${d.from} gave way to ${d.to} (${d.why})`).join("; ") : "no kernel was demoted"],
    ];
    byId("run-facts", HTMLElement).replaceChildren(...facts.map(([name, value, note]) => h("div", {}, h("dt", {}, name), h("dd", {}, value, h("small", {}, note)))));
  }

  /** A slider a named dimension, from its least to a size that any device bears. */
  private laySizes(): void {
    const { dims } = this.model!;
    this.dims = Object.fromEntries(dims.map((d) => [d.name, usual(d)]));
    byId("sizes", HTMLElement).replaceChildren(...dims.map((d, i) => {
      const out = h("output", { for: `size-${i}` }, String(this.dims[d.name]));
      const input = h("input", {
        id: `size-${i}`, type: "range", min: d.min, max: Math.min(d.max, Math.max(d.min, 1024)), step: d.multiple, value: this.dims[d.name]!,
        input: () => {
          this.dims[d.name] = Number(input.value);
          out.value = input.value;
        },
        change: () => void this.run(),
      });
      return h("div", { class: "field" }, h("label", { for: `size-${i}` }, d.name, out), input);
    }));
  }

  private async run(): Promise<void> {
    const model = this.model;
    if (!model || this.busy) return;
    this.busy = true;
    this.button.disabled = true;
    const host = byId("outputs", HTMLElement);
    try {
      this.note.textContent = "running";
      await nextFrame();
      const inputs = Object.fromEntries(model.inputs.filter((p) => !model.states.some((s) => s.name === p.name)).map((p) => [p.name, randomInput(p, this.dims)]));
      const outputs = await model.run(inputs);
      const times: number[] = [];
      for (let i = 0; i < RUNS; i++) {
        const from = performance.now();
        await model.run(inputs);
        times.push(performance.now() - from);
        // a slow device need not run so often
        if (times.reduce((a, b) => a + b, 0) > 4000) break;
      }
      this.note.textContent = `${ms(median(times))} a run, median of ${times.length}`;
      host.replaceChildren(summary(outputs));
      await this.profile(inputs);
    } catch (problem) {
      this.note.textContent = "";
      host.replaceChildren(errorBox(problem));
    } finally {
      this.busy = false;
      this.button.disabled = false;
    }
  }

  private async profile(inputs: Record<string, Tensor>): Promise<void> {
    const steps = await this.model!.profile(inputs);
    const total = steps.reduce((sum, t) => sum + t.duration, 0);
    const longest = [...steps].sort((a, b) => b.duration - a.duration).slice(0, SPANS).sort((a, b) => a.start - b.start);
    const clock = steps[0]?.clock === "gpu" ? "timestamps of the GPU" : "a clock around each step, which adds to short ones";
    const rest = steps.length > longest.length ? ` The longest ${longest.length} of ${steps.length} steps are drawn.` : "";
    byId("timeline", HTMLElement).replaceChildren(
      h("h3", {}, "Where the time goes"),
      h("p", { class: "caption" }, `${plural(steps.length, "step")}, ${ms(total)} in all, measured by ${clock}.${rest}`),
      h("div", { class: "timeline-box", tabindex: 0, role: "region", "aria-label": "Timeline of the steps" },
        timeline(longest.map((t) => ({ label: t.name, start: t.start, duration: t.duration, series: series(t, total) })), "Time of each step")),
      h("details", {}, h("summary", {}, "As a table"),
        table("Steps, the longest first", ["step", "milliseconds", "share", "kernels"], [...steps].sort((a, b) => b.duration - a.duration).slice(0, 60)
          .map((t) => [t.name, number(t.duration, 3), `${((100 * t.duration) / total).toFixed(1)} %`, t.kernels.join(", ")]), ["kernels"])));
  }
}

const series = (t: StepTime, total: number): number => (t.duration > 0.1 * total ? 0 : t.duration > 0.02 * total ? 3 : 1);

function usual(d: { min: number; max: number; multiple: number }): number {
  const wanted = d.max <= 8 || d.min > CHOSEN ? d.min : Math.min(d.max, d.min === 1 && d.multiple === 1 ? 1 : CHOSEN);
  return Math.max(d.min, Math.floor(wanted / d.multiple) * d.multiple);
}

/** An axis is a number, a dimension, or an expression of them, which only outputs have. */
function randomInput(port: Port, dims: Dims): Tensor {
  const shape = port.shape.map((n) => {
    const size = typeof n === "number" ? n : dims[n];
    if (size === undefined) throw new Error(`The size ${n} of the input ${port.name} is computed from others: this page cannot choose it.`);
    return size;
  });
  return { dtype: port.dtype, shape, data: fillRandom(port.dtype, shape.reduce((a, b) => a * b, 1)) };
}

function summary(outputs: Outputs): HTMLElement {
  const rows = Object.entries(outputs).map(([name, t]) => {
    const { least, most, mean } = range(t.data);
    return [name, `${t.dtype} [${t.shape.join(", ")}]`, number(least), number(most), number(mean), Array.from(t.data.slice(0, 4) as Float32Array, (v) => number(Number(v), 3)).join(", ")];
  });
  return table("Outputs", ["name", "type", "least", "greatest", "mean", "first values"], rows, ["type", "first values"]);
}

function range(data: TypedArray): { least: number; most: number; mean: number } {
  let [least, most, sum] = [Infinity, -Infinity, 0];
  for (const raw of data) {
    const v = Number(raw);
    least = Math.min(least, v);
    most = Math.max(most, v);
    sum += v;
  }
  return data.length ? { least, most, mean: sum / data.length } : { least: NaN, most: NaN, mean: NaN };
}
