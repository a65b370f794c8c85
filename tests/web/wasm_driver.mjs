// node wasm_driver.mjs URL-of-the-package: a task a line on stdin, {bundle, runs}; an answer a line: {results} or {error}.
// Every run is made by every alternate of the steps.

import { readFileSync } from "node:fs";
import { webcrypto } from "node:crypto";

globalThis.crypto ??= webcrypto;

// memory that nobody wrote holds NaNs, -1s and impossible bools: a read of it shows in the result
const grow = WebAssembly.Memory.prototype.grow;
WebAssembly.Memory.prototype.grow = function (pages) {
  const before = this.buffer.byteLength, result = grow.call(this, pages);
  new Uint8Array(this.buffer, before).fill(255);
  return result;
};

const { load } = await import(process.argv[2]);
const TYPES = {
  f16: Uint16Array, f32: Float32Array, f64: Float64Array, i8: Int8Array, i16: Int16Array, i32: Int32Array, i64: BigInt64Array,
  u8: Uint8Array, u16: Uint16Array, u32: Uint32Array, u64: BigUint64Array, bool: Uint8Array,
};
const each = (object, f) => Object.fromEntries(Object.entries(object).map(([k, v]) => [k, f(v)]));
const decode = ([dtype, shape, text]) => ({ dtype, shape, data: new TYPES[dtype](Uint8Array.from(Buffer.from(text, "base64")).buffer) });
const encode = ({ dtype, shape, data }) => [dtype, shape, Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString("base64")];
const flat = (steps) => steps.flatMap((s) => [s, ...flat(s.then ?? []), ...flat(s.orelse ?? []), ...flat(s.body ?? [])]);

async function perform({ bundle, runs }) {
  const model = await load(new Blob([readFileSync(bundle)]), { device: "wasm", cache: "none", verify: "off" });
  const all = flat(model.engine.variant.steps), most = Math.max(1, ...all.map((s) => s.alternates?.length ?? 1)), results = [];
  for (let alternate = 0; alternate < most; alternate++) {
    for (const s of all) if (s.alternates) await model.engine.choose(s.index, Math.min(alternate, s.alternates.length - 1));
    for (const inputs of runs) results.push(each(await model.run(each(inputs, decode)), encode));
  }
  model.dispose();
  return { results, adapter: model.report.adapter };
}

for (const line of readFileSync(0, "utf8").split("\n").filter(Boolean)) {
  const answer = await perform(JSON.parse(line)).catch((e) => ({ error: `${e.name}: ${e.message}` }));
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
