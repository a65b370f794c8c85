/** From JSON to a Plan or a Manifest, totally: the result is well-formed, or a BundleError says where not. */

import { BundleError } from "../errors.js";
import { DTYPES } from "./dtypes.js";
import type { Constant, Dim, Golden, Manifest, Member, Part, Plan, PlanPort, State } from "./format.js";
import { At } from "./json.js";
import { checkMemberName, MANIFEST, PLAN } from "./members.js";
import { BACKENDS, parseVariant } from "./verify_variant.js";

/** The newest [major, minor] that is read; older minors of the major are, too. */
const MANIFEST_VERSION = [1, 1] as const;
const PLAN_VERSION = [1, 0] as const;

export interface Ports {
  readonly dims: readonly Dim[];
  readonly inputs: readonly PlanPort[];
  readonly outputs: readonly PlanPort[];
  readonly names: ReadonlySet<string>;
}

function checkVersion(top: At, ours: readonly [number, number]): number {
  if (!top.has("version")) return top.fail("lacks version");
  const at = top.get("version");
  const [major, minor] = at.array((a) => a.integer(0, 10_000), 2) as [number, number];
  if (major > ours[0] || (major === ours[0] && minor > ours[1])) {
    const made = "the bundle was made by a newer tang-edge";
    throw new BundleError(`version ${major}.${minor} is newer than ${ours.join(".")}, the newest read here: ${made}`, at.path, "Upgrade tang-edge.");
  }
  if (major !== ours[0]) throw new BundleError(`version ${major}.${minor} is no longer read`, at.path, "Pack it again.");
  return minor;
}

function unique(values: readonly { readonly name: string }[], at: At, what: string): void {
  const seen = new Set<string>();
  for (const { name } of values) {
    if (seen.has(name)) at.fail(`${what} '${name.slice(0, 80)}' occurs twice`);
    seen.add(name);
  }
}

/** The manifest of a JSON value. */
export function parseManifest(value: unknown): Manifest {
  const top = At.root(value, MANIFEST);
  const minor = checkVersion(top, MANIFEST_VERSION);
  top.object("format version name created_by model_sha256 dims inputs outputs variants memory files signature");
  top.get("format").oneOf(["tang"]);
  const files = top.get("files").map(member);
  if (!files.has(PLAN)) top.get("files").fail("lacks plan.json");
  top.optional("signature", (a) => a.object("key algorithm value"));
  const { dims, inputs, outputs } = parsePorts(top);
  const variants = top.get("variants").array((a) => manifestVariant(a, minor, files));
  top.get("memory").map((a) => a);
  top.get("created_by").text();
  top.get("model_sha256").text();
  return { name: top.get("name").text(), files, dims, inputs, outputs, variants };
}

function member(at: At, name: string): Member {
  checkMemberName(name);
  at.object("sha256 bytes");
  const sha256 = at.get("sha256").text();
  if (!/^[0-9a-f]{64}$/.test(sha256)) at.get("sha256").fail("must be 64 hexadecimal digits");
  return { sha256, bytes: at.get("bytes").integer() };
}

function manifestVariant(at: At, minor: number, files: ReadonlyMap<string, Member>): Manifest["variants"][number] {
  const needs = "features limits members";
  at.object(minor >= 1 ? `id backend class peak_bytes ${needs}` : "id backend class peak_bytes", `peak_bytes_max ${needs}`);
  const members = at.optional("members", (a) => a.array((m) => m.oneOf(new Set(files.keys())))) ?? [];
  const peakBytes = at.get("peak_bytes").integer();
  return {
    id: at.get("id").name(),
    backend: at.get("backend").oneOf(BACKENDS),
    deviceClass: at.get("class").name(),
    peakBytes,
    peakBytesMax: at.optional("peak_bytes_max", (a) => a.integer()) ?? peakBytes,
    features: at.optional("features", (a) => a.array((f) => f.name())) ?? [],
    limits: at.optional("limits", (a) => a.record((l) => l.integer())) ?? {},
    members,
  };
}

