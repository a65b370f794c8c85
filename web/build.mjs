// node build.mjs          dist/: index.js, minified, with types
// node build.mjs --size   the same, and fails where the JavaScript is larger than the package promises
// node build.mjs --tests  build/: the unit tests, for node --test

import { execFileSync } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";
import { minify } from "terser";

const SIZE_LIMIT = 34_000; // bytes of all JavaScript in dist/, each file gzipped; 30 KB are the aim

process.chdir(fileURLToPath(new URL(".", import.meta.url)));

const MINIFY = { module: true, ecma: 2022, compress: { passes: 3, unsafe_arrows: true }, format: { ecma: 2022 } };
const common = { bundle: true, format: "esm", target: "es2022", charset: "utf8", logLevel: "warning" };

async function library() {
  const made = `dist.${process.pid}`; // takes the place of dist/ when all of it is there
  const entryPoints = [{ in: "src/index.ts", out: "index" }];
  try {
    const { outputFiles } = await build({ ...common, entryPoints, outdir: made, platform: "browser", minify: true, legalComments: "none", write: false });
    mkdirSync(made);
    for (const { path, text } of outputFiles) writeFileSync(path, (await minify(text, MINIFY)).code);
    const tsc = createRequire(import.meta.url).resolve("typescript/bin/tsc");
    // types are checked by `npm run check`, not here
    execFileSync(process.execPath, [tsc, "-p", ".", "--emitDeclarationOnly", "--noCheck", "--outDir", made], { stdio: "inherit" });
    // declarations mention GPUDevice and GPUBuffer, which a project without WebGPU types does not know
    writeFileSync(`${made}/globals.d.ts`, readFileSync("src/globals.txt", "utf8"));
    const index = `${made}/index.d.ts`;
    writeFileSync(index, `/// <reference path="./globals.d.ts" />\n${readFileSync(index, "utf8")}`);
    rmSync("dist", { recursive: true, force: true });
    renameSync(made, "dist");
  } finally {
    rmSync(made, { recursive: true, force: true });
  }
}

function size() {
  const files = readdirSync("dist").filter((name) => name.endsWith(".js"));
  const sizes = files.map((name) => gzipSync(readFileSync(`dist/${name}`), { level: 9 }).length);
  const total = sizes.reduce((sum, n) => sum + n, 0);
  console.log(`${files.map((name, i) => `${name} ${sizes[i]}`).join(", ")}: ${total} of ${SIZE_LIMIT} bytes gzipped`);
  if (total > SIZE_LIMIT) {
    console.error("more JavaScript than the limit of this file");
    process.exit(1);
  }
}

async function tests() {
  rmSync("build", { recursive: true, force: true });
  const entryPoints = readdirSync("test").filter((name) => name.endsWith(".test.ts")).map((name) => `test/${name}`);
  await build({ ...common, entryPoints, outdir: "build", platform: "node", target: "node18", outExtension: { ".js": ".mjs" } });
}

if (process.argv.includes("--tests")) await tests();
else await library();
if (process.argv.includes("--size")) size();
