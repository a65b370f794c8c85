/** Which device this browser offers, before any model is loaded. */

export interface Found {
  readonly kind: "webgpu" | "wasm" | "none";
  readonly short: string;
  readonly words: string;
  readonly adapter: GPUAdapterInfo | null;
  readonly limits: Readonly<Record<string, number>>;
  readonly features: readonly string[];
  /** The adapter computes on the processor. */
  readonly software: boolean;
}

const LIMITS = [
  "maxStorageBufferBindingSize", "maxBufferSize", "maxStorageBuffersPerShaderStage", "maxComputeWorkgroupStorageSize", "maxComputeInvocationsPerWorkgroup",
] as const;
const FEATURES = ["shader-f16", "subgroups", "timestamp-query"] as const;

// a module whose one function makes a vector: browsers without SIMD refuse it
const SIMD = Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 15, 1, 13, 0, 68, 0, 0, 0, 0, 0, 0, 0, 0, 253, 20, 11);

export async function findDevice(): Promise<Found> {
  const none = { adapter: null, limits: {}, features: [], software: false };
  const adapter = "gpu" in navigator ? await navigator.gpu.requestAdapter().catch(() => null) : null;
  if (adapter) {
    const info = adapter.info;
    const name = adapterName(info);
    const software = info.isFallbackAdapter === true || /swiftshader|llvmpipe|lavapipe|basic render/i.test(`${info.device} ${info.description} ${info.architecture}`);
    return {
      kind: "webgpu", short: `WebGPU · ${name}`, adapter: info, software,
      words: `WebGPU on ${name}${software ? ", a software adapter that computes on the processor" : ""}`,
      limits: Object.fromEntries(LIMITS.map((l) => [l, adapter.limits[l]])),
      features: FEATURES.filter((f) => adapter.features.has(f)),
    };
  }
  if (WebAssembly.validate(SIMD)) return { ...none, kind: "wasm", short: "WebAssembly", words: "WebAssembly with SIMD; this browser offers no WebGPU adapter" };
  return { ...none, kind: "none", short: "no device", words: "neither WebGPU nor WebAssembly with SIMD: models cannot run in this browser" };
}

export function adapterName(info: GPUAdapterInfo): string {
  return info.description || [info.vendor, info.device || info.architecture].filter(Boolean).join(" ") || "an adapter without a name";
}
