import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { plainSha256 } from "../src/bundle/sha256.js";

test("SHA-256 without the browser's help", () => {
  for (const size of [0, 1, 55, 56, 63, 64, 65, 119, 120, 1000, 100_001]) {
    const data = Uint8Array.from({ length: size + 3 }, (_, i) => (i * 131 + size) & 255).subarray(3); // at an odd offset
    assert.equal(Buffer.from(plainSha256(data)).toString("hex"), createHash("sha256").update(data).digest("hex"), `${size} bytes`);
  }
});
