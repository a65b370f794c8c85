/** What the WebGPU device needs of the browser: an adapter, a device with just enough, and errors as ours. */

import type { Plan, Variant } from "../bundle/format.js";
import { greatestDims, evaluateSize } from "../bundle/layout.js";
import { BundleError, DeviceError, OutOfMemory } from "../errors.js";

export const STORAGE = 0x80 | 0x08 | 0x04; // STORAGE, COPY_DST, COPY_SRC
export const UNIFORM = 0x40 | 0x08; // UNIFORM, COPY_DST
export const READ = 0x01 | 0x08; // MAP_READ, COPY_DST
const MAP_READ = 1;
const REPORT = 'Use device: "wasm", and report this';

type Limits = Readonly<Record<string, number>>;

/** What a variant asks of an adapter; a manifest's entry says it as well as the plan. */
export interface Needs {
  readonly features: readonly string[];
  readonly limits: Limits;
}

export async function requestAdapter(): Promise<GPUAdapter> {
  const gpu = (globalThis.navigator as Navigator | undefined)?.gpu;
  if (!gpu) {
    throw new DeviceError("this page has no WebGPU", "webgpu",
      'Use device: "wasm", another browser, or https or localhost');
  }
  const adapter = await gpu.requestAdapter({ powerPreference: "high-performance" });
  if (!adapter) throw new DeviceError("there is no WebGPU adapter", "webgpu", 'Use device: "wasm" or another browser');
  return adapter;
}

/** Why the adapter cannot run the variant, in words; "" where it can. */
export function adapterLacks(adapter: GPUAdapter, needs: Needs): string {
  const missing = needs.features.find((f) => !adapter.features.has(f));
  if (missing) return `it lacks the feature ${missing}`;
  for (const [name, need] of Object.entries(needs.limits)) {
    const have = (adapter.limits as unknown as Limits)[name];
    if (have === undefined) return `it lacks the limit ${name}`;
    if (name.startsWith("min") ? have > need : have < need) return `its ${name} is ${have}, not ${need}`;
  }
  return "";
}

/** Why this browser cannot run the variant on WebGPU, in words; "" where it can. */
export async function webgpuLacks(needs: Needs): Promise<string> {
  try {
    return adapterLacks(await requestAdapter(), needs);
  } catch (error) {
    return (error as Error).message;
  }
}

/** Whether an adapter computes on the CPU. */
export function isCpuAdapter(info: GPUAdapterInfo): boolean {
  const words = `${info.vendor} ${info.architecture} ${info.device} ${info.description}`;
  return (info as { isFallbackAdapter?: boolean }).isFallbackAdapter === true || /swiftshader|llvmpipe|lavapipe/i.test(words);
}

export function adapterName(info: GPUAdapterInfo): string {
  return info.description || [info.vendor, info.architecture, info.device].filter(Boolean).join(" ") || "unnamed adapter";
}

/** The most bytes that one buffer may need, at the greatest sizes. */
function largest(plan: Plan, variant: Variant): number {
  const dims = greatestDims(plan);
  try {
    return Math.max(0, ...[...variant.buffers.values()].map((b) => evaluateSize(b.bytes, dims, b.name)));
  } catch (error) {
    if (error instanceof BundleError) return Infinity; // beyond what sizes can express
    throw error;
  }
}

/** A device with the features and limits of the variant; larger buffers where it may need them, timestamps where there are any. */
export async function openDevice(adapter: GPUAdapter, plan: Plan, variant: Variant): Promise<GPUDevice> {
  const offered = adapter.limits as unknown as Limits;
  const limits: Record<string, number> = {};
  for (const [name, need] of Object.entries(variant.limits)) if (!name.startsWith("min")) limits[name] = need;
  const need = largest(plan, variant);
  for (const [name, guaranteed] of [["maxBufferSize", 256 << 20], ["maxStorageBufferBindingSize", 128 << 20]] as const) {
    if (need > guaranteed) limits[name] = Math.max(limits[name] ?? 0, Math.min(need, offered[name]!));
  }
  const features = [...variant.features, ...(adapter.features.has("timestamp-query") ? ["timestamp-query"] : [])];
  try {
    return await adapter.requestDevice({
      label: "tang-edge",
      requiredFeatures: features as GPUFeatureName[],
      requiredLimits: limits,
    });
  } catch (error) {
    throw new DeviceError(`the browser refused it (${brief(error)})`, adapterName(adapter.info), 'Use device: "wasm"');
  }
}

export function brief(error: unknown): string {
  return String((error as Error | null)?.message ?? error).split(/\s+/).join(" ").slice(0, 800);
}

/** One of the browser's errors as ours. */
export function translate(error: unknown, where: string): DeviceError {
  if (error instanceof DeviceError) return error;
  if (typeof GPUOutOfMemoryError !== "undefined" && error instanceof GPUOutOfMemoryError) return outOfMemory(brief(error), where);
  return new DeviceError(`the browser refused it (${brief(error)})`, where, REPORT);
}

export function outOfMemory(why: string, where: string): OutOfMemory {
  return new OutOfMemory(`out of GPU memory (${why})`, where, 'Use smaller sizes or device: "wasm"');
}

/** The browser's verdict on work: what went wrong, or null. It never rejects. */
export type Failed = Promise<DeviceError | null>;

/** What `work` made, and later the error that the browser found in it, if any. */
export interface Guarded<T> {
  readonly value: T;
  readonly failed: Failed;
}

/** Does `work` (synchronous) inside error scopes of all kinds; lack of memory comes before what follows from it. */
export function guarded<T>(device: GPUDevice, where: string, work: () => T): Guarded<T> {
  device.pushErrorScope("validation");
  device.pushErrorScope("internal");
  device.pushErrorScope("out-of-memory");
  let value: T;
  let scopes: Promise<GPUError | null>[] = [];
  try {
    value = work();
  } finally {
    // a lost device has no errors: the loss is told by device.lost
    scopes = [0, 1, 2].map(() => device.popErrorScope().catch(() => null));
  }
  const failed = Promise.all(scopes).then((found) => {
    const error = found.find((e) => e !== null);
    return error ? translate(error, where) : null;
  });
  return { value, failed };
}

/** A buffer of at least `size` bytes. Raises OutOfMemory where the device cannot have one that large. */
export function makeBuffer(device: GPUDevice, size: number, usage: number, label: string): GPUBuffer {
  const most = usage & 0x80 ? Math.min(device.limits.maxBufferSize, device.limits.maxStorageBufferBindingSize) : device.limits.maxBufferSize;
  if (size > most) throw outOfMemory(`it takes ${size} bytes, ${most} are allowed`, `buffer ${label}`);
  return device.createBuffer({ label, usage, size: Math.max(4, Math.ceil(size / 4) * 4) });
}

/** Maps a read-back buffer. Call it inside the scopes of the submission that fills it. */
export function mapForReading(buffer: GPUBuffer, size: number): Promise<unknown> {
  return buffer.mapAsync(MAP_READ, 0, size);
}

/** Writes bytes of any number; what follows them up to a multiple of 4 becomes 0. */
export function write(device: GPUDevice, { buffer, offset }: { readonly buffer: GPUBuffer; readonly offset: number }, bytes: Uint8Array<ArrayBuffer>): void {
  const even = bytes.byteLength & ~3;
  if (even > 0) device.queue.writeBuffer(buffer, offset, bytes, 0, even);
  if (even === bytes.byteLength) return;
  const last = new Uint8Array(4);
  last.set(bytes.subarray(even));
  device.queue.writeBuffer(buffer, offset + even, last);
}
