"""Launches as data, and the recording of them into command encoders."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tang_edge.bundle import format as fmt
from tang_edge.runtime.host_arrays import Array

if TYPE_CHECKING:
    from tang_edge.wgsl.host import WebGpuEngine


@dataclass(slots=True)
class Launch:
    """One dispatch, ready to be recorded."""

    kernel: str
    step: fmt.Step
    pipeline: Any
    grid: tuple[int, int, int]
    group: Any = None


@dataclass(slots=True)
class Branch:
    """A choice: the condition's buffer, offset and dtype, and the two programs."""

    source: Any
    offset: int
    dtype: str
    then: Program
    orelse: Program


@dataclass(slots=True)
class Cycle:
    """A loop: the trip count (or where it lies: buffer, offset, dtype), the condition likewise, and the body."""

    trip: int | tuple[Any, int, str]
    cond: tuple[Any, int, str] | None
    body: Program


@dataclass(slots=True)
class Measured:
    """A dimension to read (where its value lies), and what makes the rest of the program once it is known."""

    dim: fmt.Dim
    place: tuple[Any, int, str]
    rest: Callable[[int], Program]


Program = list["Launch | Branch | Cycle | Measured"]


@dataclass(slots=True)
class Transfers:
    """What goes to the device before a run and comes back after it: GPU buffer, its offset, range in the staging memory."""

    inputs: list[tuple[Any, int, int, int]] = field(default_factory=list)
    outputs: list[tuple[Any, int, int, int]] = field(default_factory=list)


@dataclass(slots=True)
class Prepared:
    """What a prepared call holds on the GPU."""

    program: Program
    uniform: Any
    staging: Array
    whole: Transfers = field(default_factory=Transfers)
    resumed: Transfers = field(default_factory=Transfers)  # without the states, which are on the device already
    states: list[tuple[Any, int, Any, int, int]] = field(default_factory=list)  # copies from outputs to inputs


def launches_of(program: Program) -> list[Launch]:
    """All launches of a program, both sides of every choice included, those of a loop once."""
    found: list[Launch] = []
    for item in program:
        if isinstance(item, Launch):
            found.append(item)
        elif isinstance(item, Cycle):
            found += launches_of(item.body)
        elif isinstance(item, Branch):
            found += launches_of(item.then) + launches_of(item.orelse)
    return found


class _Native:
    """Recording through wgpu-native's own functions: three calls a dispatch, at a third of wgpu-py's cost.

    The driver reports errors of a pass when the pass ends, which goes through wgpu-py again and raises.
    """

    def __init__(self) -> None:
        from wgpu.backends.wgpu_native import ffi, lib

        self._pipeline = lib.wgpuComputePassEncoderSetPipeline
        self._group = lib.wgpuComputePassEncoderSetBindGroup
        self._dispatch = lib.wgpuComputePassEncoderDispatchWorkgroups
        self._none = ffi.NULL

    def launch(self, compute_pass: Any, launch: Launch) -> None:
        """Record a dispatch."""
        handle = compute_pass._internal
        self._pipeline(handle, launch.pipeline._internal)
        self._group(handle, 0, launch.group._internal, 0, self._none)
        self._dispatch(handle, *launch.grid)


@functools.cache
def _native() -> _Native | None:
    try:
        return _Native()
    except (ImportError, AttributeError):
        return None  # another backend of wgpu-py: its public interface does as well


class Recorder:
    """Records dispatches and copies into one command encoder, until it is submitted."""

    def __init__(self, engine: WebGpuEngine) -> None:
        self._engine = engine
        self._native = _native()
        self._encoder: Any = None
        self._pass: Any = None

    def launch(self, launch: Launch) -> None:
        """Record a dispatch."""
        if self._pass is None:
            self._pass = self._open().begin_compute_pass()
        if self._native is not None:
            self._native.launch(self._pass, launch)
            return
        self._pass.set_pipeline(launch.pipeline)
        self._pass.set_bind_group(0, launch.group)
        self._pass.dispatch_workgroups(*launch.grid)

    def copy(self, source: Any, offset: int, target: Any, to: int, size: int) -> None:
        """Record a copy between buffers."""
        encoder = self._open()
        self._end_pass()
        if size:
            encoder.copy_buffer_to_buffer(source, offset, target, to, size)

    def submit(self) -> None:
        """Hand what was recorded to the queue."""
        self._end_pass()
        if self._encoder is not None:
            encoder, self._encoder = self._encoder, None
            self._engine.device.queue.submit([encoder.finish()])
            self._engine.submissions += 1

    def _open(self) -> Any:
        if self._encoder is None:
            self._encoder = self._engine.device.create_command_encoder()
        return self._encoder

    def _end_pass(self) -> None:
        if self._pass is not None:
            self._pass.end()
            self._pass = None
