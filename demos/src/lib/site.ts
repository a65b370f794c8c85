/** What this copy of the site holds: `site.json`, written by `tang-edge demo`. */

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
