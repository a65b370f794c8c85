/** The three networks in a chain: where is text, is it upside down, what does it say. */

import type { LoadOptions, Model, Tensor } from "tang-edge";
import { loadModel } from "../lib/load.js";
import { findBoxes, inReadingOrder } from "./boxes.js";
import { decode, type Text } from "./ctc.js";
import { scaled, type Box } from "./geometry.js";
import { cutLine, detectorInput, detectorSize, lineInput, turned, type Canvas } from "./pixels.js";

export interface Line extends Text { readonly box: Box; readonly upsideDown: boolean }
export type Stage = "prepare" | "detect" | "boxes" | "turn" | "read";
export interface Reading {
  readonly lines: readonly Line[];
  readonly size: { readonly width: number; readonly height: number };
  readonly milliseconds: Readonly<Record<Stage, number>>;
}

const TURN_WIDTH = 192;
const BATCH = 4;
/** Widths of lines are rounded up to these steps: few different sizes, so few are prepared. */
const WIDTH_STEP = 64;
const WIDEST = 1280;
const TURNED = 0.9;

export class Reader {
  private constructor(private readonly detector: Model, private readonly turner: Model, private readonly recogniser: Model, private readonly characters: readonly string[]) {}

  static async load(onLoad: (name: string, index: number, options: LoadOptions) => LoadOptions): Promise<Reader> {
    const models: Model[] = [];
    const names = ["ppocr-det", "ppocr-cls", "ppocr-rec"];
    try {
      for (const [i, name] of names.entries()) models.push(await loadModel(name, onLoad(name, i, {})));
      const answer = await fetch("models/ppocr-rec.characters.json");
      if (!answer.ok) throw new Error("The list of characters (models/ppocr-rec.characters.json) is not in this copy of the site.");
      return new Reader(models[0]!, models[1]!, models[2]!, (await answer.json()) as string[]);
    } catch (problem) {
      for (const model of models) model.dispose();
      throw problem;
    }
  }

  get models(): readonly Model[] {
    return [this.detector, this.turner, this.recogniser];
  }

  /** `detail`: the most pixels that the picture's longer side has for the detector. */
  async read(picture: Canvas, detail: number, onStage: (stage: Stage) => void = () => undefined): Promise<Reading> {
    const milliseconds: Record<Stage, number> = { prepare: 0, detect: 0, boxes: 0, turn: 0, read: 0 };
    const timed = async <T>(stage: Stage, work: () => T | Promise<T>): Promise<T> => {
      onStage(stage);
      const start = performance.now();
      const result = await work();
      milliseconds[stage] += performance.now() - start;
      return result;
    };
    const size = detectorSize(picture.width, picture.height, detail);
    const input = await timed("prepare", () => detectorInput(picture, size));
    const map = await timed("detect", () => only(this.detector, input));
    const found = await timed("boxes", () =>
      inReadingOrder(findBoxes(map.data as Float32Array, size.width, size.height)
        .map((f) => ({ ...f, box: scaled(f.box, picture.width / size.width, picture.height / size.height) }))));
    const cut = found.map((f) => cutLine(picture, f.box));
    const flipped = await timed("turn", () => this.turns(cut));
    const texts = await timed("read", () => this.texts(cut.map((line, i) => (flipped[i] ? turned(line) : line))));
    const lines = found.map((f, i) => ({ box: f.box, upsideDown: flipped[i]!, ...texts[i]! })).filter((l) => l.text.trim() && l.confidence >= 0.5);
    return { lines, size, milliseconds };
  }

  private async turns(lines: readonly OffscreenCanvas[]): Promise<boolean[]> {
    const out: boolean[] = [];
    for (let i = 0; i < lines.length; i += BATCH) {
      const scores = await only(this.turner, lineInput(lines.slice(i, i + BATCH), TURN_WIDTH));
      for (let k = 0; k < scores.shape[0]!; k++) out.push((scores.data[2 * k + 1] as number) > TURNED);
    }
    return out;
  }

  /** Lines of like width go together. */
  private async texts(lines: readonly OffscreenCanvas[]): Promise<Text[]> {
    const out = new Array<Text>(lines.length);
    const byWidth = new Map<number, number[]>();
    lines.forEach((line, i) => {
      const width = Math.min(WIDEST, Math.ceil(line.width / WIDTH_STEP) * WIDTH_STEP);
      byWidth.set(width, [...(byWidth.get(width) ?? []), i]);
    });
    for (const [width, members] of byWidth) {
      for (let i = 0; i < members.length; i += BATCH) {
        const batch = members.slice(i, i + BATCH);
        const scores = await only(this.recogniser, lineInput(batch.map((m) => lines[m]!), width));
        decode(scores, this.characters).forEach((text, k) => (out[batch[k]!] = text));
      }
    }
    return out;
  }

  dispose(): void {
    for (const model of this.models) model.dispose();
  }
}

/** One input, one output. */
async function only(model: Model, input: Tensor): Promise<Tensor> {
  const outputs = await model.run({ [model.inputs[0]!.name]: input });
  return Object.values(outputs)[0]!;
}
