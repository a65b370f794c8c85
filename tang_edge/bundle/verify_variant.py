"""The part of `verify` that reads a variant: buffers, kernels, steps and what they refer to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from tang_edge.bundle import format as fmt
from tang_edge.bundle.checked import At
from tang_edge.bundle.expr import names_of
from tang_edge.bundle.measured import check_measured, dim_step

T = TypeVar("T")

_KINDS = ("input", "output", "arena", "constant", "packed")
_MAX_DEPTH = 32


@dataclass(frozen=True, slots=True)
class Ports:
    dims: tuple[fmt.Dim, ...]
    inputs: tuple[fmt.Port, ...]
    outputs: tuple[fmt.Port, ...]
    names: frozenset[str]


def variant(at: At, ports: Ports, constants: Mapping[str, fmt.Constant]) -> fmt.Variant:
    """A variant of the plan. Raises BundleError."""
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
    ports: Ports
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
    slot = optional(entry, "slot", lambda a: a.integer(0, (scope.packed if kind == "packed" else scope.slots) - 1))
    constant = optional(entry, "constant", lambda a: a.one_of(scope.constants))
    wanted = {"input": scope.ports.inputs, "output": scope.ports.outputs}.get(kind, ())
    io = optional(entry, "io", lambda a: a.one_of(tuple(p.name for p in wanted)))
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


def optional(entry: dict[str, At], key: str, read: Callable[[At], T]) -> T | None:
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
    cond = optional(entry, "cond", lambda a: _control(a, scope))
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
