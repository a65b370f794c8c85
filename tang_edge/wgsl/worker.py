"""The memory of one session on a WebGPU device, and the recording of its runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tang_edge.bundle import format as fmt
from tang_edge.bundle import layout
from tang_edge.bundle.expr import compile_expr
from tang_edge.errors import DeviceError
from tang_edge.runtime import host_arrays
from tang_edge.runtime.device import DeviceLost, KernelRefused, Ready, Sizes, check_measured, ports, state_buffers
from tang_edge.runtime.host_arrays import Array
from tang_edge.wgsl import gpu
from tang_edge.wgsl.numbers import grid, int32, span, within
from tang_edge.wgsl.record import Branch, Cycle, Launch, Measured, Prepared, Program, Recorder, Transfers, launches_of

if TYPE_CHECKING:
    from tang_edge.wgsl.host import WebGpuEngine

T = TypeVar("T")
Steps = Sequence[fmt.AnyStep]


class WebGpuWorker:
    """The arena of one session on a WebGPU device."""

    def __init__(self, engine: WebGpuEngine) -> None:
        self._engine = engine
        self._sizes = Sizes(self._drop)
        self._held: dict[tuple[int, ...], Prepared] = {}
        self._fresh()

    def _fresh(self) -> None:
        self._epoch = self._engine.epoch
        self._arena = gpu.Segments(self._engine.device, "arena")
        self._read: Any = None
        self._places: list[tuple[int, int]] = []
        # a copy inside one buffer is no legal command, so states lie in buffers of their own
        given = {s.input for s in self._engine.plan.states}
        buffers = self._engine.variant.buffers.values()
        self._alone = frozenset(b.slot for b in buffers if b.kind == "input" and b.io in given and b.slot is not None)

    def _drop(self, ready: Ready) -> None:
        self._held.pop(ready.dims).uniform.destroy()

    def _fit(self, dims: Mapping[str, int]) -> None:
        """Make the arena large enough, and check that all buffers lie in their slots."""
        variant = self._engine.variant
        if self._epoch != self._engine.epoch:
            self._sizes.clear()
            self._fresh()
        region = layout.region(variant.slots, dims, variant.id)
        packed = layout.region(variant.packed_slots, {}, variant.id)
        layout.check_slots(variant, dims, region, packed)
        before = list(self._arena.buffers)
        whole = layout.reserved(self._engine.plan, variant) if not before else None
        try:
            self._arena.fit(region if whole is None else whole, self._alone)
            self._arena.fit(region, self._alone)
        finally:
            if self._arena.buffers[: len(before)] != before:
                self._sizes.clear()  # bound to buffers that are gone
        self._places = gpu.segment_places(region, self._alone)

    def prepare(self, dims: Mapping[str, int]) -> Ready:
        """The prepared call; the arena grows where these sizes need more than any before."""
        engine = self._engine
        with engine.lock:
            found = self._sizes.get(tuple(dims.values())) if self._epoch == engine.epoch else None
            if found is not None:
                return found
            self._fit(dims)
            program, uniform = self._program(engine.variant.steps, dims, prologue=False)
            held = Prepared(program, uniform, np.zeros(0, np.uint8))
            starts = self._stage(held, dims)
            key = tuple(dims.values())

            def place(buffer: fmt.Buffer, size: layout.Extent) -> Array:
                return host_arrays.view(held.staging, starts[buffer.id], size)

            ready = ports(
                *(engine.plan, engine.variant, dims, place),
                *(lambda: self._call(held, held.whole), lambda: self._call(held, held.resumed)),
            )
            self._held[key] = held
            self._sizes.put(ready)
            return ready

    def _stage(self, held: Prepared, dims: Mapping[str, int]) -> dict[int, int]:
        """Host memory through which inputs and outputs pass; where each buffer starts in it."""
        starts: dict[int, int] = {}
        at = 0
        plan = self._engine.plan
        states = {s.input for s in plan.states} | {s.output for s in plan.states}
        for buffer in self._engine.variant.buffers.values():
            if buffer.kind not in ("input", "output"):
                continue
            starts[buffer.id] = at
            size = fmt.align_up(layout.evaluate_size(buffer.bytes, dims, buffer.name), 4)
            source, offset = self.locate(buffer)
            for transfers in (held.whole, held.resumed) if buffer.io not in states else (held.whole,):
                entries = transfers.inputs if buffer.kind == "input" else transfers.outputs
                entries.append((source, offset, at, at + size))
            at = fmt.align_up(at + size, fmt.ALIGN)
        held.staging = host_arrays.allocate(at, self._engine.variant.id)
        for source_buffer, target, extent in state_buffers(plan, self._engine.variant, dims):
            (a, i), (b, k) = self.locate(source_buffer), self.locate(target)
            held.states.append((a, i, b, k, fmt.align_up(span(extent), 4)))
        return starts

    def locate(self, buffer: fmt.Buffer) -> tuple[Any, int]:
        """The GPU buffer and byte offset where a buffer of the plan lies."""
        engine = self._engine
        if buffer.kind == "constant":
            return engine.constants[buffer.id], 0
        if buffer.kind == "packed":
            segment, offset = engine.packed_places[buffer.slot or 0]
            return engine.packed.buffers[segment], offset
        segment, offset = self._places[buffer.slot or 0]
        return self._arena.buffers[segment], offset

    def _program(self, steps: Steps, dims: Mapping[str, int], *, prologue: bool) -> tuple[Program, Any]:
        """The launches of the steps, and the uniform buffer that holds their parameters."""
        pending: list[tuple[Launch, fmt.Dispatch]] = []
        program = self._walk(steps, dims, prologue, pending)
        params = {
            i: [int32(compile_expr(p)(dims), launch) for p in dispatch.params]
            for i, (launch, dispatch) in enumerate(pending)
            if dispatch.params
        }
        device = self._engine.device
        align = max(fmt.SLOT_ALIGN, int(device.limits["min-uniform-buffer-offset-alignment"]))
        offsets, data = gpu.pack_params(params, align)
        uniform = gpu.make_buffer(device, max(16, len(data)), gpu.UNIFORM_USAGE, "params")
        try:
            if data:
                device.queue.write_buffer(uniform, 0, data)
            for i, (launch, dispatch) in enumerate(pending):
                launch.group = self._group(launch, dispatch, dims, uniform, offsets.get(i))
        except gpu.gpu_errors() as error:
            raise gpu.translate(error, f"{self._engine.variant.id}: bindings") from error
        return program, uniform

    def _walk(
        self,
        steps: Steps,
        dims: Mapping[str, int],
        prologue: bool,
        pending: list[tuple[Launch, fmt.Dispatch]],
    ) -> Program:
        program: Program = []
        for at, step in enumerate(steps):
            if isinstance(step, fmt.DimStep):
                program.append(self._measured(step, steps[at + 1 :], dims))
                break  # the rest is made when its sizes are known
            if isinstance(step, fmt.IfStep):
                buffer = self._engine.variant.buffers[step.cond]
                source, offset = self.locate(buffer)
                then = self._walk(step.then, dims, prologue, pending)
                orelse = self._walk(step.orelse, dims, prologue, pending)
                program.append(Branch(source, offset, buffer.dtype, then, orelse))
                continue
            if isinstance(step, fmt.LoopStep):
                trip = compile_expr(step.trip)(dims) if step.trip_buffer is None else self._element(step.trip_buffer)
                cond = None if step.cond is None else self._element(step.cond)
                program.append(Cycle(trip, cond, self._walk(step.body, dims, prologue, pending)))
                continue
            for dispatch in self._engine.alternate(step, prologue).dispatches:
                index = -1 - step.index if prologue else step.index
                pipeline, _ = self._engine.pipeline(dispatch.kernel, index)
                launch = Launch(dispatch.kernel, step, pipeline, grid(dispatch, dims, step))
                if 0 not in launch.grid:
                    program.append(launch)
                    pending.append((launch, dispatch))
        return program

    def _measured(self, step: fmt.DimStep, rest: Steps, dims: Mapping[str, int]) -> Measured:
        """The reading of a dimension; programs for the latest value stay prepared."""
        held: dict[int, tuple[Program, Any]] = {}

        def make(value: int) -> Program:
            if value not in held:
                for _, uniform in held.values():
                    uniform.destroy()
                held.clear()
                held[value] = self._program(rest, {**dims, step.name: value}, prologue=False)
            return held[value][0]

        dim = next(d for d in self._engine.plan.dims if d.name == step.name)
        return Measured(dim, self._element(step.buffer), make)

    def _element(self, buffer: int) -> tuple[Any, int, str]:
        """Where the one element of a buffer lies, and its dtype."""
        found = self._engine.variant.buffers[buffer]
        return (*self.locate(found), found.dtype)

    def _group(
        self,
        launch: Launch,
        dispatch: fmt.Dispatch,
        dims: Mapping[str, int],
        uniform: Any,
        params: int | None,
    ) -> Any:
        entries = []
        for binding, arg in enumerate(dispatch.args):
            buffer = self._engine.variant.buffers[arg]
            source, offset = self.locate(buffer)
            size = max(4, fmt.align_up(layout.evaluate_size(buffer.bytes, dims, buffer.name), 4))
            gpu.check_binding(self._engine.device, buffer.name, size)
            resource = {"buffer": source, "offset": offset, "size": size}
            entries.append({"binding": binding, "resource": resource})
        if params is not None:
            size = fmt.align_up(4 * len(dispatch.params), 16)
            resource = {"buffer": uniform, "offset": params, "size": size}
            entries.append({"binding": len(dispatch.args), "resource": resource})
        bindings = self._engine.pipelines[launch.kernel][1]
        return self._engine.device.create_bind_group(layout=bindings, entries=entries, label=launch.kernel)

    def _call(self, held: Prepared, transfers: Transfers) -> None:
        """Upload the inputs, run everything, bring the outputs back."""
        engine = self._engine
        with engine.lock:
            if engine.pid != os.getpid():
                raise DeviceError(
                    "a WebGPU device cannot be used in a forked process",
                    where=engine.variant.id,
                    remedy="Load the model in the process that runs it.",
                )
            if self._epoch != engine.epoch:
                raise DeviceLost("the GPU device was lost and is a new one now", where=engine.variant.id)
            recorder = Recorder(engine)
            try:
                self._write(held, transfers)
                self._record(recorder, held.program)
                for copy in held.states:
                    recorder.copy(*copy)
                self._bring(recorder, held, transfers)
            except gpu.gpu_errors() as error:
                raise self._explain(error, held.program) from error

    def _write(self, held: Prepared, transfers: Transfers) -> None:
        queue = self._engine.device.queue
        for target, offset, start, stop in transfers.inputs:
            queue.write_buffer(target, offset, held.staging[start:stop])

    def _record(self, recorder: Recorder, program: Program) -> None:
        for item in program:
            if isinstance(item, Launch):
                recorder.launch(item)
            elif isinstance(item, Cycle):
                for _ in range(item.trip if isinstance(item.trip, int) else self._peek(recorder, *item.trip)):
                    if item.cond is not None and not self._peek(recorder, *item.cond):
                        break
                    self._record(recorder, item.body)
            elif isinstance(item, Measured):
                value = self._peek(recorder, *item.place)
                check_measured(item.dim, value, self._engine.variant.id)
                self._record(recorder, item.rest(value))
            else:
                taken = self._peek(recorder, item.source, item.offset, item.dtype)
                self._record(recorder, item.then if taken else item.orelse)

    def _peek(self, recorder: Recorder, source: Any, offset: int, dtype: str) -> int:
        """One element, when all that was recorded so far is done."""
        kind = fmt.DTYPES[dtype]
        size = fmt.align_up(kind.itemsize, 4)
        recorder.copy(source, offset, self._reader(size), 0, size)
        recorder.submit()
        return int(self._map(size, lambda data: data[: kind.itemsize].copy().view(kind)[0]))

    def _bring(self, recorder: Recorder, held: Prepared, transfers: Transfers) -> None:
        total = sum(stop - start for *_, start, stop in transfers.outputs)
        reader, at = self._reader(total), 0
        for source, offset, start, stop in transfers.outputs:
            recorder.copy(source, offset, reader, at, stop - start)
            at += stop - start
        recorder.submit()

        def take(data: Array) -> None:
            at = 0
            for *_, start, stop in transfers.outputs:
                held.staging[start:stop] = data[at : at + stop - start]
                at += stop - start

        self._map(total, take)

    def _reader(self, size: int) -> Any:
        """The read-back buffer, grown to ``size`` bytes."""
        if self._read is None or self._read.size < size:
            if self._read is not None:
                self._read.destroy()
            self._read = gpu.make_buffer(self._engine.device, size, gpu.READ_USAGE, "read-back")
        return self._read

    def _map(self, size: int, take: Callable[[Array], T]) -> T:
        """What ``take`` makes of the start of the read-back buffer (it copies), when the GPU is done."""
        if size == 0:
            return take(np.zeros(0, np.uint8))
        self._read.map_sync(1, 0, size)
        try:
            return take(np.frombuffer(self._read.read_mapped(0, size, copy=False), np.uint8))
        finally:
            self._read.unmap()

    def _explain(self, error: Exception, program: Program, prologue: bool = False) -> DeviceError:
        """The error as ours; where it is not the device itself, with the kernel and step that cause it."""
        variant = self._engine.variant.id
        known = gpu.translate(error, variant)
        if isinstance(known, DeviceLost):
            return known
        for launch in launches_of(program):
            try:
                recorder = Recorder(self._engine)
                recorder.launch(launch)
                recorder.submit()
            except gpu.gpu_errors() as again:
                where = f"{variant}: kernel {launch.kernel}, step {launch.step.index} ({launch.step.name})"
                found = gpu.translate(again, where)
                index = -1 - launch.step.index if prologue else launch.step.index
                return KernelRefused(found.message, where=found.where, remedy=found.remedy, step=index)
        return known

    def upload(self, ready: Ready) -> None:
        """Write the staged inputs to the device."""
        with self._engine.lock:
            try:
                held = self._held[ready.dims]
                self._write(held, held.whole)
            except gpu.gpu_errors() as error:
                raise gpu.translate(error, self._engine.variant.id) from error

    def run_range(self, ready: Ready, first: int, last: int) -> None:
        """Run the steps with indices in [first, last); an 'if' around them reads its condition again."""
        variant = self._engine.variant
        dims = dict(zip((d.name for d in self._engine.plan.dims), ready.dims, strict=True))
        self.run_steps(within(variant.steps, first, last if last >= 0 else 2**31), dims)

    def run_steps(self, steps: Steps, dims: Mapping[str, int], *, prologue: bool = False) -> None:
        """Run a list of steps once, without inputs or outputs."""
        with self._engine.lock:
            self._fit(dims)
            program, uniform = self._program(steps, dims, prologue=prologue)
            try:
                recorder = Recorder(self._engine)
                self._record(recorder, program)
                recorder.submit()
            except gpu.gpu_errors() as error:
                raise self._explain(error, program, prologue) from error
            finally:
                uniform.destroy()

    def read(self, ready: Ready, writes: fmt.Writes) -> Array:
        """A copy of what a step wrote."""
        engine = self._engine
        dims = dict(zip((d.name for d in engine.plan.dims), ready.dims, strict=True))
        buffer = engine.variant.buffers[writes.buffer]
        size = layout.extent(buffer, dims, writes)
        total = fmt.align_up(size.bytes, 4)
        with engine.lock:
            self._fit(dims)
            source, offset = self.locate(buffer)
            recorder = Recorder(engine)
            try:
                recorder.copy(source, offset, self._reader(total), 0, total)
                recorder.submit()
                return self._map(total, lambda data: host_arrays.view(data, 0, size).copy())
            except gpu.gpu_errors() as error:
                raise gpu.translate(error, engine.variant.id) from error

    @property
    def arena_bytes(self) -> int:
        """Bytes of the arena's buffers."""
        return self._arena.bytes

    def close(self) -> None:
        """Free the buffers."""
        with self._engine.lock:
            self._sizes.clear()
            self._arena.destroy()
            if self._read is not None:
                self._read.destroy()
                self._read = None
