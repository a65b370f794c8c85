"""A scheduled variant as the plan's JSON: buffers, kernels, steps with alternates, sizes as expressions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tang_edge.emit.sizes import to_json
from tang_edge.emit.unit import Unit
from tang_edge.ir import affine
from tang_edge.ir.kernel import Kernel
from tang_edge.ir.tensor import Bind
from tang_edge.schedule.addresses import Placed
from tang_edge.schedule.lower import target_of
from tang_edge.schedule.nest import nest
from tang_edge.schedule.variant import AnyStep, BufferPlan, Measure, Repeat, Step, Variant

# kernel, where, binding modes, the model's nodes, whether it runs once (at load) -> (kernel id, unit)
Emit = Callable[[Kernel, str, Sequence[str], Sequence[str], bool], tuple[str, Unit]]
Grid = Callable[[Kernel], Sequence[affine.Expr]]


def whole_vectors(p: Placed) -> affine.Expr:
    """Bytes of a constant's buffer, in whole 16-byte vectors: a kernel may declare it as an array of those."""
    return (p.size * p.dtype.bytes + 15) // 16 * 16


class PlanWriter:
    """Collects the kernels that the steps use."""

    def __init__(self, v: Variant, emit: Emit, grid: Grid) -> None:
        self.v, self.emit, self.grid = v, emit, grid
        self.kernels: dict[str, dict[str, Any]] = {}
        self.origin: dict[str, list[str]] = {}
        self.ids = {b.tensor: b.id for b in v.buffers}
        self.kinds = {b.tensor: b.kind for b in v.buffers}

    def variant(self, identifier: str, source: str) -> dict[str, Any]:
        """The variant's entry in the plan."""
        v = self.v
        prologue = [self.step(s, early=True) for s in v.prologue]
        steps = [self.any_step(s) for s in v.steps]
        out: dict[str, Any] = {
            "id": identifier,
            "backend": v.limits.backend,
            "class": v.limits.name,
            "features": [],
            "limits": self._limits(),
            "source": source,
            "buffers": [self._buffer(b) for b in v.buffers],
            "slots": [to_json(e) for e in v.slots],
            "packed_slots": [to_json(e) for e in v.packed_slots],
            "kernels": self.kernels,
            "prologue": prologue,
            "steps": steps,
        }
        if v.limits.cpu_prefers:
            out["cpu_adapter_prefers"] = v.limits.cpu_prefers
        return out

    def _limits(self) -> dict[str, int]:
        if self.v.limits.invocations <= 1:
            return {}
        buffers = max((len(k["bindings"]) for k in self.kernels.values()), default=1)
        return {"maxStorageBuffersPerShaderStage": buffers}

    def _buffer(self, b: BufferPlan) -> dict[str, Any]:
        p = self.v.placed[b.tensor]
        return {
            "id": b.id,
            "name": b.tensor,
            "kind": b.kind,
            "dtype": p.dtype.name,
            "shape": [to_json(e) for e in p.shape],
            "strides": [to_json(e) for e in p.strides],
            "bytes": to_json(p.bytes() if b.kind != "constant" else whole_vectors(p)),
            "slot": b.slot,
            "constant": b.tensor if b.kind == "constant" else None,
            "io": self._io(b),
        }

    def _io(self, b: BufferPlan) -> str | None:
        if b.kind == "input":
            return b.tensor
        names = [name for name, tensor in self.v.program.outputs if tensor == b.tensor]
        return names[0] if b.kind == "output" else None

    def any_step(self, s: AnyStep) -> dict[str, Any]:
        """A step or structured control."""
        if isinstance(s, Step):
            return self.step(s)
        if isinstance(s, Repeat):
            trip = {"buffer": self.ids[s.trip]} if isinstance(s.trip, str) else to_json(s.trip)
            cond = None if s.cond is None else self.ids[s.cond]
            return {"loop": {"trip": trip, "cond": cond, "body": [self.any_step(x) for x in s.body]}}
        if isinstance(s, Measure):
            return {"dim": {"name": s.dim.name, "from": self.ids[s.tensor]}}
        then, orelse = [self.any_step(x) for x in s.then], [self.any_step(x) for x in s.orelse]
        return {"if": {"cond": self.ids[s.cond], "then": then, "else": orelse}}

    def step(self, s: Step, early: bool = False) -> dict[str, Any]:
        """A step with its alternates."""
        alternates = []
        for a in s.alternates:
            alternates.append({"tag": a.tag, "dispatches": [self._dispatch(k, s.bind, early) for k in a.kernels]})
        origin = [str(o) for o in s.bind.origin]
        return {"name": s.bind.name, "origin": origin, "writes": self._writes(s.bind), "alternates": alternates}

    def _writes(self, b: Bind) -> dict[str, Any]:
        """Where the bind's elements lie: affine store coordinates give strides and an offset."""
        t = target_of(nest(b, None))
        p: Placed = self.v.placed[t.tensor]
        e = p.address(t.coords)
        strides = [affine.linear_coefficient(e, a) or affine.const(0) for a in b.axes]
        offset = affine.substitute(e, {a: affine.const(0) for a in b.axes})
        return {
            "buffer": self.ids[t.tensor],
            "shape": [to_json(a.extent) for a in b.axes],
            "strides": [to_json(s) for s in strides],
            "offset": to_json(offset),
        }

    def _mode(self, tensor: str, early: bool) -> str:
        """One buffer may not be bound read-only and writable in one dispatch, so all of the arena is read_write."""
        kind = self.kinds[tensor]
        return "read" if kind == "constant" or (kind == "packed" and not early) else "read_write"

    def _dispatch(self, k: Kernel, bind: Bind, early: bool) -> dict[str, Any]:
        where = str(bind.origin[-1]) if bind.origin else bind.name
        modes = [self._mode(b.tensor, early) for b in k.buffers]
        name, u = self.emit(k, where, modes, [str(o) for o in bind.origin], early)
        entry = {"entry": "main", "workgroup": [max(1, k.workgroup), 1, 1], "bindings": modes}
        self.kernels.setdefault(name, {**entry, "params": len(u.params), "safe": True})
        self.origin.setdefault(name, []).append(bind.name)
        return {
            "kernel": name,
            "args": [self.ids[b.tensor] for b in u.kernel.buffers],
            "params": [to_json(affine.as_expr(d)) for d in u.params],
            "grid": [to_json(e) for e in self.grid(k)],
        }
