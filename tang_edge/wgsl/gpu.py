"""What the WebGPU device needs of the driver: adapters, devices, errors, memory in segments, shader modules.

``wgpu`` is imported on first use; without it there is simply no adapter, and the reason is said.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from tang_edge.bundle import format as fmt
from tang_edge.bundle import trust
from tang_edge.bundle.layout import Region
from tang_edge.errors import BundleError, DeviceError
from tang_edge.runtime.device import DeviceLost

BUFFER_USAGE = 0x80 | 0x08 | 0x04  # STORAGE, COPY_DST, COPY_SRC
UNIFORM_USAGE = 0x40 | 0x08  # UNIFORM, COPY_DST
READ_USAGE = 0x01 | 0x08  # MAP_READ, COPY_DST
MAX_GRID = 65_535

_FEATURES = {"subgroups": "subgroup"}  # where wgpu spells a WebGPU feature in another way
_BACKENDS = ("Vulkan", "Metal", "D3D12")  # better than OpenGL where one adapter is offered twice
_TYPES = ("DiscreteGPU", "IntegratedGPU", "Unknown", "CPU")


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter: wgpu's object, its name for people, and whether it computes on the CPU."""

    handle: Any
    name: str
    is_cpu: bool


def adapters() -> tuple[list[Adapter], str]:
    """All usable adapters, best first, and the reason in words where there is none."""
    try:
        _runtime_dir()
        import wgpu

        found = list(wgpu.gpu.enumerate_adapters_sync())
    except ImportError:
        return [], "the package wgpu is not installed (pip install wgpu)"
    except (OSError, RuntimeError, AttributeError) as error:
        return [], f"wgpu cannot be used ({str(error)[:200]})"
    ranked = sorted(found, key=_rank)
    usable = [a for a in ranked if a.info.get("backend_type") in _BACKENDS] or ranked
    return [_adapter(a) for a in usable], "" if usable else "no WebGPU adapter (is a Vulkan driver installed?)"


def _runtime_dir() -> None:
    # without it some drivers complain on standard error at every start
    if os.name == "posix" and not os.environ.get("XDG_RUNTIME_DIR"):
        with contextlib.suppress(BundleError):  # no folder: they complain, nothing worse
            os.environ["XDG_RUNTIME_DIR"] = str(trust.private_dir(trust.cache_dir() / "run"))


def _rank(adapter: Any) -> tuple[int, int]:
    kind, backend = adapter.info.get("adapter_type", ""), adapter.info.get("backend_type", "")
    return (
        _TYPES.index(kind) if kind in _TYPES else len(_TYPES),
        _BACKENDS.index(backend) if backend in _BACKENDS else len(_BACKENDS),
    )


def _adapter(handle: Any) -> Adapter:
    info = handle.info
    name = f"{info.get('device') or info.get('description') or 'unnamed'} ({info.get('backend_type', '?')})"
    return Adapter(handle, name, info.get("adapter_type") == "CPU")


def limit_key(name: str) -> str:
    """A limit's name without its spelling: ``maxBufferSize`` and ``max-buffer-size`` agree."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _limits(adapter: Adapter) -> dict[str, tuple[str, int]]:
    """By key: the adapter's spelling and value of each limit."""
    return {limit_key(k): (k, int(v)) for k, v in adapter.handle.limits.items()}


def lacks(adapter: Adapter, variant: fmt.Variant) -> str:
    """Why the adapter cannot run the variant, in words; empty where it can."""
    offered = adapter.handle.features
    for feature in variant.features:
        if _FEATURES.get(feature, feature) not in offered:
            return f"it lacks the feature {feature}"
    limits = _limits(adapter)
    for name, need in variant.limits.items():
        key = limit_key(name)
        if key not in limits:
            return f"it does not know the limit {name}"
        have = limits[key][1]
        if (have > need) if key.startswith("min") else (have < need):
            return f"its {name} is {have}, the variant needs {need}"
    return ""


