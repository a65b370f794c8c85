/** The part of the structural check that is about a variant: buffers, kernels, steps, and the references between them. */

import { boolean, count, expr, fail, integer, list, member, name, object, oneOf, optional, record, text, that, then, type Reader } from "./check.js";
import { DTYPES } from "./dtypes.js";
import { namesOf } from "./expr.js";
import type { AnyStep, Buffer, Kernel, Variant } from "./format.js";
import type { Ports } from "./verify.js";

export const BACKENDS = ["webgpu", "c"] as const;
const MAX_DEPTH = 32;

/** A list of which no two have the same key. */
export function unique<T, K extends keyof T>(each: Reader<T>, key: K): Reader<T[]> {
  return then(list(each), (items, path) => {
    const seen = new Set<unknown>();
    for (const { [key]: one } of items) {
      if (seen.has(one)) fail(`'${String(one).slice(0, 80)}' occurs twice`, path);
      seen.add(one);
    }
    return items;
  });
}

/** What was read of a variant already, for references to it. */
interface Scope {
  slots: number;
  packed: number;
  buffers: ReadonlyMap<number, Buffer>;
  kernels: ReadonlyMap<string, Kernel>;
  /** The number of the next step, and how deep it is. */
  at: number;
  depth: number;
}

// the packed region is filled once, before any size is known, and constants have their sizes
const fixed = list(expr(new Set()));
const absent = that((v) => v === null, "absent");

export function variant(ports: Ports, constants: readonly string[]): Reader<Variant> {
  const scope: Scope = { slots: 0, packed: 0, buffers: new Map(), kernels: new Map(), at: 0, depth: 0 }, sizes = list(expr(ports.names));
  const inner = steps(scope, ports);
  const top = (depth: number): Reader<AnyStep[]> => (v, path) => {
    scope.at = 0;
    scope.depth = depth;
    return inner(v, path);
  };
  return then(object({
    id: name, backend: oneOf(BACKENDS), class: name, features: list(name), limits: record(integer()), source: member,
    slots: then(sizes, (made) => {
      scope.slots = made.length;
      return made;
    }),
    packed_slots: then(fixed, (made) => {
      scope.packed = made.length;
      return made;
    }),
    buffers: then(unique(buffer(scope, ports, constants), "id"), (made, path) => (scope.buffers = buffers(made, path, ports))),
    kernels: then(record(kernel), (made) => (scope.kernels = new Map(Object.entries(made)))),
    prologue: top(1), steps: top(0),
    prebuilt: optional(record(member), {}),
    cpu_adapter_prefers: optional(text, null),
  }), (made, path) => {
    checkMeasured(path, made.steps, ports);
    return made;
  });
}

function buffers(made: readonly Buffer[], path: string, ports: Ports): ReadonlyMap<number, Buffer> {
  for (const kind of ["input", "output"] as const) {
    for (const port of ports[kind]) {
      const rank = made.filter((b) => b.kind === kind && b.io === port.name).pop()?.shape.length;
      if (rank !== port.shape.length) fail(`${kind} '${port.name}' has no buffer, or one of another rank`, path);
    }
  }
  return new Map(made.map((b) => [b.id, b]));
}

function buffer(scope: Scope, ports: Ports, constants: readonly string[]): Reader<Buffer> {
  const size = expr(ports.names), sizes = list(size);
  return then(object({
    id: integer(0, 2 ** 31 - 1), name: text, kind: oneOf(["input", "output", "arena", "constant", "packed"]), dtype: oneOf(DTYPES),
    shape: sizes, strides: sizes, bytes: size, slot: optional(integer(), null), constant: optional(text, null), io: optional(text, null),
  }), (made, path) => {
    const { kind, shape, strides, bytes } = made, isConstant = kind === "constant", isPacked = kind === "packed";
    (isConstant ? absent : integer(0, (isPacked ? scope.packed : scope.slots) - 1))(made.slot, `${path}.slot`);
    (isConstant ? oneOf(constants) : absent)(made.constant, `${path}.constant`);
    (kind === "input" || kind === "output" ? oneOf(ports[kind].map((p) => p.name)) : absent)(made.io, `${path}.io`);
    count(strides, shape.length, `${path}.strides`);
    if (isConstant || isPacked) fixed([...shape, ...strides, bytes], `${path}: fixed sizes`);
    return made;
  });
}

