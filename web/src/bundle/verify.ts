/** From JSON to a Plan or a Manifest, totally: the result is well-formed, or a BundleError says where not. */

import { BundleError } from "../errors.js";
import { expr, fail, integer, list, member, name, object, oneOf, optional, record, size, text, type Reader } from "./check.js";
import { DTYPES } from "./dtypes.js";
import type { Constant, Dim, Golden, Manifest, Plan, PlanPort } from "./format.js";
import { checkMemberName, MANIFEST, PLAN } from "./members.js";
import { BACKENDS, variant } from "./verify_variant.js";

/** The newest minor version that is read of major version 1; older minors are, too. */
const MANIFEST_MINOR = 1;
const PLAN_MINOR = 0;

export interface Ports {
  readonly dims: readonly Dim[];
  readonly inputs: readonly PlanPort[];
  readonly outputs: readonly PlanPort[];
  readonly names: ReadonlySet<string>;
}

function versioned(newest: number): Reader<number> {
  return (v, path) => {
    const [major, minor] = list(integer(0, 10_000), 2)(v, path) as [number, number];
    if (major > 1 || (major === 1 && minor > newest)) {
      throw new BundleError(`version ${major}.${minor} is newer than 1.${newest}, the newest that is read here`, path, "Upgrade tang-edge.");
    }
    if (major < 1) throw new BundleError(`version ${major}.${minor} is no longer read`, path, "Pack it again.");
    return minor;
  };
}

/** The version is looked at before the rest, which may have changed with it. */
function version(value: unknown, newest: number, where: string): number {
  return versioned(newest)((value as { version?: unknown } | null)?.version, `${where}.version`);
}

function unique<T>(each: Reader<T>, key: (item: T) => string): Reader<T[]> {
  return (v, path) => {
    const items = list(each)(v, path), seen = new Set<string>();
    for (const item of items) {
      if (seen.has(key(item))) fail(`'${key(item).slice(0, 80)}' occurs twice`, path);
      seen.add(key(item));
    }
    return items;
  };
}

const dim: Reader<Dim> = (v, path) => {
  const made = object({ name, min: integer(), max: integer(), multiple: optional(integer(1), 1) })(v, path), { min, max, multiple } = made;
  integer(min)(max, `${path}.max`);
  return Math.floor(max / multiple) * multiple < min ? fail("no multiple lies in the range", path) : made;
};

/** Readers of dimensions and ports; `scope` has them once they are read. */
function portReaders() {
  const scope = { dims: [] as Dim[], inputs: [] as PlanPort[], outputs: [] as PlanPort[], names: new Set<string>() };
  const port: Reader<PlanPort> = (v, path) => object({ name, dtype: oneOf([...DTYPES].filter((d) => !d.endsWith("4") || d.length > 2)), shape: list(expr(scope.names)) })(v, path);
  const ports = unique(port, (p) => p.name);
  const readers = {
    dims: (v: unknown, path: string) => {
      scope.dims = unique(dim, (d) => d.name)(v, path);
      for (const d of scope.dims) scope.names.add(d.name);
      return scope.dims;
    },
    inputs: (v: unknown, path: string) => (scope.inputs = ports(v, path)),
    outputs: (v: unknown, path: string) => (scope.outputs = ports(v, path)),
  };
  return { scope, readers };
}

/** The manifest of a JSON value. */
export function parseManifest(value: unknown): Manifest {
  const minor = version(value, MANIFEST_MINOR, MANIFEST);
  const file = (v: unknown, path: string, key: string) => {
    checkMemberName(key);
    const made = object({ sha256: text, bytes: integer() })(v, path);
    return /^[0-9a-f]{64}$/.test(made.sha256) ? made : fail("must be 64 hexadecimal digits", `${path}.sha256`);
  };
  let files = new Map<string, ReturnType<typeof file>>();
  const since = <T, D>(each: Reader<T>, absent: D): Reader<T | D> => (minor > 0 ? each : optional(each, absent));
  const entry: Reader<Manifest["variants"][number]> = (v, path) => {
    const made = object({
      id: name, backend: oneOf(BACKENDS), class: name, peak_bytes: integer(), peak_bytes_max: optional(integer(), null),
      features: since(list(name), []), limits: since(record(integer()), new Map()), members: since(list(oneOf(files.keys())), []),
    })(v, path);
    const { id, backend, features, members } = made;
    const peakBytes = made.peak_bytes, peakBytesMax = made.peak_bytes_max ?? peakBytes;
    return { id, backend, deviceClass: made.class, features, members, limits: Object.fromEntries(made.limits), peakBytes, peakBytesMax };
  };
  const any: Reader<unknown> = (v) => v;
  return object({
    files: (v, path) => (files = record(file)(v, path)),
    format: oneOf(["tang"]), version: any, name: text, created_by: text, model_sha256: text, ...portReaders().readers,
    variants: list(entry), memory: record(any), signature: optional(object({ key: any, algorithm: any, value: any }), null),
  })(value, MANIFEST);
}

/** The plan of a JSON value, with all references between its parts checked. */
export function parsePlan(value: unknown): Plan {
  version(value, PLAN_MINOR, PLAN);
  const { scope, readers } = portReaders(), size = expr(scope.names), constants = new Set<string>();
  return object({
    version: versioned(PLAN_MINOR),
    ...readers,
    constraints: list(object({ left: size, right: size, why: text })),
    states: (v, path) => list(object({
      input: oneOf(scope.inputs.map((p) => p.name)), output: oneOf(scope.outputs.map((p) => p.name)),
      shape: list(size), dtype: oneOf(DTYPES), reset: oneOf(["zeros"]),
    }))(v, path),
    constants: (v, path) => {
      const made = unique(constant, (c) => c.name)(v, path);
      for (const c of made) constants.add(c.name);
      return made;
    },
    variants: unique((v, path) => variant(v, path, scope, constants), (v) => v.id),
    golden: list(golden(scope)),
  })(value, PLAN);
}

const part = { chunk: member, key: name };

const constant: Reader<Constant> = (v, path) => {
  const made = object({ name, dtype: oneOf(DTYPES), shape: list(integer()), ...part, parts: optional(list(object(part)), null) })(v, path);
  const { chunk, key } = made, parts = made.parts ?? [{ chunk, key }];
  if (parts[0]?.chunk !== chunk || parts[0].key !== key) fail("its first part must be its chunk and key", path);
  return { name: made.name, dtype: made.dtype, shape: made.shape, parts };
};

function golden({ names }: Pick<Ports, "names">): Reader<Golden> {
  return (v, path) => {
    const made = object({ dims: record(integer()), file: member, tolerance: object({ rtol: size, atol: size }) })(v, path);
    if (made.dims.size !== names.size || ![...names].every((n) => made.dims.has(n))) fail("must give each dimension of the plan a value", `${path}.dims`);
    return { dims: Object.fromEntries(made.dims), file: made.file, ...made.tolerance };
  };
}
