/** What this copy of the site holds: `site.json`, written by `tang-edge demo`. */

import { load, type LoadOptions, type Model } from "tang-edge";

export interface SiteModel {
  readonly title: string;
  readonly bundle: string;
  readonly bundleBytes: number;
  readonly onnx: string;
  readonly onnxBytes: number;
  readonly licence: string;
  readonly source: string;
}

export interface Site {
  readonly version: string;
  readonly models: Readonly<Record<string, SiteModel>>;
  /** Folder of Pyodide and the wheels; null where the compiler is not part of this copy, `missing` says why. */
  readonly compiler: string | null;
  /** Folder and version of onnxruntime-web. */
  readonly ort: { readonly folder: string; readonly version: string } | null;
  /** By part: why it is not here, and what brings it. */
  readonly missing: Readonly<Record<string, string>>;
}

let asked: Promise<Site> | null = null;

export function site(): Promise<Site> {
  asked ??= fetch("site.json").then((answer) => {
    if (!answer.ok) throw new Error("This copy of the site has no models (site.json is missing). Make it with `tang-edge demo --build DIR`.");
    return answer.json() as Promise<Site>;
  });
  return asked;
}

export async function siteModel(name: string): Promise<SiteModel> {
  const { models, missing } = await site();
  const found = models[name];
  if (!found) throw new Error(`The model ${name} is not in this copy of the site. ${missing[name] ?? ""}`);
  return found;
}

/** Load a bundle of the site; `?device=` of the page's address overrides the choice. */
export async function loadModel(name: string, options: LoadOptions = {}): Promise<Model> {
  const { bundle } = await siteModel(name);
  return load(new URL(bundle, document.baseURI).href, { device: wantedDevice(), ...options });
}

export function wantedDevice(): "auto" | "webgpu" | "wasm" {
  const asked_ = new URLSearchParams(location.search).get("device");
  return asked_ === "webgpu" || asked_ === "wasm" ? asked_ : "auto";
}
