"""The WebGPU device, over ``wgpu``: one pipeline a kernel, one submission and one read-back a run."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tang_edge.bundle import format as fmt
from tang_edge.bundle import layout
from tang_edge.bundle.read import Bundle
from tang_edge.errors import BundleError, DeviceError
from tang_edge.runtime import host_arrays
from tang_edge.runtime.device import DeviceLost, KernelRefused
from tang_edge.runtime.host_arrays import Array
from tang_edge.wgsl import gpu
from tang_edge.wgsl.worker import WebGpuWorker

Steps = Sequence[fmt.AnyStep]
_COMPUTE = 4  # shader stage


class WebGpuEngine:
    """A WebGPU variant with its weights on a device. One lock serialises what goes to the queue."""

    kind = "webgpu"

    def __init__(self, bundle: Bundle, variant: fmt.Variant, adapter: gpu.Adapter, unchecked: bool) -> None:
        self.bundle = bundle
        self.plan = bundle.plan
        self.variant = variant
        self.adapter = adapter.name
        self.lock = threading.RLock()
        self.epoch = 0
        self.pid = os.getpid()
        self.submissions = 0  # counted for tests and profiles
        self._adapter = adapter
        self._unchecked = unchecked
        self._texts = gpu.split_source(bundle.text(variant.source))
        prefers = variant.cpu_adapter_prefers if adapter.is_cpu else None
        flat = fmt.flatten(variant.steps)
        self._choice = [_preferred(s, prefers) if isinstance(s, fmt.Step) else 0 for s in flat]
        self._prefers = prefers
        self._open()

    def _open(self) -> None:
        self.device = gpu.open_device(self._adapter, self.variant)
        self.pipelines: dict[str, tuple[Any, Any]] = {}
        self.packed = gpu.Segments(self.device, "packed")
        region = layout.region(self.variant.packed_slots, {}, self.variant.id)
        self.packed.fit(region)
        self.packed_places = gpu.segment_places(region)
        self.constants: dict[int, Any] = {}
        names = {c.name: c for c in self.plan.constants}
        for buffer in self.variant.buffers.values():
            if buffer.kind == "constant" and buffer.constant is not None:
                self.constants[buffer.id] = self._upload(buffer, names[buffer.constant])
        if self.variant.prologue:
            self._prologue()
        self.epoch += 1

    def _upload(self, buffer: fmt.Buffer, constant: fmt.Constant) -> Any:
        """A GPU buffer with a constant in the layout and dtype that the variant wants."""
        size = layout.extent(buffer, {})
        target = gpu.make_buffer(self.device, size.bytes, gpu.BUFFER_USAGE, constant.name)
        data = self.bundle.constant(constant)
        dense = size.strides == _dense(size.shape) and size.shape == constant.shape
        if buffer.dtype != constant.dtype or not dense:
            data = _stored(data, constant, size)
        raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        whole = raw.nbytes // 4 * 4
        try:
            if whole:
                self.device.queue.write_buffer(target, 0, raw[:whole])
            if whole < raw.nbytes:
                self.device.queue.write_buffer(target, whole, bytes(raw[whole:]).ljust(4, b"\0"))
        except gpu.gpu_errors() as error:
            raise gpu.translate(error, f"constant {constant.name}") from error
        return target

    def _prologue(self) -> None:
        """Pack the weights, then let go of the canonical ones that no step reads."""
        worker = WebGpuWorker(self)
        dims = {d.name: fmt.align_up(d.min, d.multiple) for d in self.plan.dims}
        worker.run_steps(self.variant.prologue, dims, prologue=True)
        worker.close()
        used = {a for d in _dispatches(self.variant.steps) for a in d.args}
        used |= fmt.control_buffers(self.variant.steps)
        for key in set(self.constants) - used:
            self.constants.pop(key).destroy()

    def alternate(self, step: fmt.Step, prologue: bool) -> fmt.Alternate:
        """The alternate by which a step is done."""
        return step.alternates[_preferred(step, self._prefers) if prologue else self._choice[step.index]]

    def pipeline(self, kernel_id: str, step: int) -> tuple[Any, Any]:
        """The compute pipeline of a kernel and its bind group layout.

        Raises:
            KernelRefused: the driver does not take it.
        """
        if kernel_id not in self.pipelines:
            kernel = self.variant.kernels[kernel_id]
            if kernel_id not in self._texts:
                raise BundleError(f"lacks kernel {kernel_id}", where=self.variant.source)
            try:
                self.pipelines[kernel_id] = self._make_pipeline(kernel, self._texts[kernel_id])
            except gpu.gpu_errors() as error:
                known = gpu.translate(error, f"{self.variant.id}: kernel {kernel_id} of step {step}")
                if isinstance(known, DeviceLost):
                    raise known from error
                raise KernelRefused(known.message, where=known.where, remedy=known.remedy, step=step) from error
        return self.pipelines[kernel_id]

    def _make_pipeline(self, kernel: fmt.Kernel, text: str) -> tuple[Any, Any]:
        kinds = {"read": "read-only-storage", "read_write": "storage"}
        types = [kinds[b] for b in kernel.bindings] + (["uniform"] if kernel.params else [])
        entries = [{"binding": i, "visibility": _COMPUTE, "buffer": {"type": t}} for i, t in enumerate(types)]
        module = gpu.shader_module(self.device, text, kernel.id, self._unchecked and kernel.safe)
        bindings = self.device.create_bind_group_layout(entries=entries)
        pipeline = self.device.create_compute_pipeline(
            label=kernel.id,
            layout=self.device.create_pipeline_layout(bind_group_layouts=[bindings]),
            compute={"module": module, "entry_point": kernel.entry},
        )
        return pipeline, bindings

    def worker(self) -> WebGpuWorker:
        """Memory for a new session."""
        return WebGpuWorker(self)

    def choose(self, step: int, alternate: int) -> None:
        """Use this alternate for a step in workers made from now on."""
        self._choice[step] = alternate

    def choice(self, step: int) -> int:
        """The number of the alternate that a step uses now."""
        return self._choice[step]

    def revive(self) -> None:
        """Make a new device and bring the weights there again, if the present device is really gone."""
        with self.lock:
            try:
                gpu.make_buffer(self.device, 4, gpu.BUFFER_USAGE, "probe").destroy()
            except DeviceLost:
                self._open()

    @property
    def weight_bytes(self) -> int:
        """Bytes of constants and packed weights on the device."""
        return self.packed.bytes + sum(int(b.size) for b in self.constants.values())

    def close(self) -> None:
        """Free the buffers and the device."""
        with self.lock:
            for buffer in self.constants.values():
                buffer.destroy()
            self.constants.clear()
            self.packed.destroy()
            self.device.destroy()


def _preferred(step: fmt.Step, tag: str | None) -> int:
    tags = [a.tag for a in step.alternates]
    return tags.index(tag) if tag in tags else 0


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, at = [], 1
    for extent in reversed(shape):
        strides.append(at)
        at *= extent
    return tuple(reversed(strides))


def _stored(data: Array, constant: fmt.Constant, size: layout.Extent) -> Array:
    limits = host_arrays.value_range(constant.dtype, size.dtype)
    if limits is not None and data.size and (data.min() < limits[0] or data.max() > limits[1]):
        raise DeviceError(
            "has values that this device cannot hold",
            where=f"constant {constant.name}",
            remedy="Use device='c'.",
        )
    memory = host_arrays.allocate(fmt.align_up(size.bytes, 4), constant.name)
    host_arrays.view(memory, 0, size)[...] = data
    return memory


def _dispatches(steps: Steps) -> Iterator[fmt.Dispatch]:
    for step in fmt.flatten(tuple(steps)):
        if isinstance(step, fmt.Step):
            for alternate in step.alternates:
                yield from alternate.dispatches
