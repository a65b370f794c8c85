"""Arrays with named axes, and sums of products of them by matrix multiplication.

A `Named` array has one NumPy axis for each of its variables, in the order of `rank`. It may leave out any
axis along which it is constant, so operands stay as small as they are until they meet.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tang_edge.ir.affine import Var

Array = Any  # an ndarray of any dtype; the arithmetic below is dtype-generic


@dataclass(frozen=True, slots=True)
class Named:
    """An array whose axes are variables, sorted by rank."""

    axes: tuple[Var, ...]
    data: Array


def union(values: Sequence[Named], rank: Mapping[Var, int]) -> tuple[Var, ...]:
    """The axes of all the values, sorted by rank."""
    return tuple(sorted({a for v in values for a in v.axes}, key=rank.__getitem__))


def aligned(value: Named, axes: Sequence[Var]) -> Array:
    """The data with one axis for each of `axes` (a superset, in order), size 1 where the value has none."""
    if value.axes == tuple(axes):
        return value.data
    return value.data[tuple(slice(None) if a in value.axes else None for a in axes)]


def combine(fn: Callable[..., Array], values: Sequence[Named], rank: Mapping[Var, int]) -> Named:
    """fn applied point by point."""
    axes = values[0].axes
    if all(v.axes == axes for v in values):
        return Named(axes, np.asarray(fn(*(v.data for v in values))))
    axes = union(values, rank)
    return Named(axes, np.asarray(fn(*(aligned(v, axes) for v in values))))


def squeeze(value: Named) -> Named:
    """The value without its axes of size 1."""
    keep = [k for k, n in enumerate(value.data.shape) if n != 1]
    if len(keep) == len(value.axes):
        return value
    index = tuple(slice(None) if n != 1 else 0 for n in value.data.shape)
    return Named(tuple(value.axes[k] for k in keep), np.asarray(value.data[index]))


def contract(factors: Sequence[Named], sizes: Mapping[Var, int], rank: Mapping[Var, int]) -> Named:
    """The sum over the axes in `sizes` of the product of the factors, not forming the last product.

    float16 products are accumulated in float32 and rounded once; integers wrap as their dtype does.
    """
    parts = list(factors)
    while len(parts) > 2:
        i, j = min(itertools.combinations(range(len(parts)), 2), key=lambda p: _volume(parts, p, rank))
        merged = combine(np.multiply, (parts[i], parts[j]), rank)
        parts = [p for k, p in enumerate(parts) if k not in (i, j)] + [merged]
    half = parts[0].data.dtype == np.float16
    if half:
        parts = [Named(p.axes, p.data.astype(np.float32)) for p in parts]
    a, b = parts
    a = _sum_out(a, [v for v in a.axes if v in sizes and v not in b.axes])
    b = _sum_out(b, [v for v in b.axes if v in sizes and v not in a.axes])
    absent = math.prod(n for v, n in sizes.items() if v not in factors_axes(factors))
    out = _matmul(a, b, [v for v in a.axes if v in sizes], rank)
    data = out.data if absent == 1 else out.data * np.asarray(absent).astype(out.data.dtype)
    return Named(out.axes, data.astype(np.float16) if half else data)


def factors_axes(factors: Sequence[Named]) -> frozenset[Var]:
    """All axes of the factors."""
    return frozenset(a for f in factors for a in f.axes)


def _volume(parts: Sequence[Named], pair: tuple[int, int], rank: Mapping[Var, int]) -> int:
    extent: dict[Var, int] = {}
    for k in pair:
        extent.update(zip(parts[k].axes, parts[k].data.shape, strict=True))
    return math.prod(extent.values())


def _sum_out(value: Named, axes: Sequence[Var]) -> Named:
    if not axes:
        return value
    where = tuple(value.axes.index(a) for a in axes)
    data = np.add.reduce(value.data, axis=where, dtype=value.data.dtype)
    return Named(tuple(a for a in value.axes if a not in axes), np.asarray(data))


def _matmul(a: Named, b: Named, summed: Sequence[Var], rank: Mapping[Var, int]) -> Named:
    """[batch, m, k] @ [batch, k, n]."""
    batch = [v for v in a.axes if v in b.axes and v not in summed]
    m = [v for v in a.axes if v not in b.axes]
    n = [v for v in b.axes if v not in a.axes]
    left = _matrix(a, batch, m, summed)
    right = _matrix(b, batch, summed, n)
    size = dict(zip(a.axes + b.axes, a.data.shape + b.data.shape, strict=True))
    axes = (*batch, *m, *n)
    data = _product(left, right).reshape([size[v] for v in axes])
    order = sorted(range(len(axes)), key=lambda k: rank[axes[k]])
    return Named(tuple(axes[k] for k in order), data.transpose(order))


def _product(left: Array, right: Array) -> Array:
    """left @ right; integers go through float64 (fast) where that is exact, else wrap as NumPy does."""
    kind = left.dtype
    if kind.kind not in "iu" or not left.size or not right.size:
        return np.matmul(left, right)
    x, y = left.astype(np.float64), right.astype(np.float64)
    if float(np.abs(x).max()) * float(np.abs(y).max()) * left.shape[-1] >= 2.0**53:
        return np.matmul(left, right)
    return np.matmul(x, y).astype(np.int64).astype(kind)


def _matrix(value: Named, batch: Sequence[Var], rows: Sequence[Var], columns: Sequence[Var]) -> Array:
    """The data as [batch, rows, columns].

    The group with the least stride is made the inner one of the copy, so that it runs fast.
    """
    stride = dict(zip(value.axes, np.abs(value.data.strides), strict=True))
    size = dict(zip(value.axes, value.data.shape, strict=True))
    least = min((*rows, *columns), key=lambda v: stride[v] if size[v] > 1 else 1 << 62, default=None)
    first, second = (columns, rows) if least in rows else (rows, columns)
    order = [value.axes.index(v) for v in (*batch, *first, *second)]
    shape = [math.prod(size[v] for v in group) for group in (batch, first, second)]
    matrix = value.data.transpose(order).reshape(shape)
    return matrix.swapaxes(1, 2) if least in rows else matrix
