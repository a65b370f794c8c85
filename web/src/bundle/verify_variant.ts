/** The part of the structural check that is about a variant: buffers, kernels, steps, and the references between them. */

import type { AnyStep, Alternate, Buffer, Dispatch, Kernel, LoopStep, Variant, Writes } from "./format.js";
import { DTYPES } from "./dtypes.js";
import { namesOf } from "./expr.js";
import type { At } from "./json.js";
import type { Ports } from "./verify.js";

export const BACKENDS = ["webgpu", "c"] as const;
const KINDS = ["input", "output", "arena", "constant", "packed"] as const;
const MAX_DEPTH = 32;

interface Scope {
  readonly ports: Ports;
  readonly constants: ReadonlySet<string>;
  readonly slots: number;
  readonly packed: number;
  readonly buffers: Map<number, Buffer>;
  readonly kernels: Map<string, Kernel>;
}

export function parseVariant(at: At, ports: Ports, constants: ReadonlySet<string>): Variant {
  const required = "id backend class features limits source buffers slots packed_slots kernels prologue steps";
  at.object(required, "prebuilt cpu_adapter_prefers");
  const slots = at.get("slots").array((a) => a.expr(ports.names));
  // the packed region is filled once, before any size is known
  const packedSlots = at.get("packed_slots").array((a) => a.expr(new Set()));
  const scope: Scope = { ports, constants, slots: slots.length, packed: packedSlots.length, buffers: new Map(), kernels: new Map() };
  for (const buffer of at.get("buffers").array((a) => parseBuffer(a, scope))) {
    if (scope.buffers.has(buffer.id)) at.get("buffers").fail(`buffer id ${buffer.id} occurs twice`);
    scope.buffers.set(buffer.id, buffer);
  }
  for (const [id, kernel] of at.get("kernels").map(parseKernel)) scope.kernels.set(id, kernel);
  checkIo(at.get("buffers"), scope);
  const variant: Variant = {
    id: at.get("id").name(),
    backend: at.get("backend").oneOf(BACKENDS),
    deviceClass: at.get("class").name(),
    features: at.get("features").array((a) => a.name()),
    limits: at.get("limits").record((a) => a.integer()),
    source: at.get("source").member(),
    prebuilt: at.optional("prebuilt", (p) => p.record((a) => a.member())) ?? {},
    cpuAdapterPrefers: at.optional("cpu_adapter_prefers", (a) => a.text()),
    buffers: scope.buffers,
    slots,
    packedSlots,
    kernels: scope.kernels,
    prologue: parseSteps(at.get("prologue"), scope, 0, 1)[0],
    steps: parseSteps(at.get("steps"), scope, 0, 0)[0],
  };
  checkMeasured(at, variant, ports);
  return variant;
}

function parseBuffer(at: At, scope: Scope): Buffer {
  at.object("id name kind dtype shape strides bytes", "slot constant io");
  const kind = at.get("kind").oneOf(KINDS);
  const { names, inputs, outputs } = scope.ports;
  const shape = at.get("shape").array((a) => a.expr(names));
  const slot = at.optional("slot", (a) => a.integer(0, (kind === "packed" ? scope.packed : scope.slots) - 1));
  const constant = at.optional("constant", (a) => a.oneOf(scope.constants));
  const wanted = kind === "input" ? inputs : kind === "output" ? outputs : [];
  const io = at.optional("io", (a) => a.oneOf(wanted.map((p) => p.name)));
  if ((slot === null) !== (kind === "constant")) at.fail("exactly the buffers that are not constants have a slot");
  if ((constant === null) === (kind === "constant")) at.fail("exactly the constant buffers name a constant");
  if ((io === null) === (kind === "input" || kind === "output")) at.fail("exactly the input and output buffers name a port in 'io'");
  const strides = at.get("strides").array((a) => a.expr(names), shape.length);
  const bytes = at.get("bytes").expr(names);
  if ((kind === "constant" || kind === "packed") && [...shape, ...strides, bytes].some((e) => namesOf(e).size > 0)) {
    at.fail("a constant cannot have dynamic sizes");
  }
  const id = at.get("id").integer(0, 2 ** 31 - 1);
  return { id, name: at.get("name").text(), kind, dtype: at.get("dtype").oneOf(DTYPES), shape, strides, bytes, slot, constant, io };
}

/** Each port of the model has a buffer of its rank. */
function checkIo(at: At, scope: Scope): void {
  for (const [kind, ports] of [["input", scope.ports.inputs], ["output", scope.ports.outputs]] as const) {
    const made = [...scope.buffers.values()].filter((b) => b.kind === kind);
    const ranks = new Map(made.map((b) => [b.io, b.shape.length]));
    for (const port of ports) {
      if (ranks.get(port.name) !== port.shape.length) at.fail(`${kind} '${port.name}' has no buffer, or one of another rank`);
    }
  }
}

function parseKernel(at: At, id: string): Kernel {
  at.object("entry workgroup bindings params safe");
  return {
    id,
    entry: at.get("entry").name(),
    workgroup: at.get("workgroup").array((a) => a.integer(1, 65_535), 3) as [number, number, number],
    bindings: at.get("bindings").array((a) => a.oneOf(["read", "read_write"])),
    params: at.get("params").integer(0, 4096),
    safe: at.get("safe").boolean(),
  };
}