function parsePorts(top: At): Ports {
  const dims = top.get("dims").array(dim);
  unique(dims, top.get("dims"), "dimension");
  const names = new Set(dims.map((d) => d.name));
  const inputs = top.get("inputs").array((a) => port(a, names));
  const outputs = top.get("outputs").array((a) => port(a, names));
  unique(inputs, top.get("inputs"), "input");
  unique(outputs, top.get("outputs"), "output");
  return { dims, inputs, outputs, names };
}

function dim(at: At): Dim {
  at.object("name min max", "multiple");
  const min = at.get("min").integer(), max = at.get("max").integer(min);
  const multiple = at.has("multiple") ? at.get("multiple").integer(1) : 1;
  if (Math.floor(max / multiple) * multiple < min) at.fail("no multiple lies in the range");
  return { name: at.get("name").name(), min, max, multiple };
}

function port(at: At, dims: ReadonlySet<string>): PlanPort {
  at.object("name dtype shape");
  const dtype = at.get("dtype").oneOf(DTYPES);
  if (dtype === "i4" || dtype === "u4") at.get("dtype").fail("cannot be the dtype of an input or output");
  return { name: at.get("name").name(), dtype, shape: at.get("shape").array((a) => a.expr(dims)) };
}

/** The plan of a JSON value, with all references between its parts checked. */
export function parsePlan(value: unknown): Plan {
  const top = At.root(value, PLAN);
  checkVersion(top, PLAN_VERSION);
  top.object("version dims constraints inputs outputs states constants variants golden");
  const ports = parsePorts(top);
  const constants = top.get("constants").array(constant);
  unique(constants, top.get("constants"), "constant");
  const known = new Set(constants.map((c) => c.name));
  const variants = top.get("variants").array((a) => parseVariant(a, ports, known));
  unique(variants.map((v) => ({ name: v.id })), top.get("variants"), "variant");
  return {
    dims: ports.dims,
    inputs: ports.inputs,
    outputs: ports.outputs,
    constants,
    variants,
    constraints: top.get("constraints").array((a) => {
      a.object("left right why");
      return { left: a.get("left").expr(ports.names), right: a.get("right").expr(ports.names), why: a.get("why").text() };
    }),
    states: top.get("states").array((a) => state(a, ports)),
    golden: top.get("golden").array((a) => golden(a, ports.names)),
  };
}

function state(at: At, ports: Ports): State {
  at.object("input output shape dtype reset");
  return {
    input: at.get("input").oneOf(ports.inputs.map((p) => p.name)),
    output: at.get("output").oneOf(ports.outputs.map((p) => p.name)),
    shape: at.get("shape").array((a) => a.expr(ports.names)),
    dtype: at.get("dtype").oneOf(DTYPES),
    reset: at.get("reset").oneOf(["zeros"]),
  };
}

function part(at: At): Part {
  return { chunk: at.get("chunk").member(), key: at.get("key").name() };
}

function constant(at: At): Constant {
  at.object("name dtype shape chunk key", "parts");
  const first = part(at);
  const parts = at.has("parts") ? at.get("parts").array((a) => part(a.object("chunk key"))) : [first];
  if (parts[0]?.chunk !== first.chunk || parts[0].key !== first.key) at.fail("its first part must be its chunk and key");
  return {
    name: at.get("name").name(),
    dtype: at.get("dtype").oneOf(DTYPES),
    shape: at.get("shape").array((a) => a.integer()),
    parts,
  };
}

function golden(at: At, names: ReadonlySet<string>): Golden {
  at.object("dims file tolerance");
  const dims = at.get("dims").record((a) => a.integer());
  const given = Object.keys(dims);
  if (given.length !== names.size || !given.every((n) => names.has(n))) at.get("dims").fail("must give each dimension of the plan a value");
  const tolerance = at.get("tolerance").object("rtol atol");
  return { dims, file: at.get("file").member(), rtol: tolerance.get("rtol").number(), atol: tolerance.get("atol").number() };
}
