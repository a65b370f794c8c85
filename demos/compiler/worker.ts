/** The worker: one Python, one compile at a time. */

import type { Failure, Reply, Request } from "./events.js";
import { CompilerFailure, PythonCompiler } from "./python.js";

interface Scope {
  postMessage(message: Reply, transfer?: Transferable[]): void;
  onmessage: ((event: MessageEvent<Request>) => void) | null;
}

const scope = self as unknown as Scope;
let compiler: PythonCompiler | null = null;

const say = (reply: Reply, transfer: Transferable[] = []): void => scope.postMessage(reply, transfer);

async function answer(request: Request): Promise<void> {
  if (request.to === "start") {
    compiler = await PythonCompiler.start(request.baseUrl, request.coreUrl, request.interrupt, (name, done, total) =>
      say({ from: "event", event: { kind: "stage", name, done, total } }));
    return say({ from: "started" });
  }
  if (!compiler) throw new Error("the worker was not started");
  if (request.to === "text") return say({ from: "text", text: compiler.passText(request.pass) });
  const made = compiler.compile(request.bytes, request.options, (event) => say({ from: "event", event }));
  say({ from: "compiled", made }, [made.bundle.buffer]);
}

function failure(problem: unknown): Failure {
  if (problem instanceof CompilerFailure) return problem.failure;
  const text = problem instanceof Error ? problem.message : String(problem);
  const detail = problem instanceof Error ? problem.stack ?? "" : "";
  return { kind: "CompilerBug", message: text, where: "", remedy: "Please report it", detail };
}

scope.onmessage = ({ data }) => {
  answer(data).catch((problem: unknown) => say({ from: "failed", failure: failure(problem) }));
};
