/** What the manifest alone tells of a bundle: its ports, what it downloads and needs, and whether it runs here. */

import type { Inspection, Port } from "./api.js";
import { Bundle } from "./bundle/bundle.js";
import { show } from "./bundle/expr.js";
import type { Manifest, PlanPort } from "./bundle/format.js";
import { PLAN } from "./bundle/members.js";
import { DEVICES, stranger, type Device, type Entry } from "./devices.js";

export interface InspectOptions {
  readonly signal?: AbortSignal;
  readonly cache?: "auto" | "opfs" | "cache" | "none";
}

/** Reads the end of the file only (of a server without ranges: the file). */
export async function inspect(from: string | URL | Blob, options: InspectOptions = {}): Promise<Inspection> {
  const { manifest, size } = await Bundle.open(from, options);
  const variants = [];
  for (const entry of manifest.variants) {
    const device = DEVICES.find((d) => d.takes(entry)), why = await whyNot(entry, device);
    variants.push({
      id: entry.id,
      device: device?.kind ?? ("other" as const),
      download: download(manifest, entry),
      peakBytes: entry.peak_bytes,
      peakBytesMax: entry.peak_bytes_max ?? entry.peak_bytes,
      runs: why === "",
      why: why || `needs ${megabytes(entry.peak_bytes)}`,
    });
  }
  const { name, dims } = manifest;
  return { name, bytes: size, inputs: manifest.inputs.map(port), outputs: manifest.outputs.map(port), dims, variants, runs: variants.some((v) => v.runs) };
}

function port({ name, dtype, shape }: PlanPort): Port {
  return { name, dtype, shape: shape.map((e) => (typeof e === "number" ? e : show(e))) };
}

function download({ files }: Manifest, entry: Entry): number {
  const needed = [...files].filter(([name]) => name === PLAN || /^(weights|golden)\//.test(name) || entry.members.includes(name));
  return needed.reduce((sum, [, { bytes }]) => sum + bytes, 0);
}

async function whyNot(entry: Entry, device: Device | undefined): Promise<string> {
  return device ? (await device.lacks(entry)) || lacksMemory(entry) : stranger(entry);
}

/** Browsers tell their memory roughly, and nothing above 8 GiB; WebAssembly has 4 GiB. */
function lacksMemory(entry: Entry): string {
  const told = (globalThis.navigator as { deviceMemory?: number } | undefined)?.deviceMemory;
  const room = Math.min(entry.backend === "c" ? 4 : Infinity, told !== undefined && told < 8 ? told : Infinity) * 2 ** 30;
  return entry.peak_bytes <= room ? "" : `needs ${megabytes(entry.peak_bytes)} of ${megabytes(room)}`;
}

function megabytes(bytes: number): string {
  return `${(bytes / 2 ** 20).toFixed(1)} MiB`;
}
