/** The head: sliders for the pose or for the motors; one network answers each way. */

import type { Model } from "tang-edge";
import { byId, errorBox, h } from "../lib/dom.js";
import { ms } from "../lib/format.js";
import { loadModel } from "../lib/load.js";
import { readGeometry, rods, type Geometry, type Pose } from "./head.js";
import { HeadView } from "./head-view.js";
import { turnable } from "./walk.js";

interface Control { readonly name: string; readonly unit: "mm" | "°"; readonly reach: number }
const DEGREE = Math.PI / 180;
const POSE: readonly Control[] = [
  { name: "Forward", unit: "mm", reach: 15 }, { name: "Left", unit: "mm", reach: 15 }, { name: "Up", unit: "mm", reach: 15 },
  { name: "Roll", unit: "°", reach: 20 }, { name: "Pitch", unit: "°", reach: 20 }, { name: "Yaw", unit: "°", reach: 40 },
];
const MOTORS: readonly Control[] = ["Body", ...[1, 2, 3, 4, 5, 6].map((i) => `Motor ${i}`)].map((name) => ({ name, unit: "°" as const, reach: 60 }));
const scale = ({ unit }: Control): number => (unit === "mm" ? 0.001 : DEGREE);

export class Head {
  private pose: number[] = POSE.map(() => 0);
  private motors: number[] = MOTORS.map(() => 0);
  private back: number[] = POSE.map(() => 0);
  private mode: "pose" | "motors" = "pose";
  private nodding = false;
  private nods = 0;
  private asked = 0;
  private took = 0;
  private readonly state = byId("head-state", HTMLElement);
  private readonly controls = byId("head-controls", HTMLElement);

  private constructor(private readonly forward: Model, private readonly inverse: Model, private readonly geometry: Geometry, private readonly view: HeadView) {
    this.wire();
    this.layControls();
    this.state.textContent = inverse.report.device === "webgpu" ? "WebGPU" : "WebAssembly";
    this.state.classList.add("good");
  }

  static async start(): Promise<void> {
    const stage = byId("head-stage", HTMLElement);
    try {
      const answer = await fetch("models/reachy-geometry.json");
      if (!answer.ok) throw new Error("The head's geometry (models/reachy-geometry.json) is not in this copy of the site.");
      const geometry = readGeometry(await answer.json() as Parameters<typeof readGeometry>[0]);
      const view = new HeadView(geometry);
      stage.append(view.element);
      view.draw([0, 0, 0, 0, 0, 0], [0, 0.54, -0.69, 0.62, -0.62, 0.69, -0.55]);
      const inverse = await loadModel("reachy-ik");
      const head = new Head(await loadModel("reachy-fk"), inverse, geometry, view);
      turnable(stage, view.camera, () => head.draw());
      await head.solve();
    } catch (problem) {
      stage.append(errorBox(problem));
      byId("head-state", HTMLElement).textContent = "stopped";
      byId("head-state", HTMLElement).className = "tag bad";
    }
  }

  /** Asks the networks; an answer that a later question has overtaken is dropped. */
  private async solve(): Promise<void> {
    const mine = ++this.asked;
    const from = performance.now();
    if (this.mode === "pose") this.motors = await ask(this.inverse, this.pose);
    this.back = await ask(this.forward, this.motors);
    if (mine !== this.asked) return;
    this.took = performance.now() - from;
    if (this.mode === "motors") this.pose = [...this.back];
    this.draw();
    this.tell();
  }

  private draw(): void {
    this.view.draw(this.pose as unknown as Pose, this.motors);
  }

