/** The part of the structural check that is about a variant: buffers, kernels, steps, and the references between them. */

import { boolean, expr, fail, integer, list, member, name, object, oneOf, optional, record, text, type Reader } from "./check.js";
import { DTYPES } from "./dtypes.js";
import { namesOf } from "./expr.js";
import type { Alternate, AnyStep, Buffer, Dispatch, Kernel, Step, Variant } from "./format.js";
import type { Ports } from "./verify.js";

export const BACKENDS = ["webgpu", "c"] as const;
const KINDS = ["input", "output", "arena", "constant", "packed"] as const;
const MAX_DEPTH = 32;

class Scope {
  slots = 0;
  packed = 0;
  readonly buffers = new Map<number, Buffer>();
  kernels: ReadonlyMap<string, Kernel> = new Map();
  readonly size;
  readonly sizes;

  constructor(readonly ports: Ports, readonly constants: ReadonlySet<string>) {
    this.size = expr(ports.names);
    this.sizes = list(this.size);
  }
}

export function variant(value: unknown, path: string, ports: Ports, constants: ReadonlySet<string>): Variant {
  const scope = new Scope(ports, constants);
  const made = object({
    id: name, backend: oneOf(BACKENDS), class: name, features: list(name), limits: record(integer()), source: member,
    slots: counted(scope.sizes, (n) => (scope.slots = n)),
    // the packed region is filled once, before any size is known
    packed_slots: counted(list(expr(new Set())), (n) => (scope.packed = n)),
    buffers: (v, p) => buffers(v, p, scope),
    kernels: (v, p) => (scope.kernels = record(kernel)(v, p)),
    prologue: (v, p) => steps(v, p, scope, 0, 1)[0],
    steps: (v, p) => steps(v, p, scope, 0, 0)[0],
    prebuilt: optional(record(member), new Map<string, string>()),
    cpu_adapter_prefers: optional(text, null),
  })(value, path);
  checkMeasured(path, made.steps, ports);
  return {
    ...made, deviceClass: made.class, limits: Object.fromEntries(made.limits), prebuilt: Object.fromEntries(made.prebuilt),
    packedSlots: made.packed_slots, cpuAdapterPrefers: made.cpu_adapter_prefers,
  };
}

function counted<T>(read: Reader<T[]>, tell: (count: number) => void): Reader<T[]> {
  return (v, path) => {
    const items = read(v, path);
    tell(items.length);
    return items;
  };
}

function buffers(value: unknown, path: string, scope: Scope): ReadonlyMap<number, Buffer> {
  for (const made of list((v, p) => buffer(v, p, scope))(value, path)) {
    if (scope.buffers.has(made.id)) fail(`buffer id ${made.id} occurs twice`, path);
    scope.buffers.set(made.id, made);
  }
  const held = [...scope.buffers.values()];
  for (const kind of ["input", "output"] as const) {
    for (const port of scope.ports[`${kind}s`]) {
      const rank = held.filter((b) => b.kind === kind && b.io === port.name).at(-1)?.shape.length;
      if (rank !== port.shape.length) fail(`${kind} '${port.name}' has no buffer, or one of another rank`, path);
    }
  }
  return scope.buffers;
}

function buffer(value: unknown, path: string, scope: Scope): Buffer {
  const { ports, size, sizes } = scope;
  const made = object({
    id: integer(0, 2 ** 31 - 1), name: text, kind: oneOf(KINDS), dtype: oneOf(DTYPES), shape: sizes, strides: sizes, bytes: size,
    slot: optional(integer(), null), constant: optional(oneOf(scope.constants), null), io: optional(text, null),
  })(value, path);
  const { kind, slot, constant, io, shape, strides, bytes } = made, wanted = kind === "input" ? ports.inputs : kind === "output" ? ports.outputs : [];
  if (slot !== null) integer(0, (kind === "packed" ? scope.packed : scope.slots) - 1)(slot, `${path}.slot`);
  if (io !== null) oneOf(wanted.map((p) => p.name))(io, `${path}.io`);
  if (strides.length !== shape.length) fail(`must have ${shape.length} elements, has ${strides.length}`, `${path}.strides`);
  const only = (what: string) => fail(`exactly the ${what}`, path);
  if ((slot === null) !== (kind === "constant")) only("buffers that are not constants have a slot");
  if ((constant === null) === (kind === "constant")) only("constant buffers name a constant");
  if ((io === null) === (kind === "input" || kind === "output")) only("input and output buffers name a port in 'io'");
  if ((kind === "constant" || kind === "packed") && [...shape, ...strides, bytes].some((e) => namesOf(e).size > 0)) {
    fail("a constant has dynamic sizes", path);
  }
  return made;
}

