"""Bottom-up simplification of expressions on the hash-consed graph, each node once.

At a node: literals are folded (exact operators only, in the node's dtype), integers become affine,
comparisons are decided by bounds, cast chains collapse, `algebra.RULES` apply, reads outside their guard
become the fill, axes of extent 1 vanish.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from tang_edge.ir import affine, scalar
from tang_edge.ir.affine import Atom, Expr, Max, Min, Mod, Opaque, Var
from tang_edge.ir.dtype import DType, Kind
from tang_edge.ir.ops import CAST, OPS
from tang_edge.ir.prove import implied
from tang_edge.ir.scalar import Const, Get, Idx, Op, Read, Scalar
from tang_edge.ir.tensor import Bind, Item, Program, map_items
from tang_edge.rewrite.address import joined
from tang_edge.rewrite.algebra import BY_ROOT
from tang_edge.rewrite.indices import fold_index, index, plain


def simplify_program(program: Program) -> Program:
    """Every bind's expression simplified."""

    def one(item: Item) -> Sequence[Item]:
        return (simplify_bind(item),) if isinstance(item, Bind) else (item,)

    return program.with_items(map_items(program.items, one))


def simplify_bind(bind: Bind) -> Bind:
    """The bind with a simplified expression; axes of extent 1 are 0 in it."""
    expr = simplify(scalar.substitute(bind.expr, _units(bind.axes)))
    return bind if expr is bind.expr else replace(bind, expr=expr)


def _units(axes: Sequence[Var]) -> dict[Var, Expr]:
    return {a: affine.const(0) for a in axes if a.extent.constant == 1}


@lru_cache(maxsize=1 << 17)
def simplify(x: Scalar) -> Scalar:
    """An expression with the same value at every point, simplified."""
    match x:
        case Op():
            args = tuple(simplify(a) for a in x.args)
            return _settle(x if args == x.args else Op(x.name, args, x.dtype))
        case Read():
            return _read(x)
        case Idx():
            e = visit_expr(x.e)
            return index(e, x.dtype) or Idx(e, x.dtype)
        case Get():
            return _get(x)
        case _:
            return x


def visit_expr(e: Expr) -> Expr:
    """e with the scalars in its computed coordinates simplified; those that do not depend on data become
    affine.
    """
    inside = affine.atoms(e)
    if any(isinstance(a, Mod) for a in inside):
        e = joined(e)
    if not any(isinstance(a, (Opaque, Min, Max)) for a in inside):
        return e

    def leaf(a: Atom) -> Expr | None:
        if isinstance(a, (Min, Max)):
            return _decided(a)
        if not isinstance(a, Opaque):
            return None
        inner = Opaque(simplify(a.value), a.lo, a.hi)
        known = plain(inner)
        return affine.as_expr(inner) if known is None else known

    return affine.rebuild(e, leaf)


def _decided(a: Min | Max) -> Expr | None:
    """The operand that a Min or Max always is, where that can be proved."""
    less, more = (a.a, a.b) if isinstance(a, Min) else (a.b, a.a)
    return less if implied(more - less) else more if implied(less - more) else None


def needed(guard: Sequence[Expr]) -> list[Expr]:
    """The guards that are not implied by the others."""
    kept = [g for g in guard if not implied(g)]
    for g in list(kept):
        others = tuple(k for k in kept if k is not g)
        if others and implied(g, others):
            kept.remove(g)
    return kept


def _read(x: Read) -> Scalar:
    guard = needed([visit_expr(g) for g in x.view.guard])
    if x.view.fill is not None and any(affine.nonneg(-g - 1) for g in guard):
        return x.view.fill
    return scalar.read(x.tensor, [visit_expr(e) for e in x.view.coords], x.dtype, guard, x.view.fill)


def _get(x: Get) -> Scalar:
    """fold(i < 1: f(i)) = f(0) : an axis of extent 1 is no axis."""
    c = x.of
    units = _units(c.axes)
    lifts = [simplify(scalar.substitute(y, units)) for y in c.lifts]
    axes = tuple(a for a in c.axes if a not in units)
    if not axes:
        return lifts[x.k]
    if len(axes) == len(c.axes) and all(a is b for a, b in zip(lifts, c.lifts, strict=True)):
        return x
    return Get(scalar.comprehension(axes, c.monoid, lifts), x.k)


def _settle(x: Scalar) -> Scalar:
    """Rewrite the root until nothing applies. Operands are simplified already; what a rule builds is
    simplified anew.
    """
    if not isinstance(x, Op):
        return x
    new = _folded(x) or fold_index(x) or _cast_chain(x)
    if new is None:
        new = next((y for r in BY_ROOT.get(x.name, ()) if (y := r.apply(x)) is not None and y is not x), None)
    return x if new is None else simplify(new)


# ---------------------------------------------------------------- literals


def _folded(x: Op) -> Const | None:
    if not all(isinstance(a, Const) for a in x.args):
        return None
    info = OPS[x.name]
    values = [np.asarray(a.value, dtype=a.dtype.numpy) for a in x.args if isinstance(a, Const)]
    if info.family is CAST:
        return cast_const(x.args[0], x.dtype)
    if not info.exact or (x.name in ("div", "mod", "fmod") and not x.dtype.is_float and values[1] == 0):
        return None
    with np.errstate(all="ignore"):
        result = np.asarray(info.evaluate(*values)).astype(x.dtype.numpy)
    return scalar.const(result.item(), x.dtype)


def cast_const(x: Scalar, to: DType) -> Const | None:
    """The cast of a literal: float to integer truncates and saturates (NaN gives 0), integers wrap, to bool
    is x != 0.
    """
    if not isinstance(x, Const):
        return None
    v = x.value
    if to.kind is Kind.BOOL:
        return scalar.const(bool(v), to)
    if to.is_float:
        with np.errstate(over="ignore"):
            return scalar.const(float(v), to)
    lo, hi = to.limits()
    if x.dtype.is_float:
        if v != v:
            return scalar.const(0, to)
        return scalar.const(lo if v <= lo else hi if v >= hi else int(v), to)
    return scalar.const((int(v) - lo) % (hi - lo + 1) + lo, to)


# ---------------------------------------------------------------- casts


def lossless(a: DType, b: DType) -> bool:
    """Every value of a is a value of b."""
    if a is b:
        return True
    if a.is_float:
        return b.is_float and b.bits > a.bits
    if b.is_float:
        digits = {16: 11, 32: 24, 64: 53}[b.bits]
        return max(abs(v) for v in a.limits()) <= 1 << digits
    (alo, ahi), (blo, bhi) = a.limits(), b.limits()
    return b.kind is not Kind.BOOL and blo <= alo and ahi <= bhi


def _cast_chain(x: Op) -> Scalar | None:
    """cast(cast(x: A, W), B) = cast(x, B) when A -> W loses nothing and A -> B goes by the same rule as W ->
    B.
    """
    if x.name != "cast" or not isinstance(x.args[0], Op) or x.args[0].name != "cast":
        return None
    inner = x.args[0].args[0]
    a, w, b = inner.dtype, x.args[0].dtype, x.dtype
    if not lossless(a, w):
        return None
    same_family = a.is_float == w.is_float or lossless(a, b) or b.is_float or b.kind is Kind.BOOL
    return scalar.cast(inner, b) if same_family else None
