"""Prefix reductions: a comprehension whose extent mentions an output axis."""

from __future__ import annotations

from tang_edge.ir import affine, scalar
from tang_edge.ir.affine import Expr
from tang_edge.ir.scalar import Scalar
from tang_edge.onnx_in.node import Node
from tang_edge.onnx_in.table import operator


@operator("CumSum", since=11)
@operator("CumProd", since=26)
def _cumulative(n: Node) -> None:
    """y[i] reduces x[j] over j <= i (exclusive: j < i; reverse: j >= i or j > i)."""
    x = n.x()
    data = n.constant(1, "the axis")
    axis = n.norm_axis(0 if data is None else int(data.ravel()[0]), x.rank)
    exclusive, backward = int(n.attr("exclusive", 0)), bool(n.attr("reverse", 0))
    monoid = scalar.sum_of(x.dtype) if n.op == "CumSum" else scalar.product_of(x.dtype)

    def body(c: list[Expr]) -> Scalar:
        i = c[axis]
        count = x.shape[axis] - i - exclusive if backward else i + (1 - exclusive)
        j = scalar.fresh(count, "j")
        at = list(c)
        at[axis] = i + exclusive + affine.as_expr(j) if backward else affine.as_expr(j)
        return scalar.reduce(monoid, [j], n.at(x, at))

    n.emit(x.shape, body)