function kernel(value: unknown, path: string, id: string): Kernel {
  const made = object({
    entry: name, workgroup: list(integer(1, 65_535), 3), bindings: list(oneOf(["read", "read_write"] as const)), params: integer(0, 4096), safe: boolean,
  })(value, path);
  return { id, ...made, workgroup: made.workgroup as unknown as Kernel["workgroup"] };
}

/** The steps of a list whose first has number `index`, and the number after the last. */
function steps(value: unknown, path: string, scope: Scope, index: number, depth: number): [AnyStep[], number] {
  if (depth > MAX_DEPTH) fail("'if' and 'loop' steps are nested too deeply", path);
  const made = list((v, p) => {
    const one = step(v, p, scope, index, depth);
    index = "end" in one ? one.end : index + 1;
    return one;
  })(value, path);
  return [made, index];
}

function step(value: unknown, path: string, scope: Scope, index: number, depth: number): AnyStep {
  const has = (key: string): boolean => Object.hasOwn(Object(value) as object, key), notes = { name: optional(text, ""), origin: optional(list(text), []) };
  const inner = (v: unknown, p: string): AnyStep[] => {
    const [made, end] = steps(v, p, scope, next, depth + 1);
    next = end;
    return made;
  };
  let next = index + 1;
  const id: Reader<number> = (v, p) => (scope.buffers.has(v as number) ? (v as number) : fail(`there is no buffer ${String(v).slice(0, 20)}`, p));
  if (has("if")) {
    const { if: made } = object({ if: object({ cond: id, then: inner, else: inner }), ...notes })(value, path);
    return { kind: "if", index, end: next, cond: made.cond, then: made.then, orelse: made.else };
  }
  const integers: Reader<number> = (v, p) => (/^i(32|64)$/.test(scope.buffers.get(id(v, p))!.dtype) ? (v as number) : fail("must be a buffer of i32 or i64", p));
  if (has("loop")) {
    const trip: Reader<number | { buffer: number }> = (v, p) => (typeof v === "object" && !Array.isArray(v) ? object({ buffer: integers })(v, p) : scope.size(v, p) as number);
    const { loop: made } = object({ loop: object({ trip, cond: optional(id, null), body: inner }), ...notes })(value, path);
    const measured = typeof made.trip === "object" && "buffer" in made.trip;
    return {
      kind: "loop", index, end: next, trip: measured ? 0 : made.trip as number, tripBuffer: measured ? (made.trip as { buffer: number }).buffer : null,
      cond: made.cond, body: made.body,
    };
  }
  if (has("dim")) {
    if (depth > 0) fail("is not among the steps at the top", path);
    const { dim: made } = object({ dim: object({ name: oneOf(scope.ports.names), from: integers }), ...notes })(value, path);
    return { kind: "dim", index, name: made.name, buffer: made.from };
  }
  return plainStep(value, path, scope, index, id);
}

function plainStep(value: unknown, path: string, scope: Scope, index: number, id: Reader<number>): Step {
  const { size, sizes } = scope;
  const dispatch: Reader<Dispatch> = (v, p) => {
    const made = object({ kernel: name, args: list(id), params: sizes, grid: list(size, 3) })(v, p), known = scope.kernels.get(made.kernel);
    if (!known) return fail("there is no such kernel", `${p}.kernel`);
    if (made.args.length !== known.bindings.length) fail(`must have ${known.bindings.length} elements`, `${p}.args`);
    if (made.params.length !== known.params) fail(`must have ${known.params} elements`, `${p}.params`);
    return made as typeof made & Pick<Dispatch, "grid">;
  };
  const made = object({
    name, origin: list(text), writes: object({ buffer: id, shape: sizes, strides: sizes, offset: size }),
    alternates: list(object({ tag: text, dispatches: list(dispatch) }) as Reader<Alternate>),
  })(value, path);
  const { alternates, writes } = made;
  if (alternates.length < 1 || alternates.length > 255) fail("must have 1 to 255 elements", `${path}.alternates`);
  if (writes.strides.length !== writes.shape.length) fail(`must have ${writes.shape.length} elements`, `${path}.writes.strides`);
  return { kind: "step", index, ...made };
}

/** Inputs and outputs are sized before the run, not by what is read during it. */
function checkMeasured(path: string, made: readonly AnyStep[], ports: Ports): void {
  const measured = new Set(made.flatMap((s) => (s.kind === "dim" ? [s.name] : [])));
  for (const port of [...ports.inputs, ...ports.outputs]) {
    const found = port.shape.flatMap((e) => [...namesOf(e)]).find((n) => measured.has(n));
    if (found !== undefined) fail(`'${found}' is read during the run, '${port.name}' has it`, path);
  }
}
