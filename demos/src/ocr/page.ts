/** Reads text in a picture that is chosen, dropped, pasted or taken by the camera. */

import { byId, errorBox, h, nextFrame, words } from "../lib/dom.js";
import { plural } from "../lib/format.js";
import { Progress } from "../lib/progress.js";
import { start } from "../lib/shell.js";
import { Camera } from "./camera.js";
import { drawOverlay, showLines, showTiming } from "./show.js";
import { context } from "./pixels.js";
import { Reader, type Reading, type Stage } from "./reader.js";
import { paintSample } from "./sample.js";

const canvas = byId("canvas", HTMLCanvasElement);
const overlay = byId("overlay", SVGSVGElement);
const note = byId("stage-note", HTMLElement);
const status = byId("ocr-status", HTMLElement);
const detail = byId("detail", HTMLInputElement);
const copy = byId("copy", HTMLButtonElement);
const LARGEST = 2000;
const STAGES: Readonly<Record<Stage, string>> = {
  prepare: "Preparing the picture", detect: "Looking for text", boxes: "Drawing boxes", turn: "Turning lines", read: "Reading",
};

let reader: Promise<Reader> | null = null;
let latest: Reading | null = null;
/** Only the latest picture's result is shown. */
let turn = 0;

function loadReader(): Promise<Reader> {
  reader ??= (async () => {
    const progress = new Progress("Loading the networks");
    note.replaceChildren(progress.element);
    try {
      const made = await Reader.load((name, index, options) => ({
        ...options,
        onProgress: (p) => {
          progress.load(p);
          progress.element.querySelector("span")!.prepend(`${index + 1} of 3, ${name}: `);
        },
      }));
      byId("ocr-device", HTMLElement).textContent = made.models.map((m) => `${m.name}: ${m.report.device} (${m.report.adapter})`).join("; ");
      note.replaceChildren();
      return made;
    } catch (problem) {
      reader = null;
      throw problem;
    }
  })();
  return reader;
}

async function read(): Promise<Reading | null> {
  const mine = ++turn;
  try {
    const tool = await loadReader();
    if (mine !== turn) return null;
    const progress = new Progress("Reading");
    if (!camera.on) note.replaceChildren(progress.element);
    await nextFrame();
    const reading = await tool.read(canvas, Number(detail.value), (stage) => progress.show(STAGES[stage], 0, 0));
    if (mine !== turn) return null;
    note.replaceChildren();
    show(reading);
    return reading;
  } catch (problem) {
    if (mine === turn) note.replaceChildren(errorBox(problem));
    status.textContent = words(problem);
    return null;
  }
}

function show(reading: Reading): void {
  latest = reading;
  redraw();
  showLines(byId("lines", HTMLElement), reading.lines, (index) => {
    overlay.querySelectorAll(".hit").forEach((node, i) => node.classList.toggle("lit", i === index));
  });
  showTiming(byId("timing", HTMLElement), reading);
  copy.disabled = !reading.lines.length;
  if (!camera.on) status.textContent = reading.lines.length ? `${plural(reading.lines.length, "line")} read` : "No text was found";
}

function redraw(): void {
  const boxes = byId("show-boxes", HTMLInputElement).checked;
  const text = byId("show-text", HTMLInputElement).checked;
  drawOverlay(overlay, latest?.lines ?? [], { width: canvas.width, height: canvas.height, boxes, text });
}

function put(source: CanvasImageSource, width: number, height: number): void {
  const scale = Math.min(1, LARGEST / Math.max(width, height));
  canvas.width = Math.max(32, Math.round(width * scale));
  canvas.height = Math.max(32, Math.round(height * scale));
  byId("stage", HTMLElement).style.setProperty("--aspect", `${canvas.width} / ${canvas.height}`);
  context(canvas).drawImage(source, 0, 0, canvas.width, canvas.height);
}

async function open(file: Blob): Promise<void> {
  camera.stop();
  try {
    const picture = await createImageBitmap(file, { imageOrientation: "from-image" });
    put(picture, picture.width, picture.height);
    picture.close();
  } catch {
    note.replaceChildren(errorBox(new Error("This file is not a picture that the browser can decode.")));
    return;
  }
  latest = null;
  redraw();
  await read();
}

function sample(): void {
  camera.stop();
  latest = null;
  paintSample(canvas);
  byId("stage", HTMLElement).style.setProperty("--aspect", `${canvas.width} / ${canvas.height}`);
  redraw();
}

const camera = new Camera(byId("video", HTMLVideoElement), byId("camera", HTMLButtonElement), async (video) => {
  put(video, video.videoWidth, video.videoHeight);
  await read();
}, (problem) => note.replaceChildren(errorBox(problem)));

function wire(): void {
  const picker = byId("picture", HTMLInputElement);
  picker.addEventListener("change", () => {
    if (picker.files?.[0]) void open(picker.files[0]);
    picker.value = "";
  });
  byId("sample", HTMLButtonElement).addEventListener("click", () => {
    sample();
    void read();
  });
  const stage = byId("stage", HTMLElement);
  for (const kind of ["dragenter", "dragover"]) stage.addEventListener(kind, (event) => {
    event.preventDefault();
    stage.classList.add("over");
  });
  for (const kind of ["dragleave", "drop"]) stage.addEventListener(kind, () => stage.classList.remove("over"));
  stage.addEventListener("drop", (event) => {
    event.preventDefault();
    const file = event.dataTransfer?.files[0];
    if (file) void open(file);
  });
  addEventListener("paste", (event) => {
    const file = event.clipboardData?.files[0];
    if (file) void open(file);
  });
  detail.addEventListener("input", () => (byId("detail-value", HTMLOutputElement).value = `${detail.value} pixels`));
  detail.addEventListener("change", () => void read());
  for (const id of ["show-boxes", "show-text"]) byId(id, HTMLInputElement).addEventListener("change", redraw);
  copy.addEventListener("click", () => {
    void navigator.clipboard.writeText(latest?.lines.map((l) => l.text).join("\n") ?? "")
      .then(() => (status.textContent = "Copied"), (problem: unknown) => (status.textContent = words(problem)));
    copy.textContent = "Copied";
    setTimeout(() => (copy.textContent = "Copy"), 1500);
  });
}

wire();
void document.fonts.ready.then(sample);
void start().then((found) => {
  // a software adapter is slow: a smaller picture answers sooner
  if (found.kind !== "webgpu" || found.software) detail.value = "640";
  byId("detail-value", HTMLOutputElement).value = `${detail.value} pixels`;
  note.replaceChildren(h("button", { class: "button primary", id: "read-sample", type: "button", click: () => void read() }, "Read this sample"));
});
