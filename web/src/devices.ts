/** The devices that a page may have, in the order in which they are tried, and which variants each takes. */

import type { Manifest, Variant } from "./bundle/format.js";
import type { OpenEngine } from "./engine.js";
import { adapterName, isCpuAdapter, requestAdapter } from "./webgpu/gpu.js";
import { openWasm, wasmLacks } from "./wasm/engine.js";
import { openWebGpu, webgpuLacks } from "./webgpu/engine.js";

export type Entry = Manifest["variants"][number];

export interface Device {
  readonly kind: "webgpu" | "wasm";
  /** Whether the variant is one of this device's, wherever it runs. */
  takes(entry: Pick<Entry, "backend" | "class">): boolean;
  /** Why this browser cannot run the variant, in words; "" where it can. */
  lacks(entry: Pick<Variant, "features" | "limits">): Promise<string>;
  readonly open: OpenEngine;
}

export const DEVICES: readonly Device[] = [
  { kind: "webgpu", takes: (v) => v.backend === "webgpu", lacks: webgpuLacks, open: openWebGpu },
  { kind: "wasm", takes: (v) => v.backend === "c" && v.class === "wasm-simd", lacks: wasmLacks, open: openWasm },
];

/** The more a class presumes of a device, the earlier it is tried; others follow in the order of the plan. */
const CLASSES = ["jetson", "mac", "laptop", "robot-soc", "browser-f16", "browser"];

export function rank(deviceClass: string): number {
  return (CLASSES.indexOf(deviceClass) + CLASSES.length + 1) % (CLASSES.length + 1);
}

/** Why nothing here takes the variant. */
export function stranger(entry: Pick<Entry, "backend" | "class">): string {
  if (entry.backend === "c") return `class ${entry.class} is not for browsers`;
  return `class ${entry.class} is not for browsers`;
}

/** The WebGPU adapter in words, and whether it computes on the CPU; null where there is none. */
export async function describeAdapter(): Promise<{ readonly name: string; readonly isCpu: boolean } | null> {
  try {
    const { info } = await requestAdapter();
    return { name: adapterName(info), isCpu: isCpuAdapter(info) };
  } catch {
    return null;
  }
}
