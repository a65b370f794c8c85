/** The compiler under Pyodide: loads Python, its packages and the wheel, and calls `tang_edge.page`. For a worker, or Node. */

import type { CompileEvent, CompileOptions, Compiled, Failure, PackReport } from "./events.js";

export type OnStage = (name: string, done: number, total: number) => void;

interface FileSystem {
  mkdirTree(path: string): void;
  chdir(path: string): void;
  writeFile(path: string, data: Uint8Array, options: { canOwn: boolean }): void;
  readFile(path: string): Uint8Array;
  unlink(path: string): void;
  analyzePath(path: string): { exists: boolean };
}

interface Page {
  compile_file(path: string, out: string, options: string, told: (event: string) => void): string;
  text(pass: string): string;
}

type Say = (text: string) => void;

interface Pyodide {
  readonly FS: FileSystem;
  readonly loadedPackages: Readonly<Record<string, string>>;
  loadPackage(names: readonly string[], options: { messageCallback: Say; errorCallback: Say }): Promise<unknown>;
  pyimport(name: string): unknown;
  setInterruptBuffer(buffer: Uint8Array): void;
}

type LoadPyodide = (options: Readonly<Record<string, unknown>>) => Promise<Pyodide>;

export class CompilerFailure extends Error {
  constructor(readonly failure: Failure) { super(failure.message) }
}

const failed = (kind: string, message: string, remedy: string, detail = "", fatal = false): CompilerFailure =>
  new CompilerFailure({ kind, message, where: "", remedy, detail, fatal });

const FOLDER = "/work";
const STEPS = ["starting Python", "loading NumPy", "loading the compiler", "starting the compiler"] as const;

export class PythonCompiler {
  private constructor(
    private readonly python: Pyodide, private readonly page: Page, private readonly interrupt: Uint8Array | null,
  ) {}

  /**
   * @param baseUrl folder of the lock file and the wheels, with a slash at its end
   * @param coreUrl folder of Pyodide itself
   */
  static async start(
    baseUrl: string, coreUrl: string, interrupt: Uint8Array | null, onStage: OnStage,
  ): Promise<PythonCompiler> {
    const step = (k: number): void => onStage(STEPS[k] ?? "started", k, STEPS.length);
    step(0);
    const python = await pyodide(baseUrl, coreUrl);
    if (interrupt) python.setInterruptBuffer(interrupt);
    step(1);
    await packageOf(python, "numpy", baseUrl);
    step(2);
    await packageOf(python, "tang-edge", baseUrl);
    step(3);
    const page = python.pyimport("tang_edge.page") as Page;
    python.FS.mkdirTree(FOLDER);
    python.FS.chdir(FOLDER); // so that errors name the file alone
    onStage(STEPS[3], STEPS.length, STEPS.length);
    return new PythonCompiler(python, page, interrupt);
  }

  /** Compile a model. Takes `bytes` over: they become a file of Python's. */
  compile(bytes: Uint8Array, options: CompileOptions, onEvent: (event: CompileEvent) => void): Compiled {
    const stem = options.name.replace(/[/\\\0]/g, "_") || "model";
    const [path, out] = [`${stem}.onnx`, ".bundle.tang"];
    const { FS } = this.python;
    const told = events(onEvent);
    const { dims, target, states, allowNaN } = options;
    const wanted = JSON.stringify({ dims, targets: target ? [target] : undefined, states, allowNaN });
    FS.writeFile(path, bytes, { canOwn: true });
    this.interrupt?.fill(0);
    try {
      const answer = JSON.parse(this.page.compile_file(path, out, wanted, told)) as { report?: PackReport; error?: Failure };
      if (!answer.report) throw new CompilerFailure(answer.error ?? failed("CompilerBug", "gave no answer", "").failure);
      return { bundle: FS.readFile(out), report: answer.report };
    } catch (problem) {
      throw problem instanceof CompilerFailure ? problem : broken(problem);
    } finally {
      for (const file of [path, out]) if (FS.analyzePath(file).exists) FS.unlink(file);
    }
  }

  /** The whole text of the program after a pass of the latest compile. */
  passText(pass: string): string {
    return this.page.text(pass);
  }
}

async function pyodide(baseUrl: string, coreUrl: string): Promise<Pyodide> {
  try {
    const module = (await import(/* @vite-ignore */ `${coreUrl}pyodide.mjs`)) as { loadPyodide: LoadPyodide };
    const [lockFileURL, stdout] = [`${baseUrl}pyodide-lock.json`, () => undefined];
    return await module.loadPyodide({ indexURL: coreUrl, lockFileURL, packageBaseUrl: baseUrl, stdout });
  } catch (problem) {
    const remedy = "Check that the folder is served whole";
    throw failed("NetworkError", `Python could not be loaded from ${coreUrl}`, remedy, String(problem), true);
  }
}

/** Pyodide resolves for a package that it could not load, and says so in a message only. */
async function packageOf(python: Pyodide, name: string, baseUrl: string): Promise<void> {
  const said: string[] = [];
  const keep = (text: string): void => void said.push(text);
  const callbacks = { messageCallback: () => undefined, errorCallback: keep };
  await python.loadPackage([name], callbacks).catch((problem: unknown) => keep(String(problem)));
  if (!said.length && name in python.loadedPackages) return;
  const remedy = "Check that the folder is served whole and unchanged";
  throw failed("NetworkError", `the package ${name} could not be loaded from ${baseUrl}`, remedy, said.join("\n"), true);
}

/** What left Python in another way than by an answer: its stack or its memory is at an end, and it is in no known state. */
function broken(problem: unknown): CompilerFailure {
  const text = problem instanceof Error ? `${problem.name}: ${problem.message}` : String(problem);
  const memory = /memory|allocation/i.test(text);
  const message = memory ? "the page has no memory left" : `Python stopped (${text.slice(0, 300)})`;
  const detail = problem instanceof Error ? problem.stack ?? "" : "";
  const remedy = "Compile it with the command line: tang-edge pack";
  return failed(memory ? "OutOfMemory" : "CompilerBug", message, remedy, detail, true);
}

/** Events as Python tells them, with the text before a pass: that after the one before it. */
function events(onEvent: (event: CompileEvent) => void): (text: string) => void {
  let before: string | null = null;
  let whole = true;
  return (text) => {
    const told = JSON.parse(text) as Record<string, unknown> & { type: string };
    const { type, ...rest } = told;
    if (type !== "pass") return onEvent({ kind: type, ...rest } as unknown as CompileEvent);
    const after = (told["after"] as string | undefined) ?? before ?? "";
    whole = (told["whole"] as boolean | undefined) ?? whole;
    onEvent({ kind: "pass", ...rest, before, after, whole } as unknown as CompileEvent);
    before = after;
  };
}
