/** A labelled progress bar. */

import type { Progress as Load } from "tang-edge";
import { h } from "./dom.js";
import { bytes } from "./format.js";

const STAGES: Readonly<Record<Load["stage"], string>> = {
  manifest: "Reading the manifest", kernels: "Reading the kernels", weights: "Weights", pipelines: "Compiling for this device",
  "self-test": "Testing the kernels on this device", ready: "Ready",
};

export class Progress {
  readonly element: HTMLElement;
  private readonly label = h("span");
  private readonly value = h("span", { class: "numbers faint" });
  private readonly fill = h("i");
  private readonly bar: HTMLElement;

  constructor(label: string) {
    this.bar = h("div", { class: "bar", role: "progressbar", "aria-label": label, "aria-valuemin": 0, "aria-valuemax": 100 }, this.fill);
    this.element = h("div", { class: "progress indeterminate" }, h("div", { class: "line" }, this.label, this.value), this.bar);
    this.label.textContent = label;
  }

  /** `total` 0: it is not known how much there is. */
  show(label: string, done: number, total: number, value = ""): void {
    this.label.textContent = label;
    this.value.textContent = value;
    this.element.classList.toggle("indeterminate", total <= 0);
    if (total <= 0) {
      this.bar.removeAttribute("aria-valuenow");
      return;
    }
    const share = Math.min(100, (100 * done) / total);
    this.fill.style.width = `${share}%`;
    this.bar.setAttribute("aria-valuenow", share.toFixed(0));
  }

  readonly load = (p: Load): void => {
    const value = p.stage === "weights" ? `${bytes(p.done)} of ${bytes(p.total)}` : p.total > 1 ? `${p.done} of ${p.total}` : "";
    this.show(STAGES[p.stage], p.stage === "ready" ? 1 : p.done, p.stage === "ready" ? 1 : p.total, value);
  };

  done(label: string): void {
    this.show(label, 1, 1);
    this.element.dataset["done"] = "true";
  }
}
