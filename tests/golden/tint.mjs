// node tint.mjs <module> <file>...: validates WGSL files with Tint (Dawn's null backend); prints a line for each refusal.
import { readFileSync } from "node:fs";

const webgpu = await import(process.argv[2]);
const gpu = webgpu.create(["backend=null", "enable-dawn-features=allow_unsafe_apis"]);
const adapter = await gpu.requestAdapter();
const device = await adapter.requestDevice();
device.addEventListener?.("uncapturederror", (e) => e.preventDefault());
for (const file of process.argv.slice(3)) {
  device.pushErrorScope("validation");
  const module = device.createShaderModule({ code: readFileSync(file, "utf8") });
  device.createComputePipeline({ layout: "auto", compute: { module, entryPoint: "main" } });
  const error = await device.popErrorScope();
  if (error) console.log(`${file}: ${error.message}`);
}
console.log("done");
process.exit(0);
