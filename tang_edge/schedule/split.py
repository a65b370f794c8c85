"""A reduction in two deterministic passes: for too few outputs to fill a device, or more turns than a loop may take.

    F(o) = ⊕_{r<n} f(o, r)   =   ⊕_{b<B} P(b, o)        P(b, o) = ⊕_{j<L} f(o, L·b + j),   L = ⌈n/B⌉

Elements past n are the monoid's identity. A state of several components has a bind of partial states for each. A prefix whose
elements do not depend on where it ends shares the sums of whole blocks:

    F(i) = ⊕_{r<e(i)} f(r)   =   ⊕_{b<e(i)//L} S(b)  ⊕  ⊕_{j<e(i)%L} f(L·(e(i)//L) + j)        S(b) = ⊕_{j<L} f(L·b + j)

Where the combine is commutative, r -> e(i) - 1 - r may be what frees the elements of i (sums from i to the end). The order
within a block and of the blocks is fixed, so results repeat bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tang_edge.errors import TargetLimit
from tang_edge.ir import affine, scalar
from tang_edge.ir.affine import Expr, Var
from tang_edge.ir.dtype import i32
from tang_edge.ir.scalar import Comprehension, Get, Scalar, St
from tang_edge.ir.tensor import Bind, out_axes
from tang_edge.rewrite.inline import with_guard
from tang_edge.schedule.analysis import outer_folds, typical

FEW_OUTPUTS = 4096  # below, a pass over the outputs alone leaves a large GPU idle
LONG = 2048  # reduced elements from which a second pass pays
BLOCK = 64  # reduced elements of a block, about
MOST_BLOCKS = 32


def iterations(fold: Comprehension) -> int:
    """The greatest number of turns that one invocation's serial loops over the fold may take, loops inside it included."""
    n = 1
    for a in fold.axes:
        n *= max(1, affine.bounds(a.extent)[1])
    inside = {c for y in fold.lifts for c in outer_folds(y)}
    return n * max(1, sum(map(iterations, inside)))


def turns(x: Scalar) -> int:
    """The turns of all loops that one invocation runs to compute x."""
    return sum(map(iterations, outer_folds(x)))


def worth(bind: Bind, fold: Comprehension) -> Var | None:
    """The axis to split, or None where two passes would not pay."""
    free = scalar.free(Get(fold, 0))
    outputs = work = 1
    for a in bind.axes:
        outputs *= typical(a.extent) if a in free else 1
    for a in fold.axes:
        work *= typical(a.extent)
    axis = _longest(fold)
    plain = not any(scalar.height(y) for y in fold.lifts)
    return axis if plain and outputs <= FEW_OUTPUTS and work >= LONG and typical(axis.extent) >= 2 else None


def _longest(fold: Comprehension) -> Var:
    """The axis of the greatest typical size; the outermost where the order of the elements counts."""
    able = fold.axes if fold.monoid.commutative else fold.axes[:1]
    return max(able, key=lambda a: (typical(a.extent), affine.bounds(a.extent)[1]))


def within_turns(bind: Bind, most: int) -> tuple[tuple[Bind, ...], Bind]:
    """Binds of partial states, in order, and the bind that uses them: no invocation of any takes more than `most` turns.

    Raises TargetLimit where no split helps.
    """
    before: list[Bind] = []
    while turns(bind.expr) > most:
        fold = max(outer_folds(bind.expr), key=lambda c: (iterations(c), str(c)))
        parts, bind = _prefix(bind, fold, len(before)) or split_reduction(bind, fold, _longest(fold), most, len(before))
        if any(turns(p.expr) >= iterations(fold) for p in parts):
            raise TargetLimit(
                f"a reduction of up to {iterations(fold):,} elements takes more turns than this class of devices allows",
                where=str(bind.origin[-1]) if bind.origin else bind.name,
                remedy="Narrow the range of the inputs' dimensions (--dim name=lo..hi).",
            )
        for p in parts:
            first, last = within_turns(p, most)
            before += [*first, last]
    return tuple(before), bind