  private tell(): void {
    const angle = (v: number): string => `${(v / DEGREE).toFixed(1)}°`;
    const answer = this.mode === "pose" ? MOTORS.map((m, i) => [m.name, angle(this.motors[i]!)] as const) : POSE.map((c, i) => [c.name, text(c, this.pose[i]!)] as const);
    byId("head-answer", HTMLElement).textContent = this.mode === "pose" ? "Motor angles that give this pose" : "The pose that these motors give";
    byId("head-table", HTMLElement).replaceChildren(...answer.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
    const lengths = rods(this.geometry, this.pose as unknown as Pose, this.motors).map((r) => Math.abs(r.length - this.geometry.rod) * 1000);
    const there = Math.hypot(...[0, 1, 2].map((i) => (this.back[i]! - this.pose[i]!) * 1000));
    const turned = Math.hypot(...[3, 4, 5].map((i) => (this.back[i]! - this.pose[i]!) / DEGREE));
    const facts: [string, string][] = [
      ["Both answers", ms(this.took)], ["Rods off by at most", `${Math.max(...lengths).toFixed(1)} mm`],
      ...(this.mode === "pose" ? [["There and back", `${there.toFixed(1)} mm, ${turned.toFixed(1)}°`] as [string, string]] : []),
    ];
    byId("head-facts", HTMLElement).replaceChildren(...facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
  }

  private layControls(): void {
    const [list, values] = this.mode === "pose" ? [POSE, this.pose] : [MOTORS, this.motors];
    this.controls.replaceChildren(...list.map((c, i) => {
      const out = h("output", { for: `head-${i}` }, text(c, values[i]!));
      const input = h("input", {
        id: `head-${i}`, type: "range", min: -c.reach, max: c.reach, step: c.unit === "mm" ? 0.5 : 1, value: values[i]! / scale(c),
        input: () => {
          this.stopNodding();
          values[i] = Number(input.value) * scale(c);
          out.value = text(c, values[i]);
          void this.solve();
        },
      });
      return h("div", { class: "field" }, h("label", { for: `head-${i}` }, c.name, out), input);
    }));
  }

  private wire(): void {
    for (const radio of document.querySelectorAll<HTMLInputElement>("input[name=mode]")) {
      radio.addEventListener("change", () => {
        this.stopNodding();
        this.mode = radio.value === "motors" ? "motors" : "pose";
        this.layControls();
        void this.solve();
      });
    }
    byId("head-rest", HTMLButtonElement).addEventListener("click", () => {
      this.stopNodding();
      this.pose.fill(0);
      const mode = this.mode;
      this.mode = "pose";
      void this.solve().then(() => {
        this.mode = mode;
        this.layControls();
        this.tell();
      });
    });
    byId("head-nod", HTMLButtonElement).addEventListener("click", () => (this.nodding ? this.stopNodding() : this.nod()));
  }

  private nod(): void {
    this.mode = "pose";
    document.querySelector<HTMLInputElement>("input[name=mode][value=pose]")!.checked = true;
    const button = byId("head-nod", HTMLButtonElement);
    button.setAttribute("aria-pressed", "true");
    button.textContent = "Hold still";
    const mine = ++this.nods;
    this.nodding = true;
    const begin = performance.now();
    const step = async (): Promise<void> => {
      if (!this.nodding || this.nods !== mine) return;
      const t = (performance.now() - begin) / 1000;
      this.pose = [0.004 * Math.sin(t * 1.1), 0.004 * Math.sin(t * 0.7), 0.006 * Math.sin(t * 2.2), 0.12 * Math.sin(t * 1.3), 0.2 * Math.sin(t * 2.1), 0.5 * Math.sin(t * 0.8)];
      await this.solve();
      this.layControls();
      requestAnimationFrame(() => void step());
    };
    void step();
  }

  private stopNodding(): void {
    if (!this.nodding) return;
    this.nodding = false;
    const button = byId("head-nod", HTMLButtonElement);
    button.setAttribute("aria-pressed", "false");
    button.textContent = "Nod along";
  }
}

const text = (c: Control, value: number): string => `${(value / scale(c)).toFixed(1)}${c.unit === "°" ? "°" : " mm"}`;

async function ask(model: Model, values: readonly number[]): Promise<number[]> {
  const outputs = await model.run({ [model.inputs[0]!.name]: Float32Array.from(values) });
  return Array.from(Object.values(outputs)[0]!.data as Float32Array);
}
