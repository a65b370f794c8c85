"""Where the buffers of a variant lie for given dimension values; the generated C computes the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import mul

from tang_edge.bundle import format as fmt
from tang_edge.bundle.expr import Expr, compile_expr
from tang_edge.errors import BundleError

Evaluator = Callable[[Mapping[str, int]], int]


@dataclass(frozen=True, slots=True)
class Extent:
    """A buffer or a step's tensor with its sizes as numbers: elements, and bytes from the buffer's start."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int  # elements
    bytes: int  # of the whole buffer


@dataclass(frozen=True, slots=True)
class Region:
    """Slot offsets and sizes in bytes, and the bytes of the whole (each slot aligned to 256)."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    total: int


def region(slots: tuple[Expr, ...], dims: Mapping[str, int], where: str) -> Region:
    """The slots in order, each aligned to 256 bytes.

    Raises:
        BundleError: a size is negative.
    """
    offsets, sizes, at = [], [], 0
    for expr in slots:
        size = fmt.align_up(evaluate_size(expr, dims, where), fmt.SLOT_ALIGN)
        offsets.append(at)
        sizes.append(size)
        at += size
    return Region(tuple(offsets), tuple(sizes), at)


def evaluate_size(expr: Expr, dims: Mapping[str, int], where: str) -> int:
    """The value of a size expression that must not be negative."""
    value = compile_expr(expr)(dims)
    if value < 0:
        raise BundleError(f"a size is negative for {dict(dims)}", where=where)
    return value


def extent(buffer: fmt.Buffer, dims: Mapping[str, int], writes: fmt.Writes | None = None) -> Extent:
    """The numbers of a buffer (or of what a step writes into it), checked to stay inside the buffer.

    Raises:
        BundleError: an element would lie outside.
    """
    where = f"buffer {buffer.name or buffer.id}"
    source = writes if writes is not None else buffer
    shape = tuple(evaluate_size(e, dims, where) for e in source.shape)
    strides = tuple(evaluate_size(e, dims, where) for e in source.strides)
    offset = evaluate_size(writes.offset, dims, where) if writes is not None else 0
    size = evaluate_size(buffer.bytes, dims, where)
    last = offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    if 0 not in shape and fmt.storage_bytes(buffer.dtype, last + 1) > size:
        raise BundleError(f"its elements do not fit its {size} bytes for {dict(dims)}", where=where)
    return Extent(buffer.dtype, shape, strides, offset, size)


def check_slots(variant: fmt.Variant, dims: Mapping[str, int], arena: Region, packed: Region) -> None:
    """Check that every buffer fits its slot.

    Raises:
        BundleError: one does not.
    """
    for buffer in variant.buffers.values():
        if buffer.slot is not None:
            room = (packed if buffer.kind == "packed" else arena).sizes[buffer.slot]
            if evaluate_size(buffer.bytes, dims, variant.id) > room:
                raise BundleError(f"buffer {buffer.name or buffer.id} is larger than its slot", where=variant.id)


def elements(shape: tuple[int, ...]) -> int:
    """Number of elements of a shape."""
    return reduce(mul, shape, 1)


def constant_bytes(plan: fmt.Plan) -> int:
    """Bytes of all canonical weights."""
    return sum(fmt.storage_bytes(c.dtype, elements(c.shape)) for c in plan.constants)


RESERVE = 64 << 20
"""Bytes of an arena that a session takes for its greatest sizes from the start, so that it never grows; a larger one grows."""


def greatest_dims(plan: fmt.Plan) -> dict[str, int]:
    """The greatest legal value of each dimension, constraints aside."""
    return {d.name: d.max // d.multiple * d.multiple for d in plan.dims}


def reserved(plan: fmt.Plan, variant: fmt.Variant) -> Region | None:
    """The arena for the greatest sizes where that is at most RESERVE bytes, else None."""
    try:
        whole = region(variant.slots, greatest_dims(plan), variant.id)
    except BundleError:  # beyond what sizes can express: such an arena grows with what is asked
        return None
    return whole if whole.total <= RESERVE else None


def peak_bytes(variant: fmt.Variant, dims: Mapping[str, int]) -> int:
    """Bytes of weights as they are stored there, packed weights and arena, for one session at these dimension values."""
    weights = sum(evaluate_size(b.bytes, {}, variant.id) for b in variant.buffers.values() if b.kind == "constant")
    arena = region(variant.slots, dims, variant.id)
    packed = region(variant.packed_slots, {}, variant.id)
    return weights + packed.total + arena.total
