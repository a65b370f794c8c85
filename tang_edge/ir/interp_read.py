"""Affine reads as strided windows onto a padded array: no index arrays, no copy where nothing is padded."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tang_edge.ir import affine
from tang_edge.ir.affine import Expr, Opaque, Var
from tang_edge.ir.interp_contract import Array, Named
from tang_edge.ir.scalar import View

Linear = tuple[int, dict[Var, int]]  # a constant and the coefficient of each variable


def linear(e: Expr, dims: Mapping[str, int]) -> Linear | None:
    """e as constant + Σ coefficient · Var with the dimensions put in; None when it is not of that form."""
    constant, coefficients = 0, dict[Var, int]()
    for m, c in e.terms:
        axis: Var | None = None
        for a in m:
            if isinstance(a, Var):
                if axis is not None:
                    return None
                axis = a
            elif any(isinstance(b, (Var, Opaque)) for b in affine.atoms(affine.as_expr(a))):
                return None
            else:
                c *= affine.evaluate(affine.as_expr(a), dims)
        if axis is None:
            constant += c
        elif c:
            coefficients[axis] = coefficients.get(axis, 0) + c
    return constant, {v: c for v, c in coefficients.items() if c}


def _complement(n: int, e: Linear) -> Linear:
    """n - 1 - e."""
    return n - 1 - e[0], {v: -c for v, c in e[1].items()}


def strided(
    source: Array,
    view: View,
    windows: Mapping[Var, tuple[int, int]],
    rank: Mapping[Var, int],
    dims: Mapping[str, int],
) -> Named | None:
    """The read as a window onto `source`, padded with the fill where the box of points leaves it.

    None when a coordinate is not affine, when the guard is anything but "this coordinate is in bounds", when
    the box leaves the source at a coordinate without such a guard, or when padding would cost too much.
    """
    coords = [linear(e, dims) for e in view.coords]
    guards = [linear(g, dims) for g in view.guard]
    padding: list[tuple[int, int]] = []
    own: list[Linear] = []
    for c, n in zip(coords, source.shape, strict=True):
        if c is None:
            return None
        own += [c, _complement(n, c)]
        ends = [[k * windows[v][0], k * (windows[v][1] - 1)] for v, k in c[1].items()]
        below = max(0, -(c[0] + sum(map(min, ends))))
        above = max(0, c[0] + sum(map(max, ends)) - (n - 1))
        if (below and c not in guards) or (above and _complement(n, c) not in guards):
            return None
        padding.append((below, above))
    if any(g not in own for g in guards):
        return None
    axes = tuple(sorted({v for c in coords if c for v in c[1]}, key=rank.__getitem__))
    shape = [windows[v][1] - windows[v][0] for v in axes]
    if min(shape, default=1) <= 0:
        return Named(axes, np.zeros([max(0, n) for n in shape], source.dtype))
    padded = _pad(source, padding, view.fill.value if view.fill else 0)
    return None if padded is None else _window(padded, [c for c in coords if c], padding, axes, windows)


def _pad(source: Array, padding: list[tuple[int, int]], fill: float) -> Array | None:
    if not any(b or a for b, a in padding):
        return source
    shape = [n + b + a for n, (b, a) in zip(source.shape, padding, strict=True)]
    if math.prod(shape) > 4 * source.size + 4096:
        return None
    padded = np.full(shape, fill, dtype=source.dtype)
    padded[tuple(slice(b, b + n) for n, (b, _) in zip(source.shape, padding, strict=True))] = source
    return padded


def _window(
    padded: Array,
    coords: list[Linear],
    padding: list[tuple[int, int]],
    axes: tuple[Var, ...],
    windows: Mapping[Var, tuple[int, int]],
) -> Named:
    shape = [windows[v][1] - windows[v][0] for v in axes]
    strides = [sum(c[1].get(v, 0) * s for c, s in zip(coords, padded.strides, strict=True)) for v in axes]
    first = tuple(
        slice(at := c[0] + below + sum(k * windows[v][0] for v, k in c[1].items()), at + 1)
        for c, (below, _) in zip(coords, padding, strict=True)
    )
    corner = padded[first]  # a view of one element: its address is the window's first element
    return Named(axes, as_strided(corner, shape, strides, writeable=False))
