import assert from "node:assert/strict";
import test from "node:test";
import { difference } from "../src/drop/difference.js";
import { fillRandom, generator } from "../src/drop/random.js";

function check(before: string, after: string): number {
  const pieces = difference(before, after);
  const text = (drop: string): string => pieces.filter((p) => p.kind !== drop).map((p) => p.text).join("\n");
  assert.equal(text("new"), before);
  assert.equal(text("gone"), after);
  return pieces.filter((p) => p.kind !== "same").length;
}

test("a difference gives both texts back, with the fewest changes", () => {
  assert.equal(check("a\nb\nc", "a\nb\nc"), 0);
  assert.equal(check("a\nb\nc", "a\nx\nc"), 2);
  assert.equal(check("a\nb\nc\nd", "b\nc\nd\ne"), 2);
  assert.equal(check("a", "b"), 2);
  assert.equal(check("", "a\nb"), 3);
});

test("random texts too", () => {
  const next = generator(3);
  for (let i = 0; i < 200; i++) {
    const text = (): string => Array.from({ length: Math.floor(next() * 12) }, () => "abcd"[Math.floor(next() * 4)]).join("\n");
    check(text(), text());
  }
});

test("texts that share nothing are replaced, in bounded time", () => {
  const lines = (name: string): string => Array.from({ length: 4000 }, (_, i) => `${name}${i}`).join("\n");
  assert.equal(check(lines("a"), lines("b")), 8000);
});

test("random inputs are the same each time, and of their type", () => {
  assert.deepEqual(fillRandom("f32", 5), fillRandom("f32", 5));
  assert.ok(fillRandom("i64", 3) instanceof BigInt64Array);
  assert.throws(() => fillRandom("i4", 1), /i4/);
});
