"""What a device is to a session. Two kinds exist: compiled C (c_fallback/host.py) and WebGPU (wgsl/host.py).

An engine holds one variant on one device, with its weights; a worker holds the memory of one session on it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tang_edge.bundle import format as fmt
from tang_edge.bundle.expr import compile_expr
from tang_edge.bundle.layout import Extent, extent
from tang_edge.errors import BundleError, DeviceError
from tang_edge.runtime import host_arrays
from tang_edge.runtime.host_arrays import Array

DimValues = tuple[int, ...]
KEPT_SIZES = 8  # dimension tuples whose calls stay prepared


class DeviceLost(DeviceError):
    """The device is gone (driver reset, unplugged). The session re-creates it once and tries again."""


class KernelRefused(DeviceError):
    """The driver refuses a kernel of the step with index ``step`` (negative: of the prologue)."""

    def __init__(self, message: str, *, where: str = "", remedy: str = "", step: int = -1) -> None:
        super().__init__(message, where=where, remedy=remedy)
        self.step = step


@dataclass(slots=True)
class Ready:
    """Everything that depends on dimension values only, prepared for one worker.

    ``inputs`` are (name, dtype, shape, view to fill), ``outputs`` (name, view to copy), ``casts`` outputs
    that change their dtype on the way. ``ranges`` are inputs whose values must be checked first.
    ``call`` runs all steps; at its end the states of the model go from their outputs to their inputs, on the device.
    ``resumed`` is the same without the states' inputs and outputs, for a run that goes on from there.
    """

    dims: DimValues
    inputs: tuple[tuple[str, np.dtype[Any], tuple[int, ...], Array], ...]
    outputs: tuple[tuple[str, Array], ...]
    casts: tuple[tuple[str, Array, np.dtype[Any]], ...]
    ranges: tuple[tuple[str, int, int], ...]
    call: Callable[[], None]
    resumed: Ready | None = None


class Worker(Protocol):
    """The memory of one session on a device. Not thread-safe: its session holds a lock."""

    def prepare(self, dims: Mapping[str, int]) -> Ready:
        """The prepared call for these dimension values (cached for the latest few)."""

    def upload(self, ready: Ready) -> None:
        """Make the filled inputs visible to the device, before :meth:`run_range`."""

    def run_range(self, ready: Ready, first: int, last: int) -> None:
        """Run the steps with preorder indices in [first, last); ``last`` < 0: to the end."""

    def read(self, ready: Ready, writes: fmt.Writes) -> Array:
        """A copy of what a step wrote, in its logical shape and storage dtype."""

    @property
    def arena_bytes(self) -> int:
        """Bytes of the arena as allocated now."""

    def close(self) -> None:
        """Free the memory."""


class Engine(Protocol):
    """A variant on a device, with its weights. Thread-safe."""

    variant: fmt.Variant
    kind: str
    adapter: str

    def worker(self) -> Worker:
        """Memory for a new session."""

    def choose(self, step: int, alternate: int) -> None:
        """From now on (for new workers) do a step by its alternate of this number."""

    def choice(self, step: int) -> int:
        """The number of the alternate that a step uses now."""

    def revive(self) -> None:
        """Re-create a lost device, with its weights."""

    @property
    def weight_bytes(self) -> int:
        """Bytes of constants and packed weights held for this device."""

    def close(self) -> None:
        """Free everything. Workers must be closed before."""


def check_measured(dim: fmt.Dim, value: int, where: str) -> None:
    """Raise DeviceError unless a value that the model computed is legal for its dimension."""
    if not dim.min <= value <= dim.max or value % dim.multiple:
        raise DeviceError(
            f"the model computed the size {value} for dimension {dim.name!r}, which must be in {dim.min}..{dim.max}",
            where=where,
            remedy=f"Pack the model with another range (--dim {dim.name}=lo..hi).",
        )


class Sizes:
    """A small cache of prepared calls, the least recently used one goes first."""

    def __init__(self, drop: Callable[[Ready], None] | None = None) -> None:
        self._kept: OrderedDict[DimValues, Ready] = OrderedDict()
        self._drop = drop

    def get(self, dims: DimValues) -> Ready | None:
        """The prepared call, now the most recently used one."""
        found = self._kept.get(dims)
        if found is not None:
            self._kept.move_to_end(dims)
        return found

    def put(self, ready: Ready) -> None:
        """Keep a prepared call."""
        self._kept[ready.dims] = ready
        while len(self._kept) > KEPT_SIZES:
            self._forget(self._kept.popitem(last=False)[1])

    def clear(self) -> None:
        """Forget all."""
        while self._kept:
            self._forget(self._kept.popitem(last=False)[1])

    def _forget(self, ready: Ready) -> None:
        if self._drop is not None:
            self._drop(ready)


def _port_extent(port: fmt.Port, buffer: fmt.Buffer, dims: Mapping[str, int]) -> Extent:
    size = extent(buffer, dims)
    if size.shape != tuple(compile_expr(e)(dims) for e in port.shape):
        raise BundleError(f"its buffer has shape {size.shape}, not the port's", where=f"plan: {port.name}")
    return size


Place = Callable[[fmt.Buffer, Extent], Array]


def ports(
    plan: fmt.Plan,
    variant: fmt.Variant,
    dims: Mapping[str, int],
    place: Place,
    call: Callable[[], None],
    resume: Callable[[], None],
) -> Ready:
    """The boundary of a prepared call; ``place`` gives the host view of an input or output buffer.

    ``resume`` is what ``call`` becomes when states are on the device already.
    """
    held = {(b.kind, b.io): b for b in variant.buffers.values() if b.io is not None}
    inputs, outputs, casts, ranges = [], [], [], []
    for port in plan.inputs:
        buffer = held["input", port.name]
        host_arrays.check_storable(port, buffer.dtype, variant.id)
        size = _port_extent(port, buffer, dims)
        inputs.append((port.name, fmt.DTYPES[port.dtype], size.shape, place(buffer, size)))
        limits = host_arrays.value_range(port.dtype, buffer.dtype)
        if limits is not None:
            ranges.append((port.name, *limits))
    for port in plan.outputs:
        buffer = held["output", port.name]
        host_arrays.check_storable(port, buffer.dtype, variant.id)
        view = place(buffer, _port_extent(port, buffer, dims))
        if view.dtype == fmt.DTYPES[port.dtype]:
            outputs.append((port.name, view))
        else:
            casts.append((port.name, view, fmt.DTYPES[port.dtype]))
    ready = Ready(tuple(dims.values()), tuple(inputs), tuple(outputs), tuple(casts), tuple(ranges), call)
    if plan.states:
        ready.resumed = _without_states(ready, plan, resume)
    return ready


def _without_states(ready: Ready, plan: fmt.Plan, resume: Callable[[], None]) -> Ready:
    given, made = {s.input for s in plan.states}, {s.output for s in plan.states}
    return Ready(
        ready.dims,
        tuple(x for x in ready.inputs if x[0] not in given),
        tuple(x for x in ready.outputs if x[0] not in made),
        tuple(x for x in ready.casts if x[0] not in made),
        tuple(x for x in ready.ranges if x[0] not in given),
        resume,
    )


def state_buffers(plan: fmt.Plan, variant: fmt.Variant, dims: Mapping[str, int]) -> list[tuple[fmt.Buffer, fmt.Buffer, Extent]]:
    """Of each state: the buffer of its output, that of its input, and their common extent.

    Raises:
        BundleError: the two are not stored alike.
    """
    held = {(b.kind, b.io): b for b in variant.buffers.values() if b.io is not None}
    found = []
    for state in plan.states:
        source, target = held["output", state.output], held["input", state.input]
        size, other = extent(source, dims), extent(target, dims)
        if (size.dtype, size.shape, size.strides) != (other.dtype, other.shape, other.strides):
            raise BundleError(f"the state {state.input!r} is stored unlike its output", where=variant.id)
        found.append((source, target, size))
    return found
