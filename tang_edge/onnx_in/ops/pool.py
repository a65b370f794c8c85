"""Pooling: reductions over windows, and over whole spatial extents."""

from __future__ import annotations

from collections.abc import Sequence

from tang_edge.ir import affine, scalar
from tang_edge.ir.affine import Expr
from tang_edge.ir.dtype import DType
from tang_edge.ir.scalar import Scalar, op
from tang_edge.onnx_in.node import Body, Node, number
from tang_edge.onnx_in.ops.arithmetic import power
from tang_edge.onnx_in.ops.conv import Window, windows
from tang_edge.onnx_in.table import operator
from tang_edge.onnx_in.values import Value


def lowest(dt: DType) -> float | int:
    """The identity of max."""
    return float("-inf") if dt.is_float else dt.limits()[0]


def _pooled(n: Node) -> tuple[Value, list[Window], list[Expr]]:
    x = n.x()
    if x.rank < 3:
        n.fail(f"a pool over {x}", "Pools need batch, channel and spatial axes")
    ws = windows(n, x.shape[2:], [int(k) for k in n.attr("kernel_shape")])
    ceil = bool(n.attr("ceil_mode", 0))
    return x, ws, [*x.shape[:2], *(w.count(ceil) for w in ws)]


def _inside(
    n: Node, x: Value, ws: Sequence[Window], c: list[Expr], r: list[Expr], fill: float | int
) -> tuple[Scalar, list[Expr]]:
    """The element under tap r of window c, `fill` in the padding, and its place."""
    places = [w.place(i, k) for w, i, k in zip(ws, c[2:], r, strict=True)]
    guard = [g for w, p in zip(ws, places, strict=True) for g in w.guard(p)]
    return n.at(x, [*c[:2], *places], guard, fill), places


def _kernel(ws: Sequence[Window]) -> list[Expr]:
    return [affine.const(w.kernel) for w in ws]


@operator("MaxPool")
def _max_pool(n: Node) -> None:
    x, ws, shape = _pooled(n)
    fill = lowest(x.dtype)
    monoid = scalar.max_of(x.dtype)
    n.emit(shape, lambda c: n.reduce(monoid, _kernel(ws), lambda r: _inside(n, x, ws, c, r, fill)[0]))
    if n.wants(1):
        n.emit(shape, lambda c: _max_index(n, x, ws, c), 1)


def _max_index(n: Node, x: Value, ws: list[Window], c: list[Expr]) -> Scalar:
    """The flat index (over all axes of x) of the greatest element of window c."""
    column_major = bool(n.attr("storage_order", 0))

    def lifts(r: list[Expr]) -> tuple[Scalar, Scalar]:
        value, places = _inside(n, x, ws, c, r, lowest(x.dtype))
        spatial, flat = list(zip(places, x.shape[2:], strict=True)), affine.const(0)
        for p, extent in reversed(spatial) if column_major else spatial:
            flat = flat * extent + p
        area = affine.const(1)
        for extent in x.shape[2:]:
            area = area * extent
        return value, scalar.idx((c[0] * x.shape[1] + c[1]) * area + flat)

    return n.index_of(scalar.argmax_of(x.dtype), _kernel(ws), lifts)


@operator("AveragePool")
def _average_pool(n: Node) -> None:
    x, ws, shape = _pooled(n)
    whole = bool(n.attr("count_include_pad", 0))

    def body(c: list[Expr]) -> Scalar:
        total = n.sum(_kernel(ws), lambda r: _inside(n, x, ws, c, r, 0)[0])
        count: Expr = affine.const(1)
        for w, i in zip(ws, c[2:], strict=True):
            count = count * _taps(w, i, whole)
        return total / number(count, x.dtype)

    n.emit(shape, body)


def _taps(w: Window, i: Expr, whole: bool) -> Expr:
    """How many taps of window i lie in the tensor (or, with `whole`, in the padded tensor)."""
    start = w.start(i)
    end = w.extent + w.after if whole else w.extent
    high = affine.minimum(affine.floordiv(end - 1 - start, w.dilation) + 1, w.kernel)
    if whole:
        return high
    return high - affine.maximum(affine.floordiv(w.dilation - 1 - start, w.dilation), 0)


@operator("LpPool")
def _lp_pool(n: Node) -> None:
    x, ws, shape = _pooled(n)
    p = float(n.attr("p", 2))
    n.emit(shape, lambda c: _root(n.sum(_kernel(ws), lambda r: _powered(_inside(n, x, ws, c, r, 0)[0], p)), p))


def _powered(x: Scalar, p: float) -> Scalar:
    return op("abs", x) if p == 1 else power(x if p == 2 else op("abs", x), scalar.const(p, x.dtype))


def _root(x: Scalar, p: float) -> Scalar:
    return x if p == 1 else power(x, scalar.const(1 / p, x.dtype))


@operator("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def _global_pool(n: Node) -> None:
    x = n.x()
    spatial = list(x.shape[2:])
    ones = [affine.const(1)] * len(spatial)
    p = float(n.attr("p", 2))

    def body(c: list[Expr]) -> Scalar:
        if n.op == "GlobalMaxPool":
            return n.reduce(scalar.max_of(x.dtype), spatial, lambda r: n.at(x, [*c[:2], *r]))
        if n.op == "GlobalLpPool":
            return _root(n.sum(spatial, lambda r: _powered(n.at(x, [*c[:2], *r]), p)), p)
        return mean(n, spatial, lambda r: n.at(x, [*c[:2], *r]))

    n.emit([*x.shape[:2], *ones], body)


def mean(n: Node, extents: Sequence[Expr], lift: Body) -> Scalar:
    """The mean of lift(coords) over coords in extents."""
    total = n.sum(extents, lift)
    count = affine.const(1)
    for e in extents:
        count = count * e
    return total / number(count, total.dtype) if count.constant != 1 else total
