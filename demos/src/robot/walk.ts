/** The quadruped: the policy is asked fifty times a second, its answers move the body. */

import type { Model } from "tang-edge";
import { byId, errorBox, h, words } from "../lib/dom.js";
import { median, ms } from "../lib/format.js";
import { Spark } from "../lib/charts.js";
import { loadModel } from "../lib/load.js";
import { Cells } from "./cells.js";
import { Quadruped, TICK, Trim } from "./quadruped.js";
import type { Vec } from "./space.js";
import { WalkerView } from "./walker-view.js";

const NAMES = ["forward", "sideways", "turning"] as const;
/** The most that the command may change in a tick. */
const SLEW: Vec = [0.05, 0.04, 0.1];
const SHOWN = 8;

export class Walk {
  private robot = new Quadruped();
  private readonly view = new WalkerView();
  private readonly spark = new Spark(150, TICK * 1000, "Answer time of the latest calls");
  private readonly sees = new Cells("The 45 numbers that the policy sees", [["spin", 3], ["gravity", 3], ["command", 3], ["joint angles", 12], ["joint rates", 12], ["last actions", 12]], 3);
  private readonly says = new Cells("The 12 numbers that the policy answers", [["front right", 3], ["front left", 3], ["rear right", 3], ["rear left", 3]], 6);
  private command: Vec = [0, 0, 0];
  private trim = new Trim();
  /** Smoothed for the eye. */
  private shown: Vec = [0, 0, 0];
  private paused = false;
  private drawing = false;
  private ticks = 0;
  private began = 0;
  private pace = 1;
  private readonly state = byId("walk-state", HTMLElement);
  private readonly facts = byId("walk-facts", HTMLElement);
  private readonly stage = byId("walk-stage", HTMLElement);
  private readonly inputs = NAMES.map((n) => byId(n, HTMLInputElement));

  constructor() {
    this.stage.append(this.view.element);
    byId("latency", HTMLElement).append(this.spark.element);
    byId("cells", HTMLElement).append(this.sees.element, this.says.element);
    this.view.draw(this.robot);
    this.wire();
  }

  async start(): Promise<void> {
    try {
      const model = await loadModel("go2-policy");
      this.state.textContent = `${model.report.device === "webgpu" ? "WebGPU" : "WebAssembly"}, 50 Hz`;
      this.state.classList.add("good");
      await this.loop(model);
    } catch (problem) {
      this.state.textContent = "stopped";
      this.state.className = "tag bad";
      this.stage.prepend(errorBox(problem));
      console.warn(words(problem));
    }
  }

  private async loop(model: Model): Promise<void> {
    this.began = performance.now();
    let due = this.began;
    for (;;) {
      if (this.paused || document.hidden) {
        await new Promise((done) => setTimeout(done, 100));
        due = performance.now();
        continue;
      }
      await this.tick(model);
      due += TICK * 1000;
      const wait = due - performance.now();
      // when an answer is late the clock goes on from now: the robot is slower then, not hasty
      if (wait < -100) due = performance.now();
      await new Promise((done) => setTimeout(done, Math.max(0, wait)));
    }
  }

  private async tick(model: Model): Promise<void> {
    this.steer();
    const seen = this.robot.observe(this.trim.apply(this.command, this.robot.motion));
    const from = performance.now();
    const { actions } = await model.run({ obs: seen });
    const took = performance.now() - from;
    this.robot.act(actions!.data as Float32Array);
    this.robot.advance();
    if (this.robot.fallen) this.fresh("it fell, and starts again");
    this.ticks += 1;
    this.shown = this.shown.map((v, i) => v + 0.04 * (this.robot.motion[i]! - v)) as unknown as Vec;
    this.spark.push(took);
    this.redraw();
    if (this.ticks % SHOWN === 0) this.tell(seen);
  }

  /** Once a frame: a screen may be slower than the loop. */
  private redraw(): void {
    if (this.drawing) return;
    this.drawing = true;
    requestAnimationFrame(() => {
      this.drawing = false;
      this.view.draw(this.robot);
    });
  }

