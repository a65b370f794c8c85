"""Recognising concatenation: a chain of selects, by one output axis, over guarded reads.

select(i < o1, A0[i], select(i < o2, A1[i - o1], ... An[i - on]))
"""

from __future__ import annotations

from dataclasses import dataclass

from tang_edge.ir import affine
from tang_edge.ir.affine import Expr, Var
from tang_edge.ir.scalar import Op, Scalar
from tang_edge.rewrite.indices import as_index


@dataclass(frozen=True, slots=True)
class Piece:
    """`value` on start <= axis < end."""

    value: Scalar
    start: Expr
    end: Expr


@dataclass(frozen=True, slots=True)
class Concat:
    """Pieces side by side along one axis, in order, covering it."""

    axis: Var
    pieces: tuple[Piece, ...]


def is_concat(x: Scalar) -> bool:
    """True when x is a concatenation of at least two pieces."""
    return concat_of(x) is not None


def concat_of(x: Scalar) -> Concat | None:
    """x as a concatenation, or None."""
    found: list[tuple[Var, Expr, Scalar]] = []
    while isinstance(x, Op) and x.name == "select" and (bound := _axis_below(x.args[0])) is not None:
        found.append((*bound, x.args[1]))
        x = x.args[2]
    if not found or any(v is not found[0][0] for v, _, _ in found):
        return None
    axis, start = found[0][0], affine.const(0)
    pieces: list[Piece] = []
    for _, end, value in found:
        if not affine.nonneg(end - start):
            return None
        pieces.append(Piece(value, start, end))
        start = end
    if not affine.nonneg(axis.extent - start):
        return None
    return Concat(axis, (*pieces, Piece(x, start, axis.extent)))


def _axis_below(cond: Scalar) -> tuple[Var, Expr] | None:
    """(axis, bound) when cond is `axis < bound` for one axis with coefficient 1."""
    if not isinstance(cond, Op) or cond.name not in ("lt", "le"):
        return None
    a, b = as_index(cond.args[0]), as_index(cond.args[1])
    if a is None or b is None:
        return None
    gap = b - a if cond.name == "lt" else b - a + 1  # the condition is gap > 0
    axes = affine.variables(gap)
    if len(axes) != 1:
        return None
    (axis,) = axes
    c = affine.linear_coefficient(gap, axis)
    return (axis, gap + affine.as_expr(axis)) if c is not None and c.constant == -1 else None
