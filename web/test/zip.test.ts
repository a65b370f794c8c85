import assert from "node:assert/strict";
import { test } from "node:test";
import { directory, directoryStart, readDirectory, type Entry } from "../src/bundle/zip.js";
import { BundleError } from "../src/errors.js";

function entries(...sizes: [string, number][]): Entry[] {
  let at = 0;
  return sizes.map(([name, size], i) => {
    const header = at, start = Math.ceil((header + 34 + name.length) / 64) * 64;
    at = start + size;
    return { name, crc: 0xdeadbeef - i, size, header, start };
  });
}

const SOUND = entries(["weights/00000.safetensors", 1000], ["plan.json", 77], ["manifest.json", 5], ["manifest.sha256", 64]);

test("a directory is read back", () => {
  const bytes = directory(SOUND), last = SOUND.at(-1)!, size = last.start + last.size + bytes.length;
  assert.equal(directoryStart(bytes, size), size - bytes.length);
  assert.deepEqual([...readDirectory(bytes).values()], SOUND);
});

test("every changed bit of it is noticed", () => {
  const sound = directory(SOUND), size = SOUND.at(-1)!.start + 64 + sound.length;
  const open = (bytes: Uint8Array): void => {
    directoryStart(bytes, size);
    const found = [...readDirectory(bytes).values()];
    // sizes and checksums are data: what they say shows against the manifest and the hashes
    assert.notDeepEqual(found, SOUND);
    throw new BundleError("differs");
  };
  for (let i = 0; i < sound.length; i++) {
    const bytes = sound.slice();
    bytes[i]! ^= 1 << i % 8;
    assert.throws(() => open(bytes), BundleError, `byte ${i}`);
  }
});

test("names and sizes are checked before anything is read", () => {
  for (const name of ["../evil", "/etc/passwd", "a/../../b", "a\\b", "C:/x", "a//b", "a/", "", "..", "a/.b", "x".repeat(300)]) {
    assert.throws(() => readDirectory(directory(entries([name, 3]))), /unsafe or malformed/, name);
  }
  assert.throws(() => readDirectory(directory(entries(["weights/00000.safetensors", 2 ** 31]))), /more than the/);
  assert.throws(() => readDirectory(directory(entries(["plan.json", 1], ["plan.json", 1]))), /twice/);
});

test("other files", () => {
  for (const bytes of [new Uint8Array(0), new Uint8Array(5000), new TextEncoder().encode("<!doctype html>".repeat(9))]) {
    assert.throws(() => directoryStart(bytes, bytes.length), /not a tang bundle/);
  }
});
