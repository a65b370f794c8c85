"""From JSON to a Plan or a Manifest, totally: the result is well-formed, or a BundleError says where not.

This is the structural check that runs on every load; it needs no JSON Schema package. Keys that start with
``x-`` are free for notes and are skipped.
"""

from __future__ import annotations

from collections.abc import Mapping

from tang_edge.bundle import format as fmt
from tang_edge.bundle.checked import At
from tang_edge.bundle.verify_variant import Ports, optional, variant
from tang_edge.errors import BundleError


def _unique(values: tuple[str, ...], at: At, what: str) -> None:
    seen: set[str] = set()
    for value in values:
        if value in seen:
            at.fail(f"{what} {value[:80]!r} occurs twice")
        seen.add(value)


def check_version(at: At, ours: tuple[int, int]) -> tuple[int, int]:
    """The [major, minor] version, if this runtime reads it."""
    version = at.array(lambda a: a.integer(0, 10_000), 2)
    if version > ours:
        raise BundleError(
            f"version {version[0]}.{version[1]} is newer than {ours[0]}.{ours[1]}, the newest read here: "
            "the bundle was made by a newer tang-edge",
            where=at.path,
            remedy="Upgrade tang-edge.",
        )
    if version[0] != ours[0]:
        raise BundleError(f"version {version[0]}.{version[1]} is no longer read", where=at.path, remedy="Pack it again.")
    return version[0], version[1]


def parse_manifest(value: object, where: str = fmt.MANIFEST) -> fmt.Manifest:
    """The manifest of a JSON value.

    Raises:
        BundleError: it does not fit the schema, or is of a newer version.
    """
    at, version = At(value, where), fmt.MANIFEST_VERSION
    if isinstance(value, dict) and "version" in value:
        version = check_version(At(value["version"], f"{where}.version"), fmt.MANIFEST_VERSION)
    keys = "format version name created_by model_sha256 dims inputs outputs variants memory files signature"
    top = at.obj(keys)
    top["format"].one_of(("tang",))
    files = {name: _file(entry) for name, entry in top["files"].items().items()}
    for name in files:
        fmt.check_member_name(name)
    if fmt.PLAN not in files:
        top["files"].fail("lacks plan.json")
    if top["signature"].value is not None:
        top["signature"].obj("key algorithm value")
    _parse_ports(top)
    top["variants"].array(lambda a: _manifest_variant(a, version, files))
    top["memory"].items()
    return fmt.Manifest(
        top["name"].text(),
        top["created_by"].text(),
        top["model_sha256"].text(),
        files,
        top["signature"].value is not None,
        value,  # type: ignore[arg-type]
    )


def _file(at: At) -> tuple[str, int]:
    entry = at.obj("sha256 bytes")
    digest = entry["sha256"].text()
    if len(digest) != 64 or set(digest) - set("0123456789abcdef"):
        entry["sha256"].fail("must be 64 hexadecimal digits")
    return digest, entry["bytes"].integer()


def _manifest_variant(at: At, version: tuple[int, int], files: Mapping[str, tuple[str, int]]) -> None:
    since = "features limits members"  # version 1.1
    entry = at.obj("id backend class peak_bytes" + (f" {since}" if version >= (1, 1) else ""), f"peak_bytes_max {since}")
    entry["id"].name()
    entry["backend"].one_of(("webgpu", "c"))
    entry["class"].name()
    entry["peak_bytes"].integer()
    optional(entry, "peak_bytes_max", lambda a: a.integer())
    optional(entry, "features", lambda a: a.array(lambda f: f.name()))
    optional(entry, "limits", lambda a: [n.integer() for n in a.items().values()])
    optional(entry, "members", lambda a: a.array(lambda m: m.one_of(files)))


def _parse_ports(top: dict[str, At]) -> Ports:
    dims = top["dims"].array(_dim)
    _unique(tuple(d.name for d in dims), top["dims"], "dimension")
    names = frozenset(d.name for d in dims)
    inputs = top["inputs"].array(lambda a: _port(a, names))
    outputs = top["outputs"].array(lambda a: _port(a, names))
    _unique(tuple(p.name for p in inputs), top["inputs"], "input")
    _unique(tuple(p.name for p in outputs), top["outputs"], "output")
    return Ports(dims, inputs, outputs, names)