/** The steps of a list whose first has number `index`, and the number after the last. */
function parseSteps(at: At, scope: Scope, index: number, depth: number): [AnyStep[], number] {
  if (depth > MAX_DEPTH) at.fail("'if' and 'loop' steps are nested too deeply");
  const steps = at.array((item) => {
    const step = parseStep(item, scope, index, depth);
    index = "end" in step ? step.end : index + 1;
    return step;
  });
  return [steps, index];
}

function parseStep(at: At, scope: Scope, index: number, depth: number): AnyStep {
  if (at.has("if")) return parseIf(at.object("if", "name origin").get("if"), scope, index, depth);
  if (at.has("loop")) return parseLoop(at.object("loop", "name origin").get("loop"), scope, index, depth);
  if (at.has("dim")) return parseDim(at.object("dim", "name origin").get("dim"), scope, index, depth);
  at.object("name origin writes alternates");
  const alternates = at.get("alternates").array((a) => parseAlternate(a, scope));
  if (alternates.length < 1 || alternates.length > 255) at.get("alternates").fail("must have 1 to 255 elements");
  const origin = at.get("origin").array((a) => a.text());
  return { kind: "step", index, name: at.get("name").name(), origin, writes: parseWrites(at.get("writes"), scope), alternates };
}

function parseIf(at: At, scope: Scope, index: number, depth: number): AnyStep {
  at.object("cond then else");
  const cond = control(at.get("cond"), scope);
  const [then, middle] = parseSteps(at.get("then"), scope, index + 1, depth + 1);
  const [orelse, end] = parseSteps(at.get("else"), scope, middle, depth + 1);
  return { kind: "if", index, end, cond, then, orelse };
}

function parseLoop(at: At, scope: Scope, index: number, depth: number): LoopStep {
  at.object("trip cond body");
  const cond = at.optional("cond", (a) => control(a, scope));
  const trip = at.get("trip"), measured = trip.has("buffer");
  const tripBuffer = measured ? control(trip.object("buffer").get("buffer"), scope) : null;
  if (tripBuffer !== null && !isInteger(scope.buffers.get(tripBuffer)!)) trip.fail("a trip count is i32 or i64");
  const size = measured ? 0 : trip.expr(scope.ports.names);
  const [body, end] = parseSteps(at.get("body"), scope, index + 1, depth + 1);
  return { kind: "loop", index, end, trip: size, tripBuffer, cond, body };
}

function parseDim(at: At, scope: Scope, index: number, depth: number): AnyStep {
  at.object("name from");
  if (depth) at.fail("a dimension is read among the steps at the top only");
  const name = at.get("name").oneOf(scope.ports.names);
  const buffer = control(at.get("from"), scope);
  if (!isInteger(scope.buffers.get(buffer)!)) at.get("from").fail("is no buffer of integers");
  return { kind: "dim", index, name, buffer };
}

function isInteger(buffer: Buffer): boolean {
  return buffer.dtype === "i32" || buffer.dtype === "i64";
}

/** A buffer that decides what runs. */
function control(at: At, scope: Scope): number {
  const id = at.integer();
  if (!scope.buffers.has(id)) at.fail(`there is no buffer ${id}`);
  return id;
}

function parseWrites(at: At, scope: Scope): Writes {
  at.object("buffer shape strides offset");
  const { names } = scope.ports;
  const shape = at.get("shape").array((a) => a.expr(names));
  const strides = at.get("strides").array((a) => a.expr(names), shape.length);
  return { buffer: control(at.get("buffer"), scope), shape, strides, offset: at.get("offset").expr(names) };
}

function parseAlternate(at: At, scope: Scope): Alternate {
  at.object("tag dispatches");
  return { tag: at.get("tag").text(), dispatches: at.get("dispatches").array((a) => parseDispatch(a, scope)) };
}

function parseDispatch(at: At, scope: Scope): Dispatch {
  at.object("kernel args params grid");
  const kernel = scope.kernels.get(at.get("kernel").name()) ?? at.get("kernel").fail("there is no such kernel");
  const { names } = scope.ports;
  return {
    kernel: kernel.id,
    args: at.get("args").array((a) => control(a, scope), kernel.bindings.length),
    params: at.get("params").array((a) => a.expr(names), kernel.params),
    grid: at.get("grid").array((a) => a.expr(names), 3) as unknown as Dispatch["grid"],
  };
}

/** Inputs and outputs are sized before the run, not by what is read during it. */
function checkMeasured(at: At, variant: Variant, ports: Ports): void {
  const measured = new Set(variant.steps.flatMap((s) => (s.kind === "dim" ? [s.name] : [])));
  for (const port of [...ports.inputs, ...ports.outputs]) {
    const found = port.shape.flatMap((e) => [...namesOf(e)]).find((n) => measured.has(n));
    if (found !== undefined) at.fail(`dimension '${found}' is read during the run, but '${port.name}' has it`);
  }
}