  private steer(): void {
    const wanted = this.inputs.map((i) => Number(i.value));
    this.command = this.command.map((now, i) => now + Math.max(-SLEW[i]!, Math.min(SLEW[i]!, wanted[i]! - now))) as unknown as Vec;
  }

  private tell(seen: Float32Array): void {
    const now = performance.now();
    this.pace += 0.25 * ((SHOWN * TICK * 1000) / (now - this.began) - this.pace);
    this.began = now;
    this.sees.show(seen);
    this.says.show(this.robot.actions);
    const latest = this.spark.latest;
    const facts: [string, string][] = [
      ["Forward", `${this.shown[0].toFixed(2)} m/s`], ["Left", `${this.shown[1].toFixed(2)} m/s`], ["Turning", `${this.shown[2].toFixed(2)} rad/s`],
      ["Median answer", ms(median(latest))], ["Slowest of 150", ms(Math.max(...latest))], ["Of real time", `${Math.round(Math.min(1, this.pace) * 100)} %`],
    ];
    this.facts.replaceChildren(...facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
    this.stage.dataset["ticks"] = String(this.ticks);
    this.stage.dataset["position"] = this.robot.position.map((v) => v.toFixed(3)).join(" ");
  }

  private fresh(why: string): void {
    this.robot = new Quadruped();
    this.trim = new Trim();
    this.command = [0, 0, 0];
    this.view.forget();
    byId("walk-facts", HTMLElement).dataset["why"] = why;
  }

  private wire(): void {
    for (const input of this.inputs) {
      const out = input.parentElement!.querySelector("output")!;
      const show = (): void => void (out.value = `${Number(input.value).toFixed(2)} ${input.dataset["unit"]}`);
      input.addEventListener("input", show);
      show();
    }
    byId("push", HTMLButtonElement).addEventListener("click", () => this.push());
    byId("reset", HTMLButtonElement).addEventListener("click", () => this.fresh("asked"));
    const pause = byId("pause", HTMLButtonElement);
    pause.addEventListener("click", () => {
      this.paused = !this.paused;
      pause.setAttribute("aria-pressed", String(this.paused));
      pause.textContent = this.paused ? "Go on" : "Pause";
    });
    this.stage.addEventListener("keydown", (event) => this.key(event));
    turnable(this.stage, this.view.camera, () => this.view.draw(this.robot));
  }

  private push(): void {
    this.robot.push([0, Math.random() < 0.5 ? 0.9 : -0.9, 0.2]);
  }

  private key(event: KeyboardEvent): void {
    const moves: Readonly<Record<string, readonly [number, number]>> = {
      ArrowUp: [0, 0.1], ArrowDown: [0, -0.1], ArrowLeft: [2, 0.1], ArrowRight: [2, -0.1], a: [1, 0.1], d: [1, -0.1],
    };
    const move = moves[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (event.key === "0") for (const input of this.inputs) set(input, 0);
    else if (event.key === " ") this.push();
    else if (move) set(this.inputs[move[0]]!, Number(this.inputs[move[0]]!.value) + move[1]);
    else return;
    event.preventDefault();
  }
}

function set(input: HTMLInputElement, value: number): void {
  input.value = String(value);
  input.dispatchEvent(new Event("input"));
}

/** Dragging turns the camera. */
export function turnable(stage: HTMLElement, camera: { azimuth: number; elevation: number }, redraw: () => void): void {
  stage.addEventListener("pointerdown", (event) => {
    stage.setPointerCapture(event.pointerId);
    const move = (to: PointerEvent): void => {
      camera.azimuth -= to.movementX * 0.008;
      camera.elevation = Math.max(0.05, Math.min(1.3, camera.elevation + to.movementY * 0.006));
      redraw();
    };
    stage.addEventListener("pointermove", move);
    for (const end of ["pointerup", "pointercancel"]) stage.addEventListener(end, () => stage.removeEventListener("pointermove", move), { once: true });
  });
}
