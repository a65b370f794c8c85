/**
 * What runs in the worker: an instance of a bundle's library and its memory. It knows nothing of models; every address and size
 * comes from the engine.
 */

/** Carried out in order; after one that fails, the rest is left undone. */
export type Op =
  | readonly ["grow", bytes: number]
  | readonly ["write", at: number, bytes: Uint8Array]
  | readonly ["zero", at: number, bytes: number]
  | readonly ["copy", from: number, to: number, bytes: number]
  /** Set bytes aside; "put" takes what was set aside first. */
  | readonly ["keep", at: number, bytes: number]
  | readonly ["put", at: number]
  | readonly ["read", at: number, bytes: number]
  | readonly ["sizes", dims: number, to: number]
  | readonly ["pool", threads: number]
  | readonly ["run", call: number];

export interface Request {
  readonly id: number;
  readonly open?: { readonly module: WebAssembly.Module; readonly memory: WebAssembly.Memory | null; readonly stack: number };
  readonly ops?: readonly Op[];
  /** The pool that this worker serves from now on: it takes no further requests. */
  readonly join?: number;
  /** Give the whole memory away: the machine goes on elsewhere. */
  readonly leave?: true;
}

export interface Answer {
  readonly id: number;
  readonly results: readonly (number | ArrayBuffer)[];
  /** Milliseconds in tang_run, where it was called. */
  readonly ran?: number;
  /** "memory": there was not enough; "trap": the instance is of no use any more; "code": what tang_run returned. */
  readonly failure?: { readonly kind: "memory" | "trap" | "code" | "other"; readonly text: string };
}

type Exports = Record<string, ((...args: number[]) => number) & { value: number }>;

/** Its text becomes the worker's, so it mentions nothing of what is around it. */
export function machine(answer: (a: Answer, transfer: ArrayBuffer[]) => void): (request: Request) => void {
  let code: Exports, memory: WebAssembly.Memory, doing = "open", ran: number | undefined;
  const kept: Uint8Array[] = [];

  function carryOut(op: Op, results: (number | ArrayBuffer)[]): void {
    const bytes = new Uint8Array(memory.buffer), at = op[1], size = op[2] as number;
    doing = op[0];
    if (op[0] === "grow") {
      const pages = Math.ceil((at - bytes.length) / 65536);
      if (pages > 0) memory.grow(pages);
    } else if (op[0] === "write") bytes.set(op[2], at);
    else if (op[0] === "zero") bytes.fill(0, at, at + size);
    else if (op[0] === "copy") bytes.copyWithin(size, at, at + op[3]);
    else if (op[0] === "keep") kept.push(bytes.slice(at, at + size));
    else if (op[0] === "put") bytes.set(kept.shift()!, at);
    else if (op[0] === "read") results.push(bytes.slice(at, at + size).buffer);
    else if (op[0] === "pool") results.push(code.tang_pool_new!(at) >>> 0);
    else {
      const start = performance.now(), failed = op[0] === "run" ? code.tang_run!(at) : code.tang_sizes!(at, size);
      if (op[0] === "run") ran = (ran ?? 0) + performance.now() - start;
      doing = "code";
      if (failed) throw failed;
    }
  }

  function open(module: WebAssembly.Module, shared: WebAssembly.Memory | null, stack: number): number[] {
    code = new WebAssembly.Instance(module, shared ? { env: { memory: shared } } : {}).exports as never;
    memory = shared || (code.memory as unknown as WebAssembly.Memory);
    if (stack) code.__stack_pointer!.value = stack;
    return [code.tang_abi!(), code.__heap_base!.value >>> 0];
  }

  function join(pool: number): void {
    try {
      code.tang_pool_join!(pool);
    } catch {
      code.tang_pool_fail!(pool); // who waits for this worker traps
    }
  }

  return (request) => {
    const results: (number | ArrayBuffer)[] = [], { id } = request;
    ran = undefined;
    try {
      if (request.join) return join(request.join);
      if (request.open) results.push(...open(request.open.module, request.open.memory, request.open.stack));
      for (const op of request.ops || []) carryOut(op, results);
      if (request.leave) results.push(memory.buffer.slice(0));
      answer({ id, results, ran: ran! }, results.filter((r): r is ArrayBuffer => typeof r === "object"));
    } catch (error) {
      kept.length = 0;
      const kind = doing === "run" ? "trap" : doing === "code" ? "code" : error instanceof RangeError ? "memory" : "other";
      answer({ id, results: [], failure: { kind, text: String(error) } }, []);
    }
  };
}
