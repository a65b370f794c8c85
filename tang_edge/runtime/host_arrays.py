"""Memory on the host: aligned allocations, strided views, exact conversion at the boundary of a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tang_edge.bundle import format as fmt
from tang_edge.bundle.layout import Extent
from tang_edge.errors import BundleError, DeviceError, InputError

Array = npt.NDArray[Any]


def allocate(size: int, where: str) -> npt.NDArray[np.uint8]:
    """``size`` zeroed bytes whose address is a multiple of 64.

    Raises:
        DeviceError: there is not that much memory.
    """
    try:
        raw = np.zeros(size + fmt.ALIGN, np.uint8)
    except (MemoryError, ValueError) as error:
        raise DeviceError(
            f"cannot allocate {size} bytes of memory", where=where, remedy="Use smaller dimension values."
        ) from error
    skip = -raw.ctypes.data % fmt.ALIGN
    return raw[skip : skip + size]


def view(memory: npt.NDArray[np.uint8], start: int, extent: Extent) -> Array:
    """The tensor of ``extent`` in ``memory``, whose buffer starts at byte ``start`` (bounds were checked)."""
    dtype = fmt.DTYPES[extent.dtype]
    if extent.dtype in fmt.PACKED_4BIT:
        raise BundleError("4-bit tensors cannot be viewed as arrays", where="plan")
    strides = tuple(s * dtype.itemsize for s in extent.strides)
    offset = start + extent.offset * dtype.itemsize
    if 0 in extent.shape:
        return np.zeros(extent.shape, dtype)
    return np.ndarray(extent.shape, dtype, memory, offset, strides)


def check_storable(port: fmt.Port, storage: str, where: str) -> None:
    """Raise BundleError unless a storage dtype holds a port's dtype exactly, or by a checked range."""
    if port.dtype == storage:
        return
    model, held = fmt.DTYPES[port.dtype], fmt.DTYPES[storage]
    floats = {"f16", "f32", "f64"}
    if "bf16" in (port.dtype, storage) or storage in fmt.PACKED_4BIT or storage == "bool":
        good = False
    elif port.dtype in floats or storage in floats:
        good = {port.dtype, storage} <= floats and held.itemsize >= model.itemsize
    else:
        good = True
    if not good:
        raise BundleError(f"{port.dtype} cannot be stored as {storage}", where=f"{where}: {port.name}")


def value_range(dtype: str, storage: str) -> tuple[int, int] | None:
    """The values of integer ``dtype`` that ``storage`` can hold, or None where it holds all of them."""
    model, held = fmt.DTYPES[dtype], fmt.DTYPES[storage]
    if dtype == storage or model.kind not in "iu" or held.kind not in "iu":
        return None
    have, room = np.iinfo(model), np.iinfo(held)
    if have.min >= room.min and have.max <= room.max:
        return None
    return max(int(have.min), int(room.min)), min(int(have.max), int(room.max))


def check_values(name: str, value: Array, low: int, high: int) -> None:
    """Raise InputError where an integer lies outside what the device holds."""
    if value.size and (int(value.min()) < low or int(value.max()) > high):
        raise InputError(
            f"has values in {int(value.min())}..{int(value.max())}; this device holds {low}..{high}",
            where=f"input {name!r}",
            remedy="Use device='c', which holds all integers.",
        )
