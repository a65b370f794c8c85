/** From the detector's probability map to boxes: threshold, connected regions, least rectangle, score, growth. */

import { grow, leastRectangle, type Box, type Point } from "./geometry.js";

export interface Found { readonly box: Box; readonly score: number }

export interface Thresholds {
  /** A pixel is text from this probability on. */
  readonly pixel: number;
  /** A box is kept from this mean probability on. */
  readonly box: number;
  readonly growth: number;
  /** Least side of a region, in pixels of the map. */
  readonly least: number;
}

export const USUAL: Thresholds = { pixel: 0.3, box: 0.5, growth: 1.6, least: 3 };

export function findBoxes(map: Float32Array, width: number, height: number, limits: Thresholds = USUAL): Found[] {
  const found: Found[] = [];
  for (const region of regions(mask(map, width, height, limits.pixel), width, height)) {
    const tight = leastRectangle(region);
    if (Math.min(tight.width, tight.height) < limits.least) continue;
    const score = meanInside(map, width, height, tight);
    if (score < limits.box) continue;
    found.push({ box: grow(tight, limits.growth), score });
  }
  return found;
}

/** Text pixels, each spread to its right and lower neighbours: closes gaps of one pixel. */
function mask(map: Float32Array, width: number, height: number, least: number): Uint8Array {
  const out = new Uint8Array(width * height);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      if (map[y * width + x]! <= least) continue;
      for (const i of [y * width + x, x + 1 < width ? y * width + x + 1 : -1, y + 1 < height ? (y + 1) * width + x : -1]) if (i >= 0) out[i] = 1;
      if (x + 1 < width && y + 1 < height) out[(y + 1) * width + x + 1] = 1;
    }
  }
  return out;
}

/** The border pixels of each connected region (8 neighbours). Consumes the mask. */
function* regions(mask_: Uint8Array, width: number, height: number): Generator<Point[]> {
  const stack: number[] = [];
  const border = (i: number, x: number, y: number): boolean =>
    x === 0 || y === 0 || x === width - 1 || y === height - 1 || !mask_[i - 1] || !mask_[i + 1] || !mask_[i - width] || !mask_[i + width];
  for (let start = 0; start < mask_.length; start++) {
    if (mask_[start] !== 1) continue;
    const points: Point[] = [];
    stack.push(start);
    mask_[start] = 2;
    while (stack.length) {
      const i = stack.pop()!;
      const x = i % width;
      const y = (i - x) / width;
      if (border(i, x, y)) points.push({ x, y });
      for (let dy = -1; dy <= 1; dy++) {
        for (let dx = -1; dx <= 1; dx++) {
          const [u, v] = [x + dx, y + dy];
          if (u < 0 || v < 0 || u >= width || v >= height) continue;
          const j = v * width + u;
          if (mask_[j] !== 1) continue;
          mask_[j] = 2;
          stack.push(j);
        }
      }
    }
    yield points;
  }
}

function meanInside(map: Float32Array, width: number, height: number, box: Box): number {
  const reachX = (Math.abs(box.along.x) * box.width + Math.abs(box.across.x) * box.height) / 2;
  const reachY = (Math.abs(box.along.y) * box.width + Math.abs(box.across.y) * box.height) / 2;
  const [x0, x1] = [Math.max(0, Math.floor(box.centre.x - reachX)), Math.min(width - 1, Math.ceil(box.centre.x + reachX))];
  const [y0, y1] = [Math.max(0, Math.floor(box.centre.y - reachY)), Math.min(height - 1, Math.ceil(box.centre.y + reachY))];
  let [sum, count] = [0, 0];
  for (let y = y0; y <= y1; y++) {
    for (let x = x0; x <= x1; x++) {
      const [dx, dy] = [x - box.centre.x, y - box.centre.y];
      if (Math.abs(dx * box.along.x + dy * box.along.y) > box.width / 2 + 0.5) continue;
      if (Math.abs(dx * box.across.x + dy * box.across.y) > box.height / 2 + 0.5) continue;
      sum += map[y * width + x]!;
      count += 1;
    }
  }
  return count ? sum / count : 0;
}

/** From top to bottom, and from left to right within a line. */
export function inReadingOrder<T extends { readonly box: Box }>(found: readonly T[]): T[] {
  const rows = [...found].sort((a, b) => a.box.centre.y - b.box.centre.y);
  const lines: T[][] = [];
  for (const item of rows) {
    const line = lines[lines.length - 1];
    const last = line?.[0];
    const sameLine = last && Math.abs(last.box.centre.y - item.box.centre.y) < 0.5 * Math.min(last.box.height, item.box.height);
    if (sameLine) line.push(item);
    else lines.push([item]);
  }
  return lines.flatMap((line) => line.sort((a, b) => a.box.centre.x - b.box.centre.x));
}
