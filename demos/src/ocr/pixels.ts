/** From a canvas to the tensors that the three networks take: channels in the order blue, green, red, values in -1..1. */

import type { Tensor } from "tang-edge";
import { corners, type Box, type Point } from "./geometry.js";

export type Canvas = OffscreenCanvas | HTMLCanvasElement;
type Context = OffscreenCanvasRenderingContext2D | CanvasRenderingContext2D;

export function context(canvas: Canvas): Context {
  const made = canvas.getContext("2d", { willReadFrequently: true }) as Context | null;
  if (!made) throw new Error("this browser gives no 2D canvas");
  made.imageSmoothingEnabled = true;
  made.imageSmoothingQuality = "high";
  return made;
}

/** Writes a picture into `out` at `offset`, in rows of `stride` values; what is right of the picture stays zero. */
export function planes(image: ImageData, out: Float32Array, offset: number, stride: number): void {
  const { data, width, height } = image;
  const plane = stride * height;
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const from = 4 * (y * width + x);
      const to = offset + y * stride + x;
      out[to] = data[from + 2]! / 127.5 - 1;
      out[to + plane] = data[from + 1]! / 127.5 - 1;
      out[to + 2 * plane] = data[from]! / 127.5 - 1;
    }
  }
}

/** The size for the detector: sides are multiples of 32, the longer one at most `most`. */
export function detectorSize(width: number, height: number, most: number): { width: number; height: number } {
  const scale = Math.min(1, most / Math.max(width, height));
  const side = (n: number): number => Math.max(32, Math.round((n * scale) / 32) * 32);
  return { width: side(width), height: side(height) };
}

export function detectorInput(source: Canvas, size: { width: number; height: number }): Tensor {
  const scaled = new OffscreenCanvas(size.width, size.height);
  const pen = context(scaled);
  pen.drawImage(source, 0, 0, size.width, size.height);
  const data = new Float32Array(3 * size.width * size.height);
  planes(pen.getImageData(0, 0, size.width, size.height), data, 0, size.width);
  return { dtype: "f32", shape: [1, 3, size.height, size.width], data };
}

export const LINE = 48;

/** A line of text cut out of the picture, level, 48 pixels high. Text that runs down is laid on its side. */
export function cutLine(source: Canvas, box: Box): OffscreenCanvas {
  const [topLeft, topRight] = corners(box);
  const lying = box.height < 1.5 * box.width;
  const origin = lying ? topLeft : topRight;
  const along = lying ? box.along : box.across;
  const across = lying ? box.across : { x: -box.along.x, y: -box.along.y };
  const [length, depth] = lying ? [box.width, box.height] : [box.height, box.width];
  const width = Math.max(16, Math.ceil((LINE * length) / Math.max(1, depth)));
  const line = new OffscreenCanvas(width, LINE);
  const pen = context(line);
  const [sx, sy] = [width / Math.max(1, length), LINE / Math.max(1, depth)];
  const dot = (a: Point, b: Point): number => a.x * b.x + a.y * b.y;
  pen.setTransform(along.x * sx, across.x * sy, along.y * sx, across.y * sy, -dot(origin, along) * sx, -dot(origin, across) * sy);
  pen.drawImage(source, 0, 0);
  return line;
}

export function turned(line: OffscreenCanvas): OffscreenCanvas {
  const out = new OffscreenCanvas(line.width, line.height);
  const pen = context(out);
  pen.setTransform(-1, 0, 0, -1, line.width, line.height);
  pen.drawImage(line, 0, 0);
  return out;
}

/** Lines side by side in one batch [n, 3, 48, width]; each keeps its proportions as far as it fits. */
export function lineInput(lines: readonly OffscreenCanvas[], width: number): Tensor {
  const size = 3 * LINE * width;
  const data = new Float32Array(lines.length * size);
  lines.forEach((line, i) => {
    const fit = Math.min(line.width, width);
    const canvas = new OffscreenCanvas(fit, LINE);
    const pen = context(canvas);
    pen.drawImage(line, 0, 0, fit, LINE);
    planes(pen.getImageData(0, 0, fit, LINE), data, i * size, width);
  });
  return { dtype: "f32", shape: [lines.length, 3, LINE, width], data };
}
