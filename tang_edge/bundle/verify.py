"""From JSON to a Plan or a Manifest, totally: the result is well-formed, or a BundleError says where not.

This is the structural check that runs on every load; it needs no JSON Schema package. Keys that start with
``x-`` are free for notes and are skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from tang_edge.bundle import format as fmt
from tang_edge.bundle.checked import At
from tang_edge.bundle.expr import names_of
from tang_edge.bundle.measured import check_measured, dim_step
from tang_edge.errors import BundleError

T = TypeVar("T")

_KINDS = ("input", "output", "arena", "constant", "packed")
_MAX_DEPTH = 32


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
    _optional(entry, "peak_bytes_max", lambda a: a.integer())
    _optional(entry, "features", lambda a: a.array(lambda f: f.name()))
    _optional(entry, "limits", lambda a: [n.integer() for n in a.items().values()])
    _optional(entry, "members", lambda a: a.array(lambda m: m.one_of(files)))


@dataclass(frozen=True, slots=True)
class _Ports:
    dims: tuple[fmt.Dim, ...]
    inputs: tuple[fmt.Port, ...]
    outputs: tuple[fmt.Port, ...]
    names: frozenset[str]


def _parse_ports(top: dict[str, At]) -> _Ports:
    dims = top["dims"].array(_dim)
    _unique(tuple(d.name for d in dims), top["dims"], "dimension")
    names = frozenset(d.name for d in dims)
    inputs = top["inputs"].array(lambda a: _port(a, names))
    outputs = top["outputs"].array(lambda a: _port(a, names))
    _unique(tuple(p.name for p in inputs), top["inputs"], "input")
    _unique(tuple(p.name for p in outputs), top["outputs"], "output")
    return _Ports(dims, inputs, outputs, names)


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
    variants = top["variants"].array(lambda a: _variant(a, ports, known))
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


def _state(at: At, ports: _Ports) -> fmt.State:
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


def _variant(at: At, ports: _Ports, constants: Mapping[str, fmt.Constant]) -> fmt.Variant:
    entry = at.obj(
        "id backend class features limits source buffers slots packed_slots kernels prologue steps",
        "prebuilt cpu_adapter_prefers",
    )
    names = ports.names
    slots = entry["slots"].array(lambda a: a.expr(names))
    # the packed region is filled once, before any size is known
    packed = entry["packed_slots"].array(lambda a: a.expr(frozenset()))
    scope = _Scope(ports, constants, len(slots), len(packed), {}, {})
    for buffer in entry["buffers"].array(lambda a: _buffer(a, scope)):
        if buffer.id in scope.buffers:
            entry["buffers"].fail(f"buffer id {buffer.id} occurs twice")
        scope.buffers[buffer.id] = buffer
    scope.kernels.update({k: _kernel(v, k) for k, v in entry["kernels"].items().items()})
    _check_io(entry["buffers"], scope)
    prologue = _steps(entry["prologue"], scope, 0, 1)
    prefers = entry.get("cpu_adapter_prefers")
    made = fmt.Variant(
        id=entry["id"].name(),
        backend=entry["backend"].one_of(("webgpu", "c")),
        device_class=entry["class"].name(),
        features=entry["features"].array(lambda a: a.name()),
        limits={k: v.integer() for k, v in entry["limits"].items().items()},
        source=entry["source"].member(),
        prebuilt={k: v.member() for k, v in entry["prebuilt"].items().items()} if "prebuilt" in entry else {},
        cpu_adapter_prefers=prefers.text() if prefers is not None and prefers.value is not None else None,
        buffers=scope.buffers,
        slots=slots,
        packed_slots=packed,
        kernels=scope.kernels,
        prologue=prologue[0],
        steps=_steps(entry["steps"], scope, 0, 0)[0],
    )
    check_measured(at, made, ports)
    return made


@dataclass(frozen=True, slots=True)
class _Scope:
    ports: _Ports
    constants: Mapping[str, fmt.Constant]
    slots: int
    packed: int
    buffers: dict[int, fmt.Buffer]
    kernels: dict[str, fmt.Kernel]


def _buffer(at: At, scope: _Scope) -> fmt.Buffer:
    entry = at.obj("id name kind dtype shape strides bytes", "slot constant io")
    kind = entry["kind"].one_of(_KINDS)
    names = scope.ports.names
    shape = entry["shape"].array(lambda a: a.expr(names))
    slot = _optional(entry, "slot", lambda a: a.integer(0, (scope.packed if kind == "packed" else scope.slots) - 1))
    constant = _optional(entry, "constant", lambda a: a.one_of(scope.constants))
    wanted = {"input": scope.ports.inputs, "output": scope.ports.outputs}.get(kind, ())
    io = _optional(entry, "io", lambda a: a.one_of(tuple(p.name for p in wanted)))
    if (slot is None) != (kind == "constant"):
        at.fail("exactly the buffers that are not constants have a slot")
    if (constant is None) == (kind == "constant"):
        at.fail("exactly the constant buffers name a constant")
    if (io is None) == (kind in ("input", "output")):
        at.fail("exactly the input and output buffers name a port in 'io'")
    strides = entry["strides"].array(lambda a: a.expr(names), len(shape))
    size = entry["bytes"].expr(names)
    if kind in ("constant", "packed") and any(names_of(e) for e in (*shape, *strides, size)):
        at.fail("a constant cannot have dynamic sizes")
    return fmt.Buffer(
        entry["id"].integer(0, 2**31 - 1),
        entry["name"].text(),
        kind,
        entry["dtype"].one_of(fmt.DTYPES),
        shape,
        strides,
        size,
        slot,
        constant,
        io,
    )


def _optional(entry: dict[str, At], key: str, read: Callable[[At], T]) -> T | None:
    if key not in entry or entry[key].value is None:
        return None
    return read(entry[key])


def _check_io(at: At, scope: _Scope) -> None:
    """Each port of the model has a buffer of its rank."""
    for kind, ports in (("input", scope.ports.inputs), ("output", scope.ports.outputs)):
        ranks = {b.io: len(b.shape) for b in scope.buffers.values() if b.kind == kind}
        for port in ports:
            if ranks.get(port.name) != len(port.shape):
                at.fail(f"{kind} {port.name!r} has no buffer, or one of another rank")


def _kernel(at: At, kernel_id: str) -> fmt.Kernel:
    entry = at.obj("entry workgroup bindings params safe")
    x, y, z = entry["workgroup"].array(lambda a: a.integer(1, 65_535), 3)
    return fmt.Kernel(
        kernel_id,
        entry["entry"].name(),
        (x, y, z),
        entry["bindings"].array(lambda a: a.one_of(("read", "read_write"))),
        entry["params"].integer(0, 4096),
        entry["safe"].boolean(),
    )


def _steps(at: At, scope: _Scope, index: int, depth: int) -> tuple[tuple[fmt.AnyStep, ...], int]:
    """The steps of a list whose first has number ``index``, and the number after the last."""
    if depth > _MAX_DEPTH:
        at.fail("'if' and 'loop' steps are nested too deeply")
    result: list[fmt.AnyStep] = []
    for item in at.array(lambda a: a):
        step = _step(item, scope, index, depth)
        result.append(step)
        index = step.end if isinstance(step, (fmt.IfStep, fmt.LoopStep)) else index + 1
    return tuple(result), index


def _control(at: At, scope: _Scope) -> int:
    """A buffer that decides what runs."""
    if at.integer() not in scope.buffers:
        at.fail(f"there is no buffer {at.value}")
    return at.integer()


def _loop(at: At, scope: _Scope, index: int, depth: int) -> fmt.LoopStep:
    entry = at.obj("trip cond body")
    cond = _optional(entry, "cond", lambda a: _control(a, scope))
    trip, buffer = entry["trip"], None
    if isinstance(trip.value, dict):
        buffer = _control(trip.obj("buffer")["buffer"], scope)
        if scope.buffers[buffer].dtype not in ("i32", "i64"):
            trip.fail("a trip count is i32 or i64")
    size = trip.expr(scope.ports.names) if buffer is None else 0
    body, end = _steps(entry["body"], scope, index + 1, depth + 1)
    return fmt.LoopStep(index, size, buffer, cond, body, end)


def _step(at: At, scope: _Scope, index: int, depth: int) -> fmt.AnyStep:
    if isinstance(at.value, dict) and "if" in at.value:
        entry = at.obj("if", "name origin")["if"].obj("cond then else")
        cond = _control(entry["cond"], scope)
        then, middle = _steps(entry["then"], scope, index + 1, depth + 1)
        orelse, end = _steps(entry["else"], scope, middle, depth + 1)
        return fmt.IfStep(index, cond, then, orelse, end)
    if isinstance(at.value, dict) and "loop" in at.value:
        return _loop(at.obj("loop", "name origin")["loop"], scope, index, depth)
    if isinstance(at.value, dict) and "dim" in at.value:
        return dim_step(at.obj("dim", "name origin")["dim"], scope.buffers, scope.ports, index, depth)
    entry = at.obj("name origin writes alternates")
    alternates = entry["alternates"].array(lambda a: _alternate(a, scope))
    if not 1 <= len(alternates) <= 255:
        entry["alternates"].fail("must have 1 to 255 elements")
    return fmt.Step(
        index,
        entry["name"].name(),
        entry["origin"].array(lambda a: a.text()),
        _writes(entry["writes"], scope),
        alternates,
    )


def _writes(at: At, scope: _Scope) -> fmt.Writes:
    entry = at.obj("buffer shape strides offset")
    buffer = entry["buffer"].integer()
    if buffer not in scope.buffers:
        entry["buffer"].fail(f"there is no buffer {buffer}")
    names = scope.ports.names
    shape = entry["shape"].array(lambda a: a.expr(names))
    strides = entry["strides"].array(lambda a: a.expr(names), len(shape))
    return fmt.Writes(buffer, shape, strides, entry["offset"].expr(names))


def _alternate(at: At, scope: _Scope) -> fmt.Alternate:
    entry = at.obj("tag dispatches")
    return fmt.Alternate(entry["tag"].text(), entry["dispatches"].array(lambda a: _dispatch(a, scope)))


def _dispatch(at: At, scope: _Scope) -> fmt.Dispatch:
    entry = at.obj("kernel args params grid")
    kernel = scope.kernels.get(entry["kernel"].name())
    if kernel is None:
        entry["kernel"].fail("there is no such kernel")
    args = entry["args"].array(lambda a: a.integer(), len(kernel.bindings))
    for arg in args:
        if arg not in scope.buffers:
            entry["args"].fail(f"there is no buffer {arg}")
    names = scope.ports.names
    params = entry["params"].array(lambda a: a.expr(names), kernel.params)
    x, y, z = entry["grid"].array(lambda a: a.expr(names), 3)
    return fmt.Dispatch(kernel.id, args, params, (x, y, z))
