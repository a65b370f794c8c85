/** The compiler in a page: tang-edge's Python compiler under Pyodide, in a worker. */

import { TangError } from "tang-edge";
import type { CompileEvent, CompileOptions, Compiled, Failure, Reply, Request } from "./events.js";

export type * from "./events.js";

/** Why a compile ended: `kind` is the class of Python's error (UnsupportedModel, InputError, TargetLimit, OutOfMemory, ...). */
export class CompileError extends TangError {
  override readonly name = "CompileError";
  readonly kind: string;
  /** For a report of a bug: Python's traceback. */
  readonly detail: string;
  constructor(failure: Failure) {
    super(failure.message, failure.where, failure.remedy);
    this.kind = failure.kind;
    this.detail = failure.detail;
  }
}

type Stoppable = CompileOptions & { readonly signal?: AbortSignal };

export interface StartOptions {
  /** The folder that `tools/fetch_pyodide.py` filled: lock file and wheels, and Pyodide unless `coreUrl` says otherwise. */
  readonly baseUrl: string;
  /** Folder of Pyodide 314.0.4 itself, for example a CDN's. Default: `baseUrl`, so that no request leaves the host. */
  readonly coreUrl?: string;
  /** The worker's script. Default: compiler-worker.js beside this one. */
  readonly workerUrl?: string | URL;
  readonly onStage?: (name: string, done: number, total: number) => void;
}

type OnEvent = (event: CompileEvent) => void;
interface Job {
  readonly onEvent: OnEvent;
  readonly resolve: (reply: Reply) => void;
  readonly reject: (problem: unknown) => void;
}

const nobody: OnEvent = () => undefined;

/** How long Python may take to notice an interrupt before its worker is ended. */
const PATIENCE = 2000;
const folder = (url: string): string => new URL(url.endsWith("/") ? url : `${url}/`, location.href).href;

export class Compiler {
  #worker: Worker | null = null;
  #job: Job | null = null;
  #interrupt: Uint8Array | null = null;
  #turn: Promise<unknown> = Promise.resolve();
  private constructor(private readonly options: StartOptions) {}

  /**
   * Start Python and load the compiler; `onStage` hears how far it is. Throws CompileError (kind NetworkError) where files are
   * missing.
   */
  static async start(options: StartOptions): Promise<Compiler> {
    const made = new Compiler(options);
    await made.#ready();
    return made;
  }

  /**
   * Compile an ONNX model into a bundle. `bytes` are given away to the worker. Compiles run one after the other.
   *
   * When `signal` aborts, Python is interrupted where the page is cross-origin isolated; elsewhere the worker is ended, and the
   * next compile starts a new one. Throws CompileError, or the signal's reason.
   */
  compile(bytes: ArrayBuffer | Uint8Array, options: Stoppable, onEvent = nobody): Promise<Compiled> {
    const { signal, ...rest } = options;
    return this.#inTurn(async () => {
      signal?.throwIfAborted();
      await this.#ready();
      signal?.throwIfAborted();
      const data = bytes instanceof Uint8Array ? bytes : new Uint8Array(bytes);
      const whole = data.byteLength === data.buffer.byteLength ? data : data.slice();
      const stop = (): void => this.#stop(signal?.reason);
      signal?.addEventListener("abort", stop, { once: true });
      try {
        const reply = await this.#ask({ to: "compile", bytes: whole, options: rest }, onEvent, [whole.buffer as ArrayBuffer]);
        if (reply.from !== "compiled") throw new TypeError(`the worker answered ${reply.from}`);
        return reply.made;
      } catch (problem) {
        throw signal?.aborted ? signal.reason : problem;
      } finally {
        signal?.removeEventListener("abort", stop);
      }
    });
  }

  /** The whole text of the program after a pass ("import" for the model as it was read) of the latest compile. */
  passText(pass: string): Promise<string> {
    return this.#inTurn(async () => {
      await this.#ready();
      const reply = await this.#ask({ to: "text", pass });
      return reply.from === "text" ? reply.text : "";
    });
  }

  /** End the worker; what is running is rejected with an AbortError. A later compile starts a new one. */
  terminate(): void {
    this.#end(new DOMException("the compiler was ended", "AbortError"));
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#turn.then(work, work);
    this.#turn = done.catch(() => undefined);
    return done;
  }

  async #ready(): Promise<void> {
    if (this.#worker) return;
    const { baseUrl, coreUrl, workerUrl, onStage } = this.options;
    const script = workerUrl ?? new URL("./compiler-worker.js", import.meta.url);
    const worker = new Worker(script, { type: "module", name: "tang-edge compiler" });
    this.#worker = worker;
    worker.onmessage = ({ data }: MessageEvent<Reply>) => this.#take(data);
    worker.onerror = (event) => {
      const message = `the worker failed: ${event.message || "it could not be loaded"}`;
      this.#end(new CompileError({ kind: "CompilerBug", message, where: String(script), remedy: "", detail: "" }));
    };
    this.#interrupt = globalThis.crossOriginIsolated ? new Uint8Array(new SharedArrayBuffer(1)) : null;
    const [base, core] = [folder(baseUrl), folder(coreUrl ?? baseUrl)];
    const started: Request = { to: "start", baseUrl: base, coreUrl: core, interrupt: this.#interrupt };
    try {
      await this.#ask(started, (event) => { if (event.kind === "stage") onStage?.(event.name, event.done, event.total) });
    } catch (problem) {
      this.#end(problem);
      throw problem;
    }
  }

  #ask(request: Request, onEvent = nobody, transfer: Transferable[] = []): Promise<Reply> {
    return new Promise((resolve, reject) => {
      this.#job = { onEvent, resolve, reject };
      this.#worker?.postMessage(request, transfer);
    });
  }

  #take(reply: Reply): void {
    const job = this.#job;
    if (!job) return;
    if (reply.from === "event") return job.onEvent(reply.event);
    this.#job = null;
    if (reply.from !== "failed") return job.resolve(reply);
    if (reply.failure.fatal) this.#end(null);
    job.reject(new CompileError(reply.failure));
  }

  #stop(reason: unknown): void {
    const job = this.#job;
    if (!job || !this.#interrupt) return this.#end(reason);
    this.#interrupt[0] = 2; // SIGINT
    setTimeout(() => { if (this.#job === job) this.#end(reason) }, PATIENCE);
  }

  #end(reason: unknown): void {
    this.#worker?.terminate();
    this.#worker = null;
    const job = this.#job;
    this.#job = null;
    job?.reject(reason);
  }
}
