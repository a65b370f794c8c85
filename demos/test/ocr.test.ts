import assert from "node:assert/strict";
import test from "node:test";
import { findBoxes, inReadingOrder } from "../src/ocr/boxes.js";
import { decode } from "../src/ocr/ctc.js";
import { corners, grow, hull, leastRectangle, scaled, type Box, type Point } from "../src/ocr/geometry.js";

const near = (a: number, b: number, by = 1e-6): void => assert.ok(Math.abs(a - b) <= by, `${a} is not near ${b}`);

function filled(width: number, height: number, box: Box): Float32Array {
  const map = new Float32Array(width * height);
  for (let y = 0; y < height; y++) for (let x = 0; x < width; x++) {
    const [dx, dy] = [x - box.centre.x, y - box.centre.y];
    const inside = Math.abs(dx * box.along.x + dy * box.along.y) <= box.width / 2 && Math.abs(dx * box.across.x + dy * box.across.y) <= box.height / 2;
    if (inside) map[y * width + x] = 0.9;
  }
  return map;
}

const tilted = (degrees: number, box: Partial<Box> = {}): Box => {
  const [c, s] = [Math.cos((degrees * Math.PI) / 180), Math.sin((degrees * Math.PI) / 180)];
  return { centre: { x: 60, y: 50 }, along: { x: c, y: s }, across: { x: -s, y: c }, width: 60, height: 16, ...box };
};

test("the hull of a square with points inside is its corners", () => {
  const points: Point[] = [[0, 0], [4, 0], [4, 4], [0, 4], [2, 2], [1, 3], [2, 0]].map(([x, y]) => ({ x: x!, y: y! }));
  assert.equal(hull(points).length, 4);
});

test("one point and points on a line have a rectangle too", () => {
  assert.equal(leastRectangle([{ x: 3, y: 4 }]).width, 0);
  const flat = leastRectangle([{ x: 0, y: 0 }, { x: 5, y: 0 }, { x: 9, y: 0 }]);
  near(flat.width, 9);
  near(flat.height, 0);
});

for (const degrees of [-40, -10, 0, 25, 44]) {
  test(`a bar at ${degrees} degrees is found with its angle and size`, () => {
    const [found, ...more] = findBoxes(filled(120, 100, tilted(degrees)), 120, 100);
    assert.equal(more.length, 0);
    const tight = grow(found!.box, 0);
    near((Math.atan2(tight.along.y, tight.along.x) * 180) / Math.PI, degrees, 3);
    // grown by 60 * 16 * 1.6 / 152 on each side
    near(tight.width, 60 + 2 * 10.1, 5);
    near(tight.height, 16 + 2 * 10.1, 5);
  });
}

test("faint regions and specks are not boxes", () => {
  const map = filled(120, 100, tilted(0)).map((v) => v * 0.45);
  assert.equal(findBoxes(map, 120, 100).length, 0);
  assert.equal(findBoxes(filled(120, 100, tilted(0, { width: 1, height: 1 })), 120, 100).length, 0);
});

test("a box keeps its corners when the picture is scaled", () => {
  const box = tilted(0);
  const big = scaled(box, 2, 3);
  const [a, , c] = corners(big);
  near(a.x, (60 - 30) * 2);
  near(a.y, (50 - 8) * 3);
  near(c.x, (60 + 30) * 2);
  near(c.y, (50 + 8) * 3);
});

test("reading order: lines from the top, words from the left", () => {
  const at = (x: number, y: number, name: string) => ({ name, box: tilted(0, { centre: { x, y } }) });
  const order = inReadingOrder([at(200, 12, "b"), at(60, 10, "a"), at(40, 40, "c")]).map((i) => i.name);
  assert.deepEqual(order, ["a", "b", "c"]);
});

test("CTC drops repeats and blanks", () => {
  const columns = [0, 1, 1, 0, 1, 2, 2, 0];
  const data = new Float32Array(columns.length * 3);
  columns.forEach((best, t) => (data[3 * t + best] = 0.8));
  const [text] = decode({ dtype: "f32", shape: [1, columns.length, 3], data }, ["a", "b"]);
  assert.equal(text!.text, "aab");
  near(text!.confidence, 0.8, 1e-6);
});

test("a list of characters that does not fit the network is refused", () => {
  assert.throws(() => decode({ dtype: "f32", shape: [1, 1, 3], data: new Float32Array(3) }, ["a"]), /3 classes/);
});
