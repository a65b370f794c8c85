// Names of members that only this package's own code uses, so that they may be shortened: none is of its interface, of a bundle's
// JSON, or of the browser's.

import { readdirSync, readFileSync } from "node:fs";
import { dirname } from "node:path";
import { createRequire } from "node:module";
import ts from "typescript";

const require = createRequire(import.meta.url);
const INTERFACE = /(api|engine|errors|inspect|index|format|verify|verify_variant|tensors|model|session|report)\.ts$/;

/** Calls `seen(name, isText)` for each member that a file declares, and for each text in it. */
function scan(path, seen) {
  const visit = (node) => {
    if (ts.isStringLiteralLike(node)) seen(node.text, true);
    const isMember = ts.isPropertySignature(node) || ts.isMethodSignature(node) || ts.isPropertyDeclaration(node) || ts.isMethodDeclaration(node)
      || ts.isAccessor(node) || ts.isParameterPropertyDeclaration(node, node.parent);
    if (isMember && ts.isIdentifier(node.name)) seen(node.name.text, false);
    ts.forEachChild(node, visit);
  };
  visit(ts.createSourceFile(path, readFileSync(path, "utf8"), ts.ScriptTarget.Latest, true));
}

export function internalNames() {
  const own = new Set(), others = new Set();
  for (const name of readdirSync("src", { recursive: true, encoding: "utf8" }).filter((n) => n.endsWith(".ts"))) {
    scan(`src/${name}`, (found, isText) => (isText || INTERFACE.test(name) ? others : own).add(found));
  }
  const libraries = dirname(require.resolve("typescript"));
  const known = readdirSync(libraries).filter((n) => /^lib\.(dom|es)[.\w]*\.d\.ts$/.test(n)).map((n) => `${libraries}/${n}`);
  for (const path of [...known, require.resolve("@webgpu/types/dist/index.d.ts")]) scan(path, (found) => others.add(found));
  return [...own].filter((name) => !others.has(name));
}
