"""GridSample: reads at places that a tensor gives."""

from __future__ import annotations

from itertools import product

from tang_edge.ir import affine, dtype, scalar
from tang_edge.ir.affine import Expr
from tang_edge.ir.scalar import Scalar, cast, const, op, select
from tang_edge.onnx_in.node import Node, number
from tang_edge.onnx_in.ops.resize import cubic_weights
from tang_edge.onnx_in.table import operator

F = dtype.f32


@operator("GridSample", since=16)
def _grid_sample(n: Node) -> None:
    """y[n, c, o...] = x[n, c, place...], where grid[n, o..., :] holds the place in [-1, 1], last axis
    first.
    """
    x, grid = n.x(0), n.x(1)
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(n.attr("mode", "linear"), n.attr("mode", "linear"))
    sizes = x.shape[2:]
    rank = len(sizes)

    def body(c: list[Expr]) -> Scalar:
        places = [
            _unnormalised(n, cast(n.at(grid, [c[0], *c[2:], affine.const(rank - 1 - k)]), F), sizes[k]) for k in range(rank)
        ]
        return cast(_sampled(n, c, places, sizes, mode), x.dtype)

    n.emit([*x.shape[:2], *grid.shape[1:-1]], body)


def _unnormalised(n: Node, g: Scalar, size: Expr) -> Scalar:
    """A place in [-1, 1] as a place in [0, size - 1] (align_corners) or [-1/2, size - 1/2]."""
    extent = number(size, F)
    if n.attr("align_corners", 0):
        return (g + 1.0) * 0.5 * (extent - 1.0)
    return ((g + 1.0) * extent - 1.0) * 0.5


def _sampled(n: Node, c: list[Expr], places: list[Scalar], sizes: tuple[Expr, ...], mode: str) -> Scalar:
    if mode == "nearest":
        return _element(n, c, [_folded(n, op("round", p), s) for p, s in zip(places, sizes, strict=True)], sizes)
    if mode not in ("linear", "cubic"):
        n.fail(f"the mode {mode!r}")
    corners: list[list[tuple[Scalar, Scalar]]] = []
    for p, s in zip(places, sizes, strict=True):
        p = _folded(n, p, s) if mode == "linear" and n.attr("padding_mode", "zeros") != "zeros" else p
        whole = op("floor", p)
        t = p - whole
        weights = [1.0 - t, t] if mode == "linear" else cubic_weights(t, -0.75)
        first = 0.0 if mode == "linear" else -1.0
        corners.append([(_folded(n, whole + (first + k), s), w) for k, w in enumerate(weights)])
    total: Scalar | None = None
    for taps in product(*corners):
        term = _element(n, c, [p for p, _ in taps], sizes)
        for _, w in taps:
            term = term * w
        total = term if total is None else total + term
    assert total is not None
    return total


def _element(n: Node, c: list[Expr], places: list[Scalar], sizes: tuple[Expr, ...]) -> Scalar:
    """x at whole places, 0 outside of it."""
    at = [scalar.gather_index(cast(p, dtype.i32), s) for p, s in zip(places, sizes, strict=True)]
    value = cast(n.at(n.x(0), [*c[:2], *at]), F)
    if n.attr("padding_mode", "zeros") != "zeros":
        return value
    for p, s in zip(places, sizes, strict=True):
        inside = op("and", op("le", const(0.0, F), p), op("lt", p, number(s, F)))
        value = select(inside, value, const(0.0, F))
    return value


def _folded(n: Node, p: Scalar, size: Expr) -> Scalar:
    """A place brought inside by the padding mode: clipped (border) or reflected."""
    how, extent = n.attr("padding_mode", "zeros"), number(size, F)
    if how == "border":
        return op("max", op("min", p, extent - 1.0), const(0.0, F))
    if how == "reflection":
        whole = n.attr("align_corners", 0)
        low = const(0.0 if whole else -0.5, F)
        span = extent - 1.0 if whole else extent
        away = op("abs", p - low)
        turns = op("floor", away / span)
        rest = away - turns * span
        even = op("eq", op("fmod", turns, const(2.0, F)), const(0.0, F))
        folded = select(even, low + rest, low + span - rest)
        return op("max", op("min", folded, extent - 1.0), const(0.0, F)) if not whole else folded
    return p
