/** Loads the bundles of this site. */

import { load, type LoadOptions, type Model } from "tang-edge";
import { siteModel } from "./site.js";

/** Load a bundle of the site; `?device=` of the page's address overrides the choice. */
export async function loadModel(name: string, options: LoadOptions = {}): Promise<Model> {
  const { bundle } = await siteModel(name);
  return load(new URL(bundle, document.baseURI).href, { device: wantedDevice(), ...options });
}

export function wantedDevice(): "auto" | "webgpu" | "wasm" {
  const asked_ = new URLSearchParams(location.search).get("device");
  return asked_ === "webgpu" || asked_ === "wasm" ? asked_ : "auto";
}
