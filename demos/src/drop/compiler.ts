/** The compiler in the page, as this page uses it: started once, in a worker, from the folder that the site names. */

import { Compiler } from "../../compiler/index.js";
import { site } from "../lib/site.js";

/** `onStage` hears of the start: Python, its packages, the compiler. */
export async function startCompiler(onStage: (name: string, done: number, total: number) => void): Promise<Compiler> {
  const held = await site();
  if (!held.compiler) throw new Error(`This copy of the site has no compiler. ${held.missing["compiler"] ?? ""}`);
  return Compiler.start({ baseUrl: new URL(held.compiler, document.baseURI).href, workerUrl: new URL("assets/compiler-worker.js", document.baseURI), onStage });
}