def _dim(at: At) -> fmt.Dim:
    entry = at.obj("name min max", "multiple")
    low = entry["min"].integer(0)
    high = entry["max"].integer(low)
    multiple = entry["multiple"].integer(1) if "multiple" in entry else 1
    if high // multiple * multiple < low:
        at.fail("no multiple lies in the range")
    return fmt.Dim(entry["name"].name(), low, high, multiple)


def _port(at: At, dims: frozenset[str]) -> fmt.Port:
    entry = at.obj("name dtype shape")
    dtype = entry["dtype"].one_of(fmt.DTYPES)
    if dtype in fmt.PACKED_4BIT:
        entry["dtype"].fail("cannot be the dtype of an input or output")
    return fmt.Port(entry["name"].name(), dtype, entry["shape"].array(lambda a: a.expr(dims)))


def parse_plan(value: object, where: str = fmt.PLAN) -> fmt.Plan:
    """The plan of a JSON value, with all references between its parts checked.

    Raises:
        BundleError: it does not fit the schema, is of a newer version, or refers to what is not there.
    """
    if isinstance(value, dict) and "version" in value:
        check_version(At(value["version"], f"{where}.version"), fmt.PLAN_VERSION)
    top = At(value, where).obj("version dims constraints inputs outputs states constants variants golden")
    ports = _parse_ports(top)
    constants = top["constants"].array(_constant)
    _unique(tuple(c.name for c in constants), top["constants"], "constant")
    known = {c.name: c for c in constants}
    variants = top["variants"].array(lambda a: variant(a, ports, known))
    _unique(tuple(v.id for v in variants), top["variants"], "variant")
    version = check_version(top["version"], fmt.PLAN_VERSION)
    return fmt.Plan(
        dims=ports.dims,
        constraints=top["constraints"].array(lambda a: _constraint(a, ports.names)),
        inputs=ports.inputs,
        outputs=ports.outputs,
        states=top["states"].array(lambda a: _state(a, ports)),
        constants=constants,
        variants=variants,
        golden=top["golden"].array(lambda a: _golden(a, ports.names)),
        version=version,
    )


def _constraint(at: At, dims: frozenset[str]) -> fmt.Constraint:
    entry = at.obj("left right why")
    return fmt.Constraint(entry["left"].expr(dims), entry["right"].expr(dims), entry["why"].text())


def _state(at: At, ports: Ports) -> fmt.State:
    entry = at.obj("input output shape dtype reset")
    return fmt.State(
        entry["input"].one_of(tuple(p.name for p in ports.inputs)),
        entry["output"].one_of(tuple(p.name for p in ports.outputs)),
        entry["shape"].array(lambda a: a.expr(ports.names)),
        entry["dtype"].one_of(fmt.DTYPES),
        entry["reset"].one_of(("zeros",)),
    )


def _constant(at: At) -> fmt.Constant:
    entry = at.obj("name dtype shape chunk key", "parts")
    first = fmt.Part(entry["chunk"].member(), entry["key"].name())
    parts = entry["parts"].array(_part) if "parts" in entry else (first,)
    if not parts or parts[0] != first:
        at.fail("its first part must be its chunk and key")
    return fmt.Constant(
        entry["name"].name(),
        entry["dtype"].one_of(fmt.DTYPES),
        entry["shape"].array(lambda a: a.integer()),
        parts,
    )


def _part(at: At) -> fmt.Part:
    entry = at.obj("chunk key")
    return fmt.Part(entry["chunk"].member(), entry["key"].name())


def _golden(at: At, dims: frozenset[str]) -> fmt.Golden:
    entry = at.obj("dims file tolerance")
    values = {k: v.integer() for k, v in entry["dims"].items().items()}
    if set(values) != dims:
        entry["dims"].fail("must give each dimension of the plan a value")
    tolerance = entry["tolerance"].obj("rtol atol")
    return fmt.Golden(values, entry["file"].member(), tolerance["rtol"].number(), tolerance["atol"].number())