const kernel = then(object({
  entry: name, workgroup: list(integer(1, 65_535), 3), bindings: list(oneOf(["read", "read_write"])), params: integer(0, 4096), safe: boolean,
}), (made, _, id) => ({ id, ...made }));

/** Steps, numbered in preorder. */
function steps(scope: Scope, ports: Ports): Reader<AnyStep[]> {
  const size = expr(ports.names), notes = { name: optional(text, ""), origin: optional(list(text), []) };
  const id = that<number>((v) => scope.buffers.has(v), "the id of a buffer");
  const from = that<number>((v) => /^i(32|64)$/.test(scope.buffers.get(v)?.dtype ?? ""), "the id of a buffer of i32 or i64");
  const measured = object({ buffer: from });
  const inner: Reader<AnyStep[]> = (value, path) => {
    if (scope.depth++ > MAX_DEPTH) fail("steps are nested too deeply", path);
    const made = list(step)(value, path);
    scope.depth--;
    return made;
  };
  const controls = {
    if: object({ cond: id, then: inner, else: inner }),
    loop: object({
      trip: (v: unknown, p: string) => (v instanceof Object && !Array.isArray(v) ? measured(v, p) : size(v, p)),
      cond: optional(id, null), body: inner,
    }),
    dim: object({ name: (v: unknown, p: string) => oneOf(ports.names)(v, p), from }),
  };
  const plain = plainStep(scope, size, id);
  const step: Reader<AnyStep> = (value, path) => {
    const index = scope.at++, kind = (["if", "loop", "dim"] as const).find((k) => Object.hasOwn(Object(value) as object, k));
    if (!kind) return { kind: "step", index, ...plain(value, path) };
    if (kind === "dim" && scope.depth > 1) fail("must be at the top", path);
    const { [kind]: made } = object<Record<string, Reader<unknown>>>({ [kind]: controls[kind], ...notes })(value, path);
    return { kind, index, end: scope.at, ...(made as object) } as AnyStep;
  };
  return inner;
}

function plainStep(scope: Scope, size: ReturnType<typeof expr>, id: Reader<number>) {
  const sizes = list(size);
  const dispatch = then(object({ kernel: name, args: list(id), params: sizes, grid: list(size, 3) }), (made, path) => {
    const known = scope.kernels.get(made.kernel) ?? fail("there is no such kernel", `${path}.kernel`);
    count(made.args, known.bindings.length, `${path}.args`);
    count(made.params, known.params, `${path}.params`);
    return made;
  });
  return then(object({
    name, origin: list(text), writes: object({ buffer: id, shape: sizes, strides: sizes, offset: size }),
    alternates: list(object({ tag: text, dispatches: list(dispatch) })),
  }), (made, path) => {
    const { alternates, writes } = made;
    integer(1, 255)(alternates.length, `${path}.alternates.length`);
    count(writes.strides, writes.shape.length, `${path}.writes.strides`);
    return made;
  });
}

/** Inputs and outputs are sized before the run, not by what is read during it. */
function checkMeasured(path: string, made: readonly AnyStep[], ports: Ports): void {
  const measured = new Set(made.flatMap((s) => (s.kind === "dim" ? [s.name] : [])));
  for (const port of [...ports.input, ...ports.output]) {
    const found = port.shape.flatMap(namesOf).find((n) => measured.has(n));
    if (found !== undefined) fail(`'${found}' is read during the run, '${port.name}' has it`, path);
  }
}
