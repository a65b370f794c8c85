/** Points, hulls and rectangles. Coordinates are pixels, y points down. */

export interface Point { readonly x: number; readonly y: number }

/** A rotated rectangle; `along` is the unit vector of its width, `across` that of its height (down for upright text). */
export interface Box {
  readonly centre: Point;
  readonly along: Point;
  readonly across: Point;
  readonly width: number;
  readonly height: number;
}

const cross = (o: Point, a: Point, b: Point): number => (a.x - o.x) * (b.y - o.y) - (a.y - o.y) * (b.x - o.x);

/** The convex hull, without points on its edges. */
export function hull(points: readonly Point[]): Point[] {
  const sorted = [...points].sort((a, b) => a.x - b.x || a.y - b.y);
  if (sorted.length < 3) return sorted;
  const half = (all: readonly Point[]): Point[] => {
    const chain: Point[] = [];
    for (const p of all) {
      while (chain.length > 1 && cross(chain[chain.length - 2]!, chain[chain.length - 1]!, p) <= 0) chain.pop();
      chain.push(p);
    }
    chain.pop();
    return chain;
  };
  return [...half(sorted), ...half(sorted.reverse())];
}

/** The rectangle of least area around the points: one of its sides lies on a side of the hull. */
export function leastRectangle(points: readonly Point[]): Box {
  const around = hull(points);
  let best: Box | null = null;
  for (let i = 0; i < Math.max(1, around.length); i++) {
    const a = around[i]!;
    const b = around[(i + 1) % around.length]!;
    const length = Math.hypot(b.x - a.x, b.y - a.y);
    const along = length > 0 ? { x: (b.x - a.x) / length, y: (b.y - a.y) / length } : { x: 1, y: 0 };
    const box = rectangleAlong(around, along);
    if (!best || box.width * box.height < best.width * best.height) best = box;
  }
  return upright(best!);
}

function rectangleAlong(points: readonly Point[], along: Point): Box {
  const across = { x: -along.y, y: along.x };
  let [least, most, top, bottom] = [Infinity, -Infinity, Infinity, -Infinity];
  for (const p of points) {
    const u = p.x * along.x + p.y * along.y;
    const v = p.x * across.x + p.y * across.y;
    least = Math.min(least, u);
    most = Math.max(most, u);
    top = Math.min(top, v);
    bottom = Math.max(bottom, v);
  }
  const u = (least + most) / 2;
  const v = (top + bottom) / 2;
  const centre = { x: u * along.x + v * across.x, y: u * along.y + v * across.y };
  return { centre, along, across, width: most - least, height: bottom - top };
}

/** The same rectangle with `along` within 45 degrees of the x axis, pointing right. */
export function upright(box: Box): Box {
  let { along, across, width, height } = box;
  if (Math.abs(along.x) < Math.abs(along.y)) [along, across, width, height] = [across, along, height, width];
  if (along.x < 0) along = { x: -along.x, y: -along.y };
  across = { x: -along.y, y: along.x };
  return { centre: box.centre, along, across, width, height };
}

/** The corners, from the top left clockwise. */
export function corners(box: Box): [Point, Point, Point, Point] {
  const at = (u: number, v: number): Point => ({
    x: box.centre.x + box.along.x * u * (box.width / 2) + box.across.x * v * (box.height / 2),
    y: box.centre.y + box.along.y * u * (box.width / 2) + box.across.y * v * (box.height / 2),
  });
  return [at(-1, -1), at(1, -1), at(1, 1), at(-1, 1)];
}

/** Detectors of this family learn shrunk regions; growing by area * ratio / perimeter undoes it. */
export function grow(box: Box, ratio: number): Box {
  const distance = (box.width * box.height * ratio) / Math.max(1e-9, 2 * (box.width + box.height));
  return { ...box, width: box.width + 2 * distance, height: box.height + 2 * distance };
}

export function scaled(box: Box, sx: number, sy: number): Box {
  const [a, b, c, d] = corners(box).map((p) => ({ x: p.x * sx, y: p.y * sy })) as [Point, Point, Point, Point];
  const width = (Math.hypot(b.x - a.x, b.y - a.y) + Math.hypot(c.x - d.x, c.y - d.y)) / 2;
  const height = (Math.hypot(d.x - a.x, d.y - a.y) + Math.hypot(c.x - b.x, c.y - b.y)) / 2;
  const along = width > 0 ? { x: (b.x - a.x) / width, y: (b.y - a.y) / width } : box.along;
  const norm = Math.hypot(along.x, along.y) || 1;
  const unit = { x: along.x / norm, y: along.y / norm };
  return { centre: { x: (a.x + c.x) / 2, y: (a.y + c.y) / 2 }, along: unit, across: { x: -unit.y, y: unit.x }, width, height };
}
