/** Requests to a machine in a worker, answered in their order. Where there are no workers (Node) it runs on the calling thread. */

import { DeviceError, DeviceLost, OutOfMemory } from "../errors.js";
import { machine, type Answer, type Op, type Request } from "./machine.js";

type Results = readonly (number | ArrayBuffer)[];
interface Waiting {
  readonly resolve: (results: Results) => void;
  readonly reject: (error: Error) => void;
}

const SIZE_REMEDY = "Pack the model with another range (--dim name=lo..hi)";

export class Link {
  /** Told, in words, when the machine is of no use any more. */
  onGone: (why: string) => void = () => {};
  readonly #waiting = new Map<number, Waiting>();
  readonly #post: (request: Request, transfer: ArrayBuffer[]) => void;
  readonly #end: () => void = () => {};
  #gone = "";
  #count = 0;

  constructor(readonly where: string) {
    if (typeof Worker === "undefined") {
      const carryOut = machine((answer) => this.#take(answer));
      this.#post = (request) => void Promise.resolve().then(() => this.#gone || carryOut(request));
      return;
    }
    const text = `const f=(${machine})((a,t)=>postMessage(a,t));onmessage=e=>f(e.data)`;
    const url = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
    const worker = new Worker(url);
    worker.onmessage = ({ data }: MessageEvent<Answer>) => {
      URL.revokeObjectURL(url);
      this.#take(data);
    };
    worker.onerror = (event) => this.#break(event.message || "the page's policy allows no worker (worker-src blob:)");
    this.#post = (request, transfer) => worker.postMessage(request, transfer);
    this.#end = () => worker.terminate();
  }

  /** Rejects with DeviceLost, OutOfMemory or DeviceError. Written bytes are transferred: they are gone from here. */
  ask(request: Omit<Request, "id">): Promise<Results> {
    return new Promise((resolve, reject) => {
      if (this.#gone) return reject(this.#loss());
      const id = ++this.#count, transfer = (request.ops ?? []).flatMap((op) => (op[0] === "write" ? [op[2].buffer as ArrayBuffer] : []));
      this.#waiting.set(id, { resolve, reject });
      this.#post({ ...request, id }, transfer);
    });
  }

  ops(ops: readonly Op[]): Promise<Results> {
    return this.ask({ ops });
  }

  /** From now on the worker serves a pool. */
  join(pool: number): void {
    this.#post({ id: 0, join: pool }, []);
  }

  #take({ id, results, failure }: Answer): void {
    const waiting = this.#waiting.get(id);
    if (!waiting) return;
    this.#waiting.delete(id);
    if (!failure) return waiting.resolve(results);
    const { kind, text } = failure;
    if (kind === "memory") return waiting.reject(new OutOfMemory(`there is not enough memory (${text})`, this.where, "Use smaller sizes"));
    if (kind === "code" && text === "2") {
      return waiting.reject(new DeviceError("the model computed a size that is out of the range of its dimension", this.where, SIZE_REMEDY));
    }
    if (kind === "code") return waiting.reject(new DeviceError(`the compiled library failed with code ${text}`, this.where));
    waiting.reject(kind === "trap" ? new DeviceLost(`the compiled library trapped (${text})`, this.where) : new DeviceError(text, this.where));
    if (kind === "trap") this.#break(text);
  }

  #loss(): DeviceLost {
    return new DeviceLost(`WebAssembly ended (${this.#gone})`, this.where);
  }

  #break(why: string): void {
    if (this.#gone) return;
    this.close(why);
    this.onGone(why);
  }

  /** Ends the worker; what is under way rejects. */
  close(why = "it was closed"): void {
    this.#gone ||= why;
    this.#end();
    const waiting = [...this.#waiting.values()];
    this.#waiting.clear();
    for (const { reject } of waiting) reject(this.#loss());
  }
}
