/** From JSON to a Plan or a Manifest, totally: the result is well-formed, or a BundleError says where not. */

import { BundleError } from "../errors.js";
import { expr, fail, integer, list, member, name, object, oneOf, optional, record, size, text, then, type Reader } from "./check.js";
import { DTYPES } from "./dtypes.js";
import type { Manifest, Plan, PlanPort, Variant } from "./format.js";
import { checkMemberName, MANIFEST, PLAN } from "./members.js";
import { BACKENDS, unique, variant } from "./verify_variant.js";

/** The newest minor version that is read of major version 1; older minors are, too. */
const MANIFEST_MINOR = 1;
const PLAN_MINOR = 0;

/** What was read of a bundle already, for references to it. */
export interface Ports {
  readonly names: Set<string>;
  readonly input: readonly PlanPort[];
  readonly output: readonly PlanPort[];
}

/** The version is looked at before the rest, which may have changed with it. */
function version(value: unknown, newest: number, where: string): number {
  const path = `${where}.version`;
  const [major, minor] = list(integer(0, 10_000), 2)((value as { version?: unknown } | null)?.version, path) as [number, number];
  if (major < 1) fail(`version ${major}.${minor} is no longer read`, path);
  if (major === 1 && minor <= newest) return minor;
  throw new BundleError(`version ${major}.${minor} is newer than 1.${newest}`, path, "Upgrade tang-edge");
}

const dim = then(object({ name, min: integer(), max: integer(), multiple: optional(integer(1), 1) }), (made, path) => {
  const { min, max, multiple } = made;
  return Math.floor(max / multiple) * multiple < min ? fail("no multiple is in the range", path) : made;
});

const any: Reader<unknown> = (v) => v;

/** Readers of the version, dimensions and ports; `ports` has them once they are read. */
function portReaders() {
  const ports = { names: new Set<string>(), input: [] as PlanPort[], output: [] as PlanPort[] };
  const port = object({ name, dtype: oneOf([...DTYPES].filter((d) => !/^.4/.test(d))), shape: list(expr(ports.names)) });
  const readers = {
    version: any,
    dims: then(unique(dim, "name"), (dims) => {
      for (const d of dims) ports.names.add(d.name);
      return dims;
    }),
    inputs: then(unique(port, "name"), (made) => (ports.input = made)),
    outputs: then(unique(port, "name"), (made) => (ports.output = made)),
  };
  return { ports, readers };
}

const file = then(object({ sha256: text, bytes: integer() }), (made, path, key) => {
  checkMemberName(key);
  return /^[0-9a-f]{64}$/.test(made.sha256) ? made : fail("must be 64 hexadecimal digits", `${path}.sha256`);
});

/** The manifest of a JSON value. */
export function parseManifest(value: unknown): Manifest {
  const minor = version(value, MANIFEST_MINOR, MANIFEST);
  let files: Manifest["files"];
  const since = <T, D>(each: Reader<T>, absent: D): Reader<T | D> => (minor > 0 ? each : optional(each, absent));
  return object({
    files: then(record(file), (made) => (files = new Map(Object.entries(made)))),
    format: oneOf(["tang"]), name: text, created_by: text, model_sha256: text, ...portReaders().readers,
    variants: (v, path) => list(object({
      id: name, backend: oneOf(BACKENDS), class: name, peak_bytes: integer(), peak_bytes_max: optional(integer(), null),
      features: since(list(name), []), limits: since(record(integer()), {}), members: since(list(oneOf(files.keys())), []),
    }))(v, path),
    memory: record(any), signature: optional(object({ key: any, algorithm: any, value: any }), null),
  })(value, MANIFEST);
}

/** The plan of a JSON value, with all references between its parts checked. */
export function parsePlan(value: unknown): Plan {
  version(value, PLAN_MINOR, PLAN);
  const { ports, readers } = portReaders(), size = expr(ports.names);
  let constants: readonly string[];
  const nameOf = (made: readonly { readonly name: string }[]): string[] => made.map((one) => one.name);
  return object({
    ...readers,
    constraints: list(object({ left: size, right: size, why: text })),
    states: (v, path) => list(object({
      input: oneOf(nameOf(ports.input)), output: oneOf(nameOf(ports.output)),
      shape: list(size), dtype: oneOf(DTYPES), reset: oneOf(["zeros"]),
    }))(v, path),
    constants: then(unique(constant, "name"), (made) => {
      constants = nameOf(made);
      return made;
    }),
    variants: unique<Variant, "id">((v, path) => variant(ports, constants)(v, path), "id"),
    golden: (v, path) => list(golden(ports.names))(v, path),
  })(value, PLAN);
}

const part = { chunk: member, key: name };

const constant = then(object({ name, dtype: oneOf(DTYPES), shape: list(integer()), ...part, parts: optional(list(object(part)), null) }), (made, path) => {
  const { chunk, key } = made, parts = made.parts ?? [{ chunk, key }];
  if (parts[0]?.chunk !== chunk || parts[0].key !== key) fail("its first part must be its chunk and key", path);
  return { ...made, parts };
});

function golden(names: Iterable<string>) {
  const dims = object(Object.fromEntries([...names].map((n) => [n, integer()]))), tolerance = object({ rtol: size, atol: size });
  return then(object({ dims, file: member, tolerance }), (made) => ({ ...made, ...made.tolerance }));
}
