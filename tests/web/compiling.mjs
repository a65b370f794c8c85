// Compiles models under Node as the page's worker does, and prints a JSON line for each job:
//     node compiling.mjs PYTHON_MJS PYODIDE_FOLDER JOBS_JSON
import fs from "node:fs";
import path from "node:path";

const [script, folder, jobs] = process.argv.slice(2);
const { PythonCompiler, CompilerFailure } = await import(script);
const base = path.resolve(folder) + path.sep;
const interrupt = new Uint8Array(new SharedArrayBuffer(1));
const compiler = await PythonCompiler.start(base, base, interrupt, () => {});
for (const { model, out, options, stopAt } of JSON.parse(jobs)) {
  const started = performance.now(), kinds = {};
  const result = { model };
  try {
    const made = compiler.compile(new Uint8Array(fs.readFileSync(model)), options, (event) => {
      kinds[event.kind] = (kinds[event.kind] ?? 0) + 1;
      if (stopAt && event.kind === stopAt) interrupt[0] = 2;
    });
    fs.writeFileSync(out, made.bundle);
    Object.assign(result, { report: made.report, text: compiler.passText("names").length });
  } catch (problem) {
    if (!(problem instanceof CompilerFailure)) throw problem;
    result.failure = problem.failure;
  }
  console.log(JSON.stringify({ ...result, kinds, seconds: (performance.now() - started) / 1000 }));
}
