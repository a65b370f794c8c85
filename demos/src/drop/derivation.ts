/** Shows a compile while it happens: its stages, what each pass changed, the kernels that came out. */

import { byId, h } from "../lib/dom.js";
import { ms, plural } from "../lib/format.js";
import { highlight } from "../lib/highlight.js";
import { counts, difference, showDifference, type Piece } from "./difference.js";
import { ChoiceList, tabs } from "./list.js";
import type { CompileEvent, KernelEvent, PassEvent } from "../../compiler/events.js";

interface SeenPass { readonly event: PassEvent; readonly pieces: readonly Piece[] }

export class Derivation {
  private readonly passes: SeenPass[] = [];
  private readonly kernels: KernelEvent[] = [];
  private readonly stages = new Map<string, { readonly item: HTMLElement; readonly begin: number }>();
  private running: string | null = null;
  private readonly passList = new ChoiceList(byId("pass-list", HTMLElement), (i) => this.showPass(i));
  private readonly kernelList = new ChoiceList(byId("kernel-list", HTMLElement), (i) => this.showKernel(i));
  private readonly panel = byId("derivation", HTMLElement);
  private readonly stageList = byId("stages", HTMLElement);
  private readonly status = byId("build-status", HTMLElement);

  constructor() {
    tabs(this.panel.querySelector<HTMLElement>("[role=tablist]")!);
  }

  clear(): void {
    this.passes.length = 0;
    this.kernels.length = 0;
    this.stages.clear();
    this.running = null;
    this.passList.clear();
    this.kernelList.clear();
    this.stageList.replaceChildren();
    this.panel.hidden = true;
  }

  take(event: CompileEvent): void {
    if (event.kind === "stage") this.stage(event.name, event.done, event.total);
    else if (event.kind === "pass") this.pass(event);
    else if (event.kind === "kernel") this.kernel(event);
  }

  /** A stage that begins ends the one before. */
  stage(name: string, done = 0, total = 0): void {
    if (this.running !== name) {
      this.end();
      this.running = name;
    }
    let stage = this.stages.get(name);
    if (!stage) {
      stage = { item: h("li", { class: "stage-item" }, h("span", { class: "stage-name" }, name), h("span", { class: "stage-time numbers" })), begin: performance.now() };
      this.stages.set(name, stage);
      this.stageList.append(stage.item);
      this.status.textContent = name;
    }
    stage.item.dataset["state"] = "running";
    stage.item.lastElementChild!.textContent = total > 1 ? `${done} of ${total}` : "";
  }

  end(failed = false): void {
    const stage = this.running === null ? undefined : this.stages.get(this.running);
    this.running = null;
    if (!stage) return;
    stage.item.dataset["state"] = failed ? "failed" : "done";
    stage.item.lastElementChild!.textContent = ms(performance.now() - stage.begin);
  }

  private pass(event: PassEvent): void {
    const pieces = event.before === null || !event.changed ? event.after.split("\n").map((text): Piece => ({ kind: "same", text })) : difference(event.before, event.after);
    this.passes.push({ event, pieces });
    const { gone, fresh } = counts(pieces);
    const note = event.before === null ? plural(event.binds, "bind") : gone || fresh ? `−${gone} +${fresh}` : "no change";
    this.panel.hidden = false;
    this.passList.add(event.name, note, event.doc);
    // the last pass that changed something is the most telling one
    if (gone || fresh) this.passList.choose(this.passes.length - 1);
    this.count();
  }

  private kernel(event: KernelEvent): void {
    this.kernels.push(event);
    this.panel.hidden = false;
    this.kernelList.add(event.name, plural(event.text.split("\n").length, "line"), event.origin.join(", "));
    this.count();
  }

  private count(): void {
    byId("derivation-count", HTMLElement).textContent = `${plural(this.passes.length, "program")}, ${plural(this.kernels.length, "kernel")}`;
  }

  private showPass(index: number): void {
    const seen = this.passes[index];
    if (!seen) return;
    const { event, pieces } = seen;
    const body = event.before === null ? h("pre", { class: "code" }, highlight(event.after.slice(0, 60_000), "te")) : showDifference(pieces);
    byId("pass-text", HTMLElement).replaceChildren(h("p", { class: "reader-title" }, h("strong", {}, event.name), `: ${event.doc}. ${plural(event.binds, "bind")}${event.whole ? "" : ", of which the first are shown"}.`), body);
  }

  private showKernel(index: number): void {
    const event = this.kernels[index];
    if (!event) return;
    byId("kernel-text", HTMLElement).replaceChildren(
      h("p", { class: "reader-title" }, h("strong", {}, event.name), ` ${event.variant}`, event.origin.length ? h("span", { class: "faint" }, ` from ${event.origin.join(", ")}`) : ""),
      h("pre", { class: "code" }, highlight(event.text, "wgsl")));
  }
}
