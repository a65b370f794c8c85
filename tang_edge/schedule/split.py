"""A reduction in two deterministic passes, for when there are too few outputs to fill a device.

    F(o) = ⊕_{r<n} f(o, r)   =   ⊕_{b<B} P(b, o)        P(b, o) = ⊕_{j<L} f(o, L·b + j),   L = ⌈n/B⌉

Elements past n are the monoid's identity. The order within a block and of the blocks is fixed, so results repeat bit for bit.
"""

from __future__ import annotations

from dataclasses import replace

from tang_edge.ir import affine, scalar
from tang_edge.ir.affine import Expr, Var
from tang_edge.ir.dtype import i32
from tang_edge.ir.scalar import Comprehension, Get, Read, Scalar
from tang_edge.ir.tensor import Bind, out_axes
from tang_edge.schedule.analysis import typical
from tang_edge.schedule.pack import replace_read

FEW_OUTPUTS = 4096  # below, a pass over the outputs alone leaves a large GPU idle
LONG = 2048  # reduced elements from which a second pass pays
BLOCK = 64  # reduced elements of a block, about
MOST_BLOCKS = 32


def iterations(fold: Comprehension) -> int:
    """The greatest number of turns that one invocation's serial loops over the fold may take."""
    n = 1
    for a in fold.axes:
        n *= max(1, affine.bounds(a.extent)[1])
    return n


def applies(fold: Comprehension) -> bool:
    """One state component, and no reduction inside the lift."""
    return len(fold.lifts) == 1 and scalar.height(fold.lifts[0]) == 0


def worth(bind: Bind, fold: Comprehension) -> Var | None:
    """The axis to split, or None where two passes would not pay or the rule does not apply (several state components)."""
    free = scalar.free(Get(fold, 0))
    outputs = work = 1
    for a in bind.axes:
        outputs *= typical(a.extent) if a in free else 1
    for a in fold.axes:
        work *= typical(a.extent)
    axis = longest(fold)
    return axis if applies(fold) and outputs <= FEW_OUTPUTS and work >= LONG and typical(axis.extent) >= 2 else None


def longest(fold: Comprehension) -> Var:
    """The axis of the greatest typical size."""
    return max(fold.axes, key=lambda a: typical(a.extent))


def split_reduction(bind: Bind, fold: Comprehension, axis: Var, most: int) -> tuple[Bind, Bind]:
    """The bind of the partial states and the bind that combines them (its own name and expression otherwise).

    There are enough blocks for no invocation to take more than about `most` turns at the greatest sizes.
    """
    n = axis.extent
    blocks = max(2, min(MOST_BLOCKS, typical(n) // BLOCK or 2, typical(n)), -(-2 * iterations(fold) // most))
    length = (n + (blocks - 1)) // blocks
    free = scalar.free(Get(fold, 0))
    outs = [a for a in bind.axes if a in free]
    axes = out_axes([affine.const(blocks), *(a.extent for a in outs)])
    inner = scalar.fresh(length)
    at = affine.as_expr(axes[0]) * length + affine.as_expr(inner)
    opened = {a: scalar.fresh(a.extent) for a in fold.axes if a is not axis}
    mapping = {axis: at} | {o: affine.as_expr(v) for o, v in zip(outs, axes[1:], strict=True)}
    mapping |= {a: affine.as_expr(v) for a, v in opened.items()}
    lift = _within(scalar.substitute(fold.lifts[0], mapping), n - 1 - at, fold)
    order = [inner if a is axis else opened[a] for a in fold.axes]
    name = f"{bind.name}|part"
    part = Bind(name, axes, scalar.reduce(fold.monoid, order, lift), None, bind.origin)
    k = scalar.fresh(blocks)
    whole = scalar.reduce(fold.monoid, [k], scalar.read(name, [k, *outs], part.expr.dtype))
    return part, replace(bind, expr=replace_read(bind.expr, Get(fold, 0), whole))


def _within(lift: Scalar, left: Expr, fold: Comprehension) -> Scalar:
    """lift where left >= 0, the identity elsewhere, reading nothing there."""
    if affine.nonneg(left):
        return lift
    for r in sorted(scalar.reads(lift), key=str):
        guarded = Read(r.tensor, _guarded(r, left), r.dtype)
        lift = replace_read(lift, r, guarded)
    inside = scalar.op("le", scalar.const(0, i32), scalar.idx(left, i32))
    return scalar.select(inside, lift, fold.monoid.identity[0])


def _guarded(r: Read, left: Expr) -> scalar.View:
    fill = r.view.fill if r.view.fill is not None else scalar.const(0, r.dtype)
    return scalar.View(r.view.coords, tuple(sorted({*r.view.guard, left}, key=str)), fill)