def split_reduction(bind: Bind, fold: Comprehension, axis: Var, most: int, count: int = 0) -> tuple[tuple[Bind, ...], Bind]:
    """The binds of the partial states and the bind that combines them (its own name and expression otherwise).

    There are enough blocks for no invocation to take more than about `most` turns at the greatest sizes. `count` partial
    states of the bind have names already.
    """
    prefix = any(affine.variables(a.extent) for a in fold.axes)
    n = affine.const(affine.bounds(axis.extent)[1]) if prefix else axis.extent
    blocks = max(2, min(MOST_BLOCKS, typical(n) // BLOCK or 2, typical(n)), -(-2 * iterations(fold) // most))
    blocks = min(blocks, max(2, affine.bounds(n)[1]))
    length = (n + (blocks - 1)) // blocks
    free = scalar.free(Get(fold, 0))
    outs = [a for a in bind.axes if a in free]
    axes = out_axes([affine.const(blocks), *(a.extent for a in outs)])
    moved = {o: affine.as_expr(v) for o, v in zip(outs, axes[1:], strict=True)}
    inner = scalar.fresh(length)
    at = affine.as_expr(axes[0]) * length + affine.as_expr(inner)
    left = affine.substitute(axis.extent, moved) - 1 - at
    parts = _partial(bind, fold, axes, {axis: (inner, at)}, moved, left, count)
    k = scalar.fresh(blocks)
    whole = scalar.comprehension([k], fold.monoid, [scalar.read(p.name, [k, *outs], p.expr.dtype) for p in parts])
    new: dict[Scalar, Scalar] = {Get(fold, c): Get(whole, c) for c in range(len(fold.lifts))}
    return parts, replace(bind, expr=_swapped(bind.expr, new))


def _partial(
    bind: Bind,
    fold: Comprehension,
    axes: Sequence[Var],
    block: Mapping[Var, tuple[Var, Expr]],
    moved: Mapping[Var, Expr],
    left: Expr,
    count: int,
) -> tuple[Bind, ...]:
    """A bind for each component of the state, reducing a block: `block` gives the axis that is cut, its place in the block and
    the element; elements where left < 0 are left out.
    """
    opened = {a: scalar.fresh(affine.substitute(a.extent, moved)) for a in fold.axes if a not in block}
    mapping = {**moved, **{a: e for a, (_, e) in block.items()}, **{a: affine.as_expr(v) for a, v in opened.items()}}
    lifts = [_within(scalar.substitute(y, mapping), left, one) for y, one in zip(fold.lifts, fold.monoid.identity, strict=True)]
    made = scalar.comprehension([block[a][0] if a in block else opened[a] for a in fold.axes], fold.monoid, lifts)
    names = [f"{bind.name}|part{count + k or ''}" for k in range(len(lifts))]
    return tuple(Bind(name, tuple(axes), Get(made, k), None, bind.origin) for k, name in enumerate(names))


def _within(lift: Scalar, left: Expr, identity: scalar.Const) -> Scalar:
    """lift where left >= 0, the identity elsewhere, reading nothing there."""
    if affine.nonneg(left):
        return lift
    inside = scalar.op("le", scalar.const(0, i32), scalar.idx(left, i32))
    return scalar.select(inside, with_guard(lift, (left,), scalar.const(0, lift.dtype)), identity)


def _swapped(x: Scalar, new: Mapping[Scalar, Scalar]) -> Scalar:
    """x with nodes outside comprehensions replaced."""
    memo: dict[Scalar, Scalar] = dict(new)

    def go(y: Scalar) -> Scalar:
        if y not in memo:
            memo[y] = y if isinstance(y, Get) else scalar.rebuild(y, go)
        return memo[y]

    return go(x)


# ---------------------------------------------------------------- prefixes


def _prefix(bind: Bind, fold: Comprehension, count: int) -> tuple[tuple[Bind, ...], Bind] | None:
    """The rule for prefixes; None where the fold is none, or its elements depend on where it ends."""
    ends = [a for a in fold.axes if affine.variables(a.extent)]
    if len(ends) != 1 or not (fold.monoid.commutative or fold.axes[0] is ends[0]):
        return None
    (axis,) = ends
    lifts = _free_of_end(fold, axis)
    top = _greatest(axis.extent)
    if lifts is None or top is None:
        return None
    hi = affine.bounds(top)[1]
    length = max(2, math.isqrt(hi * hi // max(1, iterations(fold))))  # as many blocks as turns in a block
    used = frozenset[Var]().union(*(scalar.free(y) for y in lifts)) - set(fold.axes)
    outs = [a for a in bind.axes if a in used]
    axes = out_axes([(top + (length - 1)) // length, *(a.extent for a in outs)])
    moved = {o: affine.as_expr(v) for o, v in zip(outs, axes[1:], strict=True)}
    inner = scalar.fresh(length)
    at = affine.as_expr(axes[0]) * length + affine.as_expr(inner)
    free = Comprehension(fold.axes, fold.monoid, lifts)
    parts = _partial(bind, free, axes, {axis: (inner, at)}, moved, top - 1 - at, count)
    end = affine.maximum(axis.extent, affine.const(0))
    blocks = _whole_blocks(fold, parts, end // length, outs)
    rest = _rest(free, axis, end, length)
    new: dict[Scalar, Scalar] = {}
    for k, e in enumerate(fold.monoid.combine):
        new[Get(fold, k)] = _combined(e, blocks, rest)
    return parts, replace(bind, expr=_swapped(bind.expr, new))


def _free_of_end(fold: Comprehension, axis: Var) -> tuple[Scalar, ...] | None:
    """The lifts, in the order of the axis or the other way round, where they do not mention what the extent mentions."""
    bad = affine.variables(axis.extent)
    if not any(scalar.free(y) & bad for y in fold.lifts):
        return fold.lifts
    if not fold.monoid.commutative:
        return None
    back = {axis: axis.extent - 1 - affine.as_expr(axis)}
    lifts = tuple(scalar.substitute(y, back) for y in fold.lifts)
    return None if any(scalar.free(y) & bad for y in lifts) else lifts


def _greatest(e: Expr) -> Expr | None:
    """The greatest value of e over its variables; None where it is not plainly monotonic in them."""
    for v in sorted(affine.variables(e), key=lambda v: v.key):
        c = affine.linear_coefficient(e, v)
        lo, hi = affine.bounds(c) if c is not None else (-1, 1)
        if lo < 0 < hi:
            return None
        e = affine.substitute(e, {v: v.extent - 1 if lo >= 0 else affine.const(0)})
    return e


def _whole_blocks(fold: Comprehension, parts: Sequence[Bind], count: Expr, outs: Sequence[Var]) -> Comprehension:
    b = scalar.fresh(count)
    return scalar.comprehension([b], fold.monoid, [scalar.read(p.name, [b, *outs], p.expr.dtype) for p in parts])


def _rest(free: Comprehension, axis: Var, end: Expr, length: int) -> Comprehension:
    """The elements behind the last whole block."""
    opened = {a: scalar.fresh(affine.mod(end, length) if a is axis else a.extent) for a in free.axes}
    mapping = {a: affine.as_expr(v) for a, v in opened.items()}
    mapping[axis] = end // length * length + mapping[axis]
    return scalar.comprehension(list(opened.values()), free.monoid, [scalar.substitute(y, mapping) for y in free.lifts])


def _combined(e: Scalar, left: Comprehension, right: Comprehension) -> Scalar:
    """A component of combine(left, right)."""
    if isinstance(e, St):
        return Get(left if e.side == "l" else right, e.k)
    return scalar.rebuild(e, lambda y: _combined(y, left, right))
