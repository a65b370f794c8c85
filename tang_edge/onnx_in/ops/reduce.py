"""Reductions over axes, arg-reductions, and the softmax family."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tang_edge.ir import affine, dtype, scalar
from tang_edge.ir.affine import Expr
from tang_edge.ir.scalar import Scalar, cast, const, op, select
from tang_edge.onnx_in.node import Body, Node
from tang_edge.onnx_in.ops.elementwise import in_f32
from tang_edge.onnx_in.ops.pool import mean
from tang_edge.onnx_in.table import operator
from tang_edge.onnx_in.values import Value


class Over:
    """A reduction of x over some axes: the result's shape and how its coordinates and the reduced ones meet
    in x.
    """

    def __init__(self, x: Value, axes: Sequence[int], keep: bool) -> None:
        self.x, self.axes = x, sorted(set(axes))
        self.extents = [x.shape[a] for a in self.axes]
        kept = [k for k in range(x.rank) if k not in self.axes]
        one = affine.const(1)
        self.shape = [one if k in self.axes else x.shape[k] for k in range(x.rank) if keep or k in kept]
        self.keep, self.kept = keep, kept

    def place(self, c: list[Expr], r: list[Expr]) -> list[Expr]:
        """The coordinates in x of result coordinates c and reduced coordinates r."""
        outer = [c[k] for k in self.kept] if self.keep else c
        put = dict(zip(self.kept, outer, strict=True)) | dict(zip(self.axes, r, strict=True))
        return [put[k] for k in range(self.x.rank)]


def over(n: Node) -> Over | None:
    """The reduction a Reduce* node asks for; None when it asks for none at all."""
    x = n.x()
    axes = n.axes_list(1)
    if not axes:
        if n.attr("noop_with_empty_axes", 0):
            return None
        axes = list(range(x.rank))
    return Over(x, [n.norm_axis(a, x.rank) for a in axes], bool(n.attr("keepdims", 1)))


def _sum(n: Node, ext: Sequence[Expr], lift: Body) -> Scalar:
    return n.sum(ext, lift)


def _extreme(monoid: Callable[..., scalar.Monoid]) -> Callable[[Node, Sequence[Expr], Body], Scalar]:
    def reduction(n: Node, ext: Sequence[Expr], lift: Body) -> Scalar:
        dt = n.x().dtype
        if dt is dtype.boolean:
            return n.reduce(scalar.any_of() if monoid is scalar.max_of else scalar.all_of(), ext, lift)
        return n.reduce(monoid(dt), ext, lift)

    return reduction


def _mean(n: Node, ext: Sequence[Expr], lift: Body) -> Scalar:
    return mean(n, ext, lift)


_Reduction = Callable[[Node, Sequence[Expr], Body], Scalar]
# name -> (what happens to an element first, the reduction, what happens to the result)
_REDUCTIONS: Final[dict[str, tuple[Callable[[Scalar], Scalar], _Reduction, Callable[[Scalar], Scalar]]]] = {
    "ReduceSum": (lambda x: x, _sum, lambda y: y),
    "ReduceMean": (lambda x: x, _mean, lambda y: y),
    "ReduceMax": (lambda x: x, _extreme(scalar.max_of), lambda y: y),
    "ReduceMin": (lambda x: x, _extreme(scalar.min_of), lambda y: y),
    "ReduceProd": (
        lambda x: x,
        lambda n, ext, lift: n.reduce(scalar.product_of(n.x().dtype), ext, lift),
        lambda y: y,
    ),
    "ReduceL1": (lambda x: op("abs", x), _sum, lambda y: y),
    "ReduceL2": (lambda x: x * x, _sum, lambda y: in_f32(y, lambda z: op("sqrt", z))),
    "ReduceSumSquare": (lambda x: x * x, _sum, lambda y: y),
    "ReduceLogSum": (lambda x: x, _sum, lambda y: in_f32(y, lambda z: op("log", z))),
}


@operator(*_REDUCTIONS)
def _reduce(n: Node) -> None:
    x, o = n.x(), over(n)
    before, reduction, after = _REDUCTIONS[n.op]
    if o is None:
        n.map(x, lambda e: after(before(e)))
        return
    n.emit(o.shape, lambda c: after(reduction(n, o.extents, lambda r: before(n.at(x, o.place(c, r))))))


@operator("ReduceLogSumExp")
def _log_sum_exp(n: Node) -> None:
    """max + log(sum(exp(x - max))), with max = 0 where it is infinite."""
    x = n.x()
    o = over(n) or Over(x, [], True)
    top = n.temp("max", o.shape, lambda c: _finite(_row_max(n, o, c)))

    def body(c: list[Expr]) -> Scalar:
        m = n.at(top, c)
        total = n.sum(o.extents, lambda r: op("exp", n.at(x, o.place(c, r)) - m))
        return op("log", total) + m

    n.emit(o.shape, body)


def _finite(m: Scalar) -> Scalar:
    return select(op("isinf", m), const(0, m.dtype), m)


def _row_max(n: Node, o: Over, c: list[Expr]) -> Scalar:
    return n.reduce(scalar.max_of(o.x.dtype), o.extents, lambda r: n.at(o.x, o.place(c, r)))


@operator("ArgMax", "ArgMin")
def _arg(n: Node) -> None:
    x, axis = n.x(), n.axis()
    o = Over(x, [axis], bool(n.attr("keepdims", 1)))
    n.emit(o.shape, lambda c: arg(n, o, c, n.op == "ArgMin", bool(n.attr("select_last_index", 0))))


def arg(n: Node, o: Over, c: list[Expr], least: bool, last: bool = False) -> Scalar:
    """The flat index over the reduced axes of the greatest (or least) element."""

    def lifts(r: list[Expr]) -> tuple[Scalar, Scalar]:
        value = n.at(o.x, o.place(c, r))
        if least:  # ~x reverses the order of integers without overflow
            value = op("not", value) if value.dtype.is_int else -value
        flat = affine.const(0)
        for k, extent in zip(r, o.extents, strict=True):
            flat = flat * extent + k
        return value, scalar.idx(flat)

    return n.index_of(scalar.argmax_of(o.x.dtype, last), o.extents, lifts)


def _softmax_axes(n: Node) -> Over:
    """Opset 13 normalises one axis; before it, the tensor was flattened to two axes and the second
    normalised.
    """
    x = n.x()
    if n.opset >= 13:
        return Over(x, [n.axis(default=-1)], True)
    axis = int(n.attr("axis", 1))
    axis = axis + x.rank if axis < 0 else axis
    return Over(x, range(axis, x.rank), True)


@operator("Softmax", "LogSoftmax")
def _softmax(n: Node) -> None:
    """max, then the sum of exp(x - max), then exp(x - max) / sum."""
    x, o = n.x(), _softmax_axes(n)
    wide = dtype.f32 if x.dtype is dtype.f16 else x.dtype

    def shifted(c: list[Expr], row: list[Expr]) -> Scalar:
        return cast(n.at(x, c), wide) - cast(n.at(top, row), wide)

    def row_of(c: list[Expr]) -> list[Expr]:
        return [affine.const(0) if k in o.axes else e for k, e in enumerate(c)]

    top = n.temp("max", o.shape, lambda c: _row_max(n, o, c))
    total = n.temp("sum", o.shape, lambda c: n.sum(o.extents, lambda r: op("exp", shifted(o.place(c, r), c))))

    def body(c: list[Expr]) -> Scalar:
        row = row_of(c)
        s, d = n.at(total, row), shifted(c, row)
        return cast(op("exp", d) / s if n.op == "Softmax" else d - op("log", s), x.dtype)

    n.emit(x.shape, body)


@operator("Hardmax")
def _hardmax(n: Node) -> None:
    x, o = n.x(), _softmax_axes(n)
    best = n.temp("argmax", o.shape, lambda c: arg(n, o, c, False))

    def body(c: list[Expr]) -> Scalar:
        flat = affine.const(0)
        for a, extent in zip(o.axes, o.extents, strict=True):
            flat = flat * extent + c[a]
        row = [affine.const(0) if k in o.axes else e for k, e in enumerate(c)]
        return cast(op("eq", n.at(best, row), scalar.idx(flat)), x.dtype)

    n.emit(x.shape, body)