def open_device(adapter: Adapter, variant: fmt.Variant) -> Any:
    """A new device with what the variant needs.

    Raises:
        DeviceError: the driver refuses.
    """
    offered = _limits(adapter)
    wanted = {limit_key(k): v for k, v in variant.limits.items() if not limit_key(k).startswith("min")}
    # constants and segments may exceed the guaranteed sizes where the adapter allows it
    for key in ("maxbuffersize", "maxstoragebufferbindingsize"):
        wanted[key] = max(wanted.get(key, 0), offered[key][1])
    try:
        import wgpu

        # a device is made by a fresh adapter object each time: some drivers spend it on the first device
        fresh = [a for a in wgpu.gpu.enumerate_adapters_sync() if a.info == adapter.handle.info]
        return (fresh or [adapter.handle])[0].request_device_sync(
            label="tang-edge",
            required_features=[_FEATURES.get(f, f) for f in variant.features],
            required_limits={offered[k][0]: v for k, v in wanted.items()},
        )
    except Exception as error:  # wgpu raises a dozen kinds here, and all mean that there is no device
        raise DeviceError(
            f"the driver gives no device ({_brief(error)})", where=adapter.name, remedy="Try device='c'."
        ) from error


def gpu_errors() -> tuple[type[Exception], ...]:
    """The exceptions that wgpu raises for driver and validation errors."""
    import wgpu

    kinds: tuple[type[Exception], ...] = (wgpu.GPUError, wgpu.GPUPipelineError, RuntimeError)
    return kinds


def translate(error: Exception, where: str) -> DeviceError:
    """One of wgpu's exceptions as ours."""
    text = _brief(error)
    if "lost" in text.lower() and "device" in text.lower():
        return DeviceLost(f"the GPU device was lost ({text})", where=where)
    if isinstance(error, MemoryError) or "out of memory" in text.lower():
        return DeviceError(f"out of GPU memory ({text})", where=where, remedy="Use smaller dimension values or device='c'.")
    return DeviceError(
        f"the driver refused ({text})",
        where=where,
        remedy="Try device='c' or update the driver, and report this.",
    )


def _brief(error: Exception) -> str:
    return " ".join(str(error).split())[:800]


def make_buffer(device: Any, size: int, usage: int, label: str) -> Any:
    """A GPU buffer of at least ``size`` bytes (a multiple of 4).

    Raises:
        DeviceError: the driver has no room for it.
    """
    try:
        return device.create_buffer(size=max(4, fmt.align_up(size, 4)), usage=usage, label=label)
    except gpu_errors() as error:
        raise translate(error, f"buffer {label} of {size} bytes") from error


def check_binding(device: Any, name: str, size: int) -> None:
    """Raise DeviceError where a buffer is larger than what the device can bind: the sizes of this run are too great for it."""
    most = int(device.limits["max-storage-buffer-binding-size"])
    if size > most:
        raise DeviceError(
            f"takes {size:,} bytes at these sizes, this device binds {most:,} at most",
            where=f"tensor {name!r}",
            remedy="Run with smaller sizes, or use device='c'.",
        )


class Segments:
    """Slots spread over GPU buffers of at most 128 MiB each (a slot never straddles; a larger one is alone).

    Buffers grow to the largest sizes asked for and never shrink. WebGPU gives them zeroed.
    """

    def __init__(self, device: Any, label: str) -> None:
        self._device = device
        self._label = label
        self.buffers: list[Any] = []

    def fit(self, region: Region, alone: Collection[int] = ()) -> bool:
        """Make room for the region; whether buffers changed (everything bound to them must be made anew)."""
        changed = False
        for index, need in enumerate(segment_sizes(region, alone)):
            if index < len(self.buffers) and self.buffers[index].size >= need:
                continue
            buffer = make_buffer(self._device, need, BUFFER_USAGE, f"{self._label} {index}")
            if index < len(self.buffers):
                self.buffers[index].destroy()
                self.buffers[index] = buffer
            else:
                self.buffers.append(buffer)
            changed = True
        return changed

    @property
    def bytes(self) -> int:
        """Bytes of all buffers."""
        return sum(int(b.size) for b in self.buffers)

    def destroy(self) -> None:
        """Free the buffers."""
        for buffer in self.buffers:
            buffer.destroy()
        self.buffers = []


