/** The drop zone: from an ONNX file to a running bundle, without leaving the page. */

import { byId, errorBox, h } from "../lib/dom.js";
import { bytes } from "../lib/format.js";
import { start } from "../lib/shell.js";
import { site, siteModel } from "../lib/site.js";
import type { Compiler } from "../../compiler/index.js";
import { Derivation } from "./derivation.js";
import { startCompiler } from "./compiler.js";
import { Runner } from "./run.js";

const SAMPLES = [["go2-policy", "a walking policy"], ["reachy-fk-dynamic", "head kinematics"], ["ppocr-cls", "text orientation"]] as const;

const zone = byId("drop-zone", HTMLElement);
const notice = byId("notice", HTMLElement);
const cancel = byId("cancel", HTMLButtonElement);
const title = byId("build-title", HTMLElement);
const derivation = new Derivation();
const runner = new Runner();
let compiler: Promise<Compiler> | null = null;
let job: AbortController | null = null;
let saved: { readonly name: string; readonly blob: Blob } | null = null;

/** One compiler for all models: its start is the slow part. */
function ready(): Promise<Compiler> {
  compiler ??= startCompiler((name, done, total) => derivation.stage(name, done, total)).catch((problem: unknown) => {
    compiler = null;
    throw problem;
  });
  return compiler;
}

async function take(name: string, read: () => Promise<Uint8Array>): Promise<void> {
  job?.abort();
  const mine = (job = new AbortController());
  begin(name);
  try {
    const data = await read();
    const bundle = name.endsWith(".tang") ? new Blob([data as Uint8Array<ArrayBuffer>]) : await compile(name, data, mine.signal);
    if (mine.signal.aborted) return;
    saved = { name: name.replace(/\.(onnx|tang)$/, "") + ".tang", blob: bundle };
    derivation.stage("load, test, run");
    await runner.open(bundle, mine.signal);
    derivation.end();
    title.textContent = name;
    zone.dataset["state"] = "ran";
  } catch (problem) {
    if (mine.signal.aborted) return;
    derivation.end(true);
    title.textContent = `${name} did not compile`;
    zone.dataset["state"] = "failed";
    notice.replaceChildren(errorBox(problem));
  } finally {
    if (job === mine) cancel.hidden = true;
  }
}

function begin(name: string): void {
  notice.replaceChildren();
  derivation.clear();
  runner.clear();
  saved = null;
  zone.classList.add("small");
  zone.dataset["state"] = "working";
  byId("work", HTMLElement).hidden = false;
  title.textContent = `Compiling ${name}`;
  cancel.hidden = false;
}

async function compile(name: string, data: Uint8Array, signal: AbortSignal): Promise<Blob> {
  const tool = await ready();
  signal.throwIfAborted();
  const made = await tool.compile(data, { name: name.replace(/\.onnx$/, ""), target: "webgpu", signal }, (event) => {
    if (!signal.aborted) derivation.take(event);
  });
  derivation.end();
  if (made.report.notes.length) notice.replaceChildren(h("div", { class: "message note" }, h("strong", {}, "Noted while compiling"), ...made.report.notes.map((n) => h("div", {}, n))));
  return new Blob([made.bundle as Uint8Array<ArrayBuffer>], { type: "application/octet-stream" });
}

function stop(): void {
  job?.abort();
  derivation.end(true);
  title.textContent = "Stopped";
  zone.dataset["state"] = "stopped";
  cancel.hidden = true;
}

function save(): void {
  if (!saved) return;
  const url = URL.createObjectURL(saved.blob);
  const link = h("a", { href: url, download: saved.name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

const fromFile = (file: File): Promise<void> => take(file.name, async () => new Uint8Array(await file.arrayBuffer()));

async function fromSite(path: string, name: string): Promise<void> {
  await take(name, async () => {
    const answer = await fetch(path);
    if (!answer.ok) throw new Error(`${path}: the server answered ${answer.status}`);
    return new Uint8Array(await answer.arrayBuffer());
  });
}

async function samples(): Promise<void> {
  const host = byId("samples", HTMLElement);
  const held = await site();
  for (const [name, what] of SAMPLES) {
    if (!held.models[name]) continue;
    const { onnx, onnxBytes } = await siteModel(name);
    host.append(h("button", { class: "button", type: "button", "data-sample": name, title: `${name}.onnx, ${bytes(onnxBytes)}`, click: () => void fromSite(onnx, `${name}.onnx`) }, what));
  }
  if (!held.compiler) notice.replaceChildren(h("div", { class: "message note" }, h("strong", {}, "This copy of the site has no compiler"), held.missing["compiler"] ?? "", " Bundles (.tang) can be dropped all the same."));
}

function wire(): void {
  const file = byId("file", HTMLInputElement);
  file.addEventListener("change", () => {
    if (file.files?.[0]) void fromFile(file.files[0]);
    file.value = "";
  });
  // the whole page takes the drop: a near miss must not navigate away
  for (const kind of ["dragenter", "dragover"]) addEventListener(kind, (event) => {
    event.preventDefault();
    zone.classList.add("over");
  });
  addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) zone.classList.remove("over");
  });
  addEventListener("drop", (event) => {
    event.preventDefault();
    zone.classList.remove("over");
    const dropped = event.dataTransfer?.files[0];
    if (dropped) void fromFile(dropped);
  });
  cancel.addEventListener("click", stop);
  byId("save", HTMLButtonElement).addEventListener("click", save);
}

wire();
void start();
samples().catch((problem: unknown) => notice.replaceChildren(errorBox(problem)));
