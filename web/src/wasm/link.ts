/**
 * Requests to a machine, answered in their order. The machine is in a worker, so that a run never blocks a page. One whose runs
 * are shorter than a message takes moves to the calling thread; it leaves before
 * a run of other sizes, and when a run takes long.
 */

import { DeviceError, DeviceLost, OutOfMemory } from "../errors.js";
import { machine, type Answer, type Op, type Request } from "./machine.js";

type Results = readonly (number | ArrayBuffer)[];
interface Waiting {
  readonly resolve: (results: Results) => void;
  readonly reject: (error: Error) => void;
}
/** Where a machine is. */
interface Seat {
  readonly near: boolean;
  readonly post: (request: Request, transfer: ArrayBuffer[]) => void;
  readonly end: () => void;
}

const SIZE_REMEDY = "Pack it with --dim name=lo..hi";
const QUICK = 2, SLOW = 6; // milliseconds of a run below which a machine comes near, and above which it leaves
const RUNS = 3; // so many quick ones in a row
const MOVES = 8; // after so many it stays
const LIGHT = 64 << 20; // bytes that may be copied for it

export class Link {
  /** Told, in words, when the machine is of no use any more. */
  onGone: (why: string) => void = () => {};
  readonly #waiting = new Map<number, Waiting>();
  #seat: Seat;
  #opened: Request["open"];
  #held: (() => void)[] | null = null;
  #quick = 0;
  #moves = 0;
  #sizes = "";
  #gone = "";
  #count = 0;

  /** `movable`: nobody else works on its memory. */
  constructor(readonly where: string, private movable: boolean) {
    const alone = typeof Worker === "undefined";
    this.movable &&= !alone;
    this.#seat = this.#sit(alone);
  }

  #sit(near: boolean): Seat {
    if (near) {
      const carryOut = machine((answer) => this.#take(answer));
      return { near, post: (request) => void Promise.resolve().then(() => this.#gone || carryOut(request)), end: () => {} };
    }
    const text = `const f=(${machine})((a,t)=>postMessage(a,t));onmessage=e=>f(e.data)`;
    const url = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
    const worker = new Worker(url);
    worker.onmessage = ({ data }: MessageEvent<Answer>) => {
      URL.revokeObjectURL(url);
      this.#take(data);
    };
    worker.onerror = (event) => this.#break(event.message || "the page's policy forbids it: worker-src blob:");
    return { near, post: (request, transfer) => worker.postMessage(request, transfer), end: () => worker.terminate() };
  }

  /** To the other side, memory and all. Requests meanwhile wait; where there is no room for two, it stays and stays for good. */
  async #move(): Promise<void> {
    const old = this.#seat, held: (() => void)[] = (this.#held = []);
    this.movable = ++this.#moves < MOVES;
    try {
      const [all] = (await this.#send(old, { leave: true })) as [ArrayBuffer];
      const seat = this.#sit(!old.near);
      try {
        await this.#send(seat, { open: this.#opened!, ops: [["grow", all.byteLength], ["write", 0, new Uint8Array(all)]] });
        this.#seat = seat;
        old.end();
      } catch (error) {
        seat.end();
        throw error;
      }
    } catch {
      this.movable = false; // nothing is lost: it goes on where it is
    }
    this.#held = null;
    for (const post of held) post();
  }

  #judge(ran: number): void {
    if (!this.movable || this.#held || this.#waiting.size > 0) return;
    this.#quick = ran < QUICK ? this.#quick + 1 : 0;
    if (this.#seat.near ? ran > SLOW : this.#quick >= RUNS) void this.#move();
  }

  /**
   * Rejects with DeviceLost, OutOfMemory or DeviceError. Written bytes are transferred: they are gone from here. `sizes`: how long
   * a run takes depends on them.
   */
  ask(request: Omit<Request, "id">, sizes = this.#sizes): Promise<Results> {
    if (sizes !== this.#sizes) {
      this.#quick = 0;
      if (this.#seat.near && this.movable && !this.#held) void this.#move();
    }
    this.#sizes = sizes;
    this.#opened = request.open ?? this.#opened;
    if (request.ops?.some((op) => op[0] === "grow" && op[1] > LIGHT)) this.movable = false;
    if (!this.#held) return this.#send(this.#seat, request);
    return new Promise((resolve, reject) => this.#held!.push(() => void this.#send(this.#seat, request).then(resolve, reject)));
  }

  #send(seat: Seat, request: Omit<Request, "id">): Promise<Results> {
    return new Promise((resolve, reject) => {
      if (this.#gone) return reject(this.#loss());
      const id = ++this.#count, transfer = (request.ops ?? []).flatMap((op) => (op[0] === "write" ? [op[2].buffer as ArrayBuffer] : []));
      this.#waiting.set(id, { resolve, reject });
      seat.post({ ...request, id }, transfer);
    });
  }

  ops(ops: readonly Op[], sizes?: string): Promise<Results> {
    return this.ask({ ops }, sizes);
  }

  /** From now on the worker serves a pool. */
  join(pool: number): void {
    this.#seat.post({ id: 0, join: pool }, []);
  }

  #take({ id, results, failure, ran }: Answer): void {
    const waiting = this.#waiting.get(id);
    if (!waiting) return;
    this.#waiting.delete(id);
    if (!failure) {
      waiting.resolve(results);
      if (ran !== undefined) this.#judge(ran);
      return;
    }
    const { kind, text } = failure;
    if (kind === "memory") return waiting.reject(new OutOfMemory(`out of memory (${text})`, this.where, "Use smaller sizes"));
    if (kind === "code" && text === "2") {
      return waiting.reject(new DeviceError("the model computed a size out of its range", this.where, SIZE_REMEDY));
    }
    if (kind === "code") return waiting.reject(new DeviceError(`the library failed with code ${text}`, this.where));
    waiting.reject(kind === "trap" ? new DeviceLost(`the library trapped (${text})`, this.where) : new DeviceError(text, this.where));
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
    this.#seat.end();
    const waiting = [...this.#waiting.values()];
    this.#waiting.clear();
    for (const { reject } of waiting) reject(this.#loss());
  }
}
