/** Builds the site's own files: pages, scripts, styles, service worker. Bundles and vendored runtimes are added by `tang-edge demo`.
 *
 *      node build.mjs [--out DIR]       default: dist
 *      node build.mjs --test            the unit tests, into build/test
 */
import { createHash } from "node:crypto";
import { cp, mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { existsSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const root = path.dirname(fileURLToPath(import.meta.url));
const at = (...parts) => path.join(root, ...parts);
const argument = (name, otherwise) => (process.argv.includes(name) ? process.argv[process.argv.indexOf(name) + 1] : otherwise);
const common = { bundle: true, target: "es2022", absWorkingDir: root, logLevel: "warning", legalComments: "none" };

const PAGES = {
  home: "index.html", drop: "drop.html", ocr: "ocr.html", robot: "robot.html", bench: "bench.html",
};

async function scripts(out) {
  const entryPoints = Object.fromEntries(Object.keys(PAGES).map((n) => [n, at("src", n, "page.ts")]));
  if (existsSync(at("compiler", "worker.ts"))) entryPoints["compiler-worker"] = at("compiler", "worker.ts");
  await build({ ...common, entryPoints, outdir: path.join(out, "assets"), format: "esm", splitting: true, minify: true, chunkNames: "part-[hash]" });
  await build({ ...common, entryPoints: [at("src/lib/theme.ts")], outdir: path.join(out, "assets"), format: "iife", minify: true });
  await build({
    ...common, entryPoints: { site: at("src/css/site.css") }, outdir: path.join(out, "assets"), minify: true,
    loader: { ".woff2": "file" }, assetNames: "font-[hash]",
  });
}

async function pages(out, version) {
  const layout = await readFile(at("src/html/layout.html"), "utf8");
  const mark = (await readFile(at("public/icon.svg"), "utf8")).trim().replace("<svg ", '<svg aria-hidden="true" ');
  for (const [name, file] of Object.entries(PAGES)) {
    const source = await readFile(at("src/html", `${name}.html`), "utf8");
    const [, title, description, content] = /^<!--\s*title: (.*)\n\s*description: (.*?)\s*-->\n([^]*)$/.exec(source) ?? [];
    if (!content) throw new Error(`${name}.html: no title and description in a comment at its head`);
    const values = { title, description, content, name, version, mark };
    const text = layout.replace(/\{\{([\w.]+)\}\}/g, (_, key) =>
      key.startsWith("here.") ? (key === `here.${name}` ? ' aria-current="page"' : "") : values[key]);
    await writeFile(path.join(out, file), text);
  }
}

/** The service worker knows every file of the shell, and its version is their hash. */
async function worker(out, version) {
  const files = (await walk(out)).filter((f) => !f.endsWith(".map")).sort();
  const hash = createHash("sha256");
  for (const f of files) hash.update(f).update(await readFile(path.join(out, f)));
  await build({
    ...common, entryPoints: [at("src/sw.ts")], outfile: path.join(out, "sw.js"), format: "iife", minify: true,
    define: { SHELL_FILES: JSON.stringify(files), SHELL_VERSION: JSON.stringify(`${version}-${hash.digest("hex").slice(0, 12)}`) },
  });
}

async function walk(folder, under = "") {
  const found = [];
  for (const entry of await readdir(path.join(folder, under), { withFileTypes: true })) {
    const name = under ? `${under}/${entry.name}` : entry.name;
    if (entry.isDirectory()) found.push(...(await walk(folder, name)));
    else found.push(name);
  }
  return found;
}

async function licences(out) {
  const parts = ["The site and the tang-edge runtime: Apache License 2.0.\n"];
  for (const font of ["newsreader", "instrument-sans", "jetbrains-mono"])
    parts.push(await readFile(at("node_modules/@fontsource-variable", font, "LICENSE"), "utf8"));
  parts.push([
    "What else a copy of the site may hold keeps its own licence:",
    "models/: site.json names the package and the licence of each model.",
    "vendor/compiler-*/: Pyodide (MPL-2.0), CPython (PSF-2.0), NumPy (BSD-3-Clause), ONNX (Apache-2.0), Protobuf (BSD-3-Clause).",
    "vendor/onnxruntime-web-*/: ONNX Runtime Web (MIT).\n",
  ].join("\n"));
  await writeFile(path.join(out, "licences.txt"), parts.join(`\n${"-".repeat(80)}\n\n`));
}

async function site() {
  const out = path.resolve(argument("--out", at("dist")));
  const { version } = JSON.parse(await readFile(at("package.json"), "utf8"));
  for (const old of ["assets"]) await rm(path.join(out, old), { recursive: true, force: true });
  await mkdir(out, { recursive: true });
  const shell = await mkdtempBeside(out);
  await cp(at("public"), shell, { recursive: true });
  await scripts(shell);
  await pages(shell, version);
  await licences(shell);
  await worker(shell, version);
  await cp(shell, out, { recursive: true });
  await rm(shell, { recursive: true });
}

/** The shell is made by itself first, so that what `tang-edge demo` added to the folder is not taken for a part of it. */
async function mkdtempBeside(out) {
  const folder = `${out}.making-${process.pid}`;
  await rm(folder, { recursive: true, force: true });
  await mkdir(folder, { recursive: true });
  return folder;
}

async function tests() {
  await rm(at("build/test"), { recursive: true, force: true });
  const files = (await readdir(at("test"))).filter((f) => f.endsWith(".test.ts"));
  await build({ ...common, entryPoints: files.map((f) => at("test", f)), outdir: at("build/test"), format: "esm", platform: "node", outExtension: { ".js": ".mjs" } });
}

await (process.argv.includes("--test") ? tests() : site());
