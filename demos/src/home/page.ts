/** The first page: what this is, and a small model that is checked and run at once. */

import { byId, errorBox, h } from "../lib/dom.js";
import { bytes, median, ms, plural } from "../lib/format.js";
import { Progress } from "../lib/progress.js";
import { start } from "../lib/shell.js";
import { loadModel } from "../lib/load.js";
import { highlight } from "../lib/highlight.js";
import { tiles } from "./tiles.js";
import type { Report } from "tang-edge";

const RUNS = 25;

async function check(): Promise<void> {
  const state = byId("live-state", HTMLElement);
  const host = byId("live-progress", HTMLElement);
  const progress = new Progress("Loading the kinematics of a robot's head");
  host.append(progress.element);
  try {
    const begin = performance.now();
    const model = await loadModel("reachy-ik", { verify: "before", onProgress: progress.load });
    const loaded = performance.now() - begin;
    const pose = Float32Array.of(0, 0, 0.01, 0.1, -0.1, 0.2);
    const times: number[] = [];
    for (let i = 0; i < RUNS; i++) {
      const from = performance.now();
      await model.run({ [model.inputs[0]!.name]: pose });
      times.push(performance.now() - from);
    }
    show(model.report, loaded, median(times.slice(3)));
    state.textContent = "checked";
    state.className = "tag good";
    model.dispose();
  } catch (problem) {
    state.textContent = "did not run";
    state.className = "tag bad";
    host.replaceChildren(errorBox(problem));
    return;
  }
  host.replaceChildren();
}

function show(report: Report, loaded: number, run: number): void {
  const { selfTest, bytes: b } = report;
  const facts: [string, string, string?][] = [
    ["Device", report.device === "webgpu" ? "WebGPU" : "WebAssembly", report.adapter],
    ["Self-test", selfTest.outcome, `${plural(selfTest.runs, "run")} of ${plural(selfTest.vectors, "vector")}`],
    ["Largest error", `${(100 * selfTest.worst).toFixed(selfTest.worst < 0.1 ? 1 : 0)} %`, "of its tolerance"],
    ["One answer", ms(run), `median of ${RUNS} runs`],
    ["From nothing to ready", ms(loaded), b.downloaded ? `${bytes(b.downloaded)} fetched` : `${bytes(b.fromStorage)} from this browser's storage`],
  ];
  byId("live-facts", HTMLElement).replaceChildren(...facts.map(([name, value, note]) =>
    h("div", {}, h("dt", {}, name), h("dd", {}, value, note ? h("small", {}, note) : null))));
  const why = report.considered.map((c) => `${c.device}: ${c.why}`).join("; ");
  byId("live-caption", HTMLElement).textContent = `The inverse kinematics of a robot's head, 75 kB of ONNX, tested against its golden vectors before the first answer. Choice of the device: ${why}.`;
}

tiles(byId("tiles", HTMLElement));
const example = byId("example", HTMLElement);
example.replaceChildren(highlight(example.textContent, "js"));
void start();
void check();