def segment_places(region: Region, alone: Collection[int] = ()) -> list[tuple[int, int]]:
    """Of each slot, its segment and the byte offset in it. Slots in ``alone`` have a segment of their own."""
    places: list[tuple[int, int]] = []
    count, current, at = 0, -1, 0
    for slot, size in enumerate(region.sizes):
        if slot in alone:
            places.append((count, 0))
            count += 1
            continue
        if current < 0 or (at and at + size > fmt.SEGMENT_BYTES):
            current, at, count = count, 0, count + 1
        places.append((current, at))
        at += size
    return places


def segment_sizes(region: Region, alone: Collection[int] = ()) -> list[int]:
    """Bytes of each segment."""
    sizes: dict[int, int] = {}
    for (segment, at), size in zip(segment_places(region, alone), region.sizes, strict=True):
        sizes[segment] = max(sizes.get(segment, 0), at + max(size, fmt.SLOT_ALIGN))
    return [sizes[k] for k in range(len(sizes))]


def split_source(text: str) -> dict[str, str]:
    """The kernels of a WGSL member: what follows each ``//@kernel <id>`` line."""
    result: dict[str, str] = {}
    for section in re.split(r"(?m)^//@kernel[ \t]+", text)[1:]:
        head, _, body = section.partition("\n")
        result[head.strip()] = body
    return result


def shader_module(device: Any, code: str, label: str, unchecked: bool) -> Any:
    """A shader module; without the driver's run-time checks if asked for and offered.

    Unchecked modules are for kernels whose accesses are proven to be in bounds, of bundles that are trusted.
    """
    if unchecked:
        module = _unchecked_module(device, code, label)
        if module is not None:
            return module
    return device.create_shader_module(code=code, label=label)


def _unchecked_module(device: Any, code: str, label: str) -> Any:
    """wgpu-native's module without run-time checks, None where this wgpu does not offer it."""
    try:
        from wgpu.backends.wgpu_native import _api, ffi, lib

        create = _api.libf.wgpuDeviceCreateShaderModuleTrusted  # libf raises what the driver reports
        text = ffi.new("char[]", code.encode())
        name = ffi.new("char[]", label.encode())
        source = ffi.new("WGPUShaderSourceWGSL *")
        source.chain.sType = lib.WGPUSType_ShaderSourceWGSL
        source.code.data, source.code.length = text, len(code.encode())
        descriptor = ffi.new("WGPUShaderModuleDescriptor *")
        descriptor.nextInChain = ffi.cast("WGPUChainedStruct *", source)
        descriptor.label.data, descriptor.label.length = name, len(label.encode())
        handle = create(device._internal, descriptor, 0)
        return _api.GPUShaderModule(label, handle, device) if handle != ffi.NULL else None
    except (ImportError, AttributeError, TypeError):
        return None


def pack_params(values: Mapping[int, list[int]], align: int) -> tuple[dict[int, int], bytes]:
    """Parameter lists laid out in one uniform buffer: the offset of each, and the bytes."""
    offsets: dict[int, int] = {}
    data = bytearray()
    for key, numbers in values.items():
        data += bytes(fmt.align_up(len(data), align) - len(data))
        offsets[key] = len(data)
        for number in numbers:
            data += number.to_bytes(4, "little", signed=True)
        data += bytes(fmt.align_up(len(data), 16) - len(data))
    return offsets, bytes(data)
