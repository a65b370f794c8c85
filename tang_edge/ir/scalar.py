"""Scalar expressions: nodes and operators (from `scalar_core`), reads and reductions, traversal, substitution, monoids.

Import this module: it carries the whole interface.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from tang_edge.ir import affine
from tang_edge.ir.affine import Expr, Opaque, Var
from tang_edge.ir.dtype import DType, boolean, i64
from tang_edge.ir.scalar_core import Comprehension as Comprehension
from tang_edge.ir.scalar_core import Const as Const
from tang_edge.ir.scalar_core import Get as Get
from tang_edge.ir.scalar_core import Idx as Idx
from tang_edge.ir.scalar_core import Monoid as Monoid
from tang_edge.ir.scalar_core import Number as Number
from tang_edge.ir.scalar_core import Op as Op
from tang_edge.ir.scalar_core import Read as Read
from tang_edge.ir.scalar_core import Scalar as Scalar
from tang_edge.ir.scalar_core import St as St
from tang_edge.ir.scalar_core import View as View
from tang_edge.ir.scalar_core import binary as binary
from tang_edge.ir.scalar_core import cast as cast
from tang_edge.ir.scalar_core import const as const
from tang_edge.ir.scalar_core import idx as idx
from tang_edge.ir.scalar_core import op as op
from tang_edge.ir.scalar_core import select as select


def read(
    tensor: str,
    coords: Sequence[Expr | Var | int],
    dtype: DType,
    guard: Sequence[Expr] = (),
    fill: Const | None = None,
) -> Read:
    """An element of a tensor. Guards proved true are dropped."""
    kept = tuple(sorted({g for g in guard if not affine.nonneg(g)}, key=str))
    return Read(tensor, View(tuple(map(affine.as_expr, coords)), kept, fill if kept else None), dtype)


def gather_index(value: Scalar, extent: Expr) -> Expr:
    """An integer scalar as a coordinate in [0, extent): the value is clamped to it, so no read is ever out of bounds."""
    hi = affine.bounds(extent)[1] - 1
    top = Idx(extent - 1, value.dtype)
    clamped = op("max", op("min", value, top), const(0, value.dtype))
    return affine.as_expr(Opaque(clamped, 0, hi))


_fresh = itertools.count()


def fresh(extent: Expr | int, hint: str = "t") -> Var:
    """A variable that occurs nowhere else."""
    return Var(f"{hint}'{next(_fresh)}", affine.as_expr(extent))


def comprehension(axes: Sequence[Var], monoid: Monoid, lifts: Sequence[Scalar]) -> Comprehension:
    """The reduction of lifts over axes, closed: its axes are renamed r{height}_{position}, heights counted from the inside."""
    h = max((height(x) for x in lifts), default=0)
    # A canonical name may be free here while its own binder is open; it must not be captured. Closing that binder
    # substitutes it, which opens and closes this one again under its canonical name.
    inside = frozenset[Var]().union(*(free(x) for x in lifts)) - frozenset(axes)
    taken = {v.name for v in inside.union(*(affine.variables(a.extent) for a in axes))}
    while any(f"r{h}_{k}" in taken for k in range(len(axes))):
        h += 1
    closed = tuple(Var(f"r{h}_{k}", a.extent) for k, a in enumerate(axes))
    mapping = {a: affine.as_expr(c) for a, c in zip(axes, closed, strict=True) if a is not c}
    return Comprehension(closed, monoid, tuple(substitute(x, mapping) for x in lifts))


def opened(c: Comprehension) -> tuple[tuple[Var, ...], tuple[Scalar, ...]]:
    """The axes and lifts of a comprehension with fresh names in place of the canonical ones."""
    axes = tuple(fresh(a.extent, a.name) for a in c.axes)
    mapping = {a: affine.as_expr(b) for a, b in zip(c.axes, axes, strict=True)}
    return axes, tuple(substitute(x, mapping) for x in c.lifts)


# ---------------------------------------------------------------- traversal


@lru_cache(maxsize=1 << 17)
def height(x: Scalar) -> int:
    """How many comprehensions are nested in x: 0 for none."""
    match x:
        case Get():
            return 1 + max(height(y) for y in x.of.lifts)
        case _:
            return max((height(y) for y in children(x)), default=0)


def _in_exprs(es: Sequence[Expr]) -> tuple[Scalar, ...]:
    return tuple(a.value for e in es for a in sorted(affine.atoms(e), key=lambda a: a.key) if isinstance(a, Opaque))


def children(x: Scalar) -> tuple[Scalar, ...]:
    """The scalars directly under x: operands, lifts of a comprehension, computed coordinates."""
    match x:
        case Op():
            return x.args
        case Idx():
            return _in_exprs((x.e,))
        case Read():
            return _in_exprs(x.view.coords + x.view.guard)
        case Get():
            return x.of.lifts
        case Const() | St():
            return ()


@lru_cache(maxsize=1 << 17)
def free(x: Scalar) -> frozenset[Var]:
    """The axis variables free in x."""
    found: set[Var] = set()
    match x:
        case Idx():
            found |= affine.variables(x.e)
        case Read():
            for e in x.view.coords + x.view.guard:
                found |= affine.variables(e)
        case Get():
            inner = frozenset[Var]().union(*(free(y) for y in x.of.lifts)) - frozenset(x.of.axes)
            return inner.union(*(affine.variables(a.extent) for a in x.of.axes))
        case _:
            pass
    return frozenset(found).union(*(free(y) for y in children(x)))


@lru_cache(maxsize=1 << 17)
def reads(x: Scalar) -> frozenset[Read]:
    """Every Read in x, those in lifts and computed coordinates included (their views may mention bound axes)."""
    here = frozenset((x,)) if isinstance(x, Read) else frozenset[Read]()
    return here.union(*(reads(y) for y in children(x)))


@lru_cache(maxsize=1 << 17)
def comprehensions(x: Scalar) -> frozenset[Comprehension]:
    """Every comprehension in x, nested ones included."""
    here = frozenset((x.of,)) if isinstance(x, Get) else frozenset[Comprehension]()
    return here.union(*(comprehensions(y) for y in children(x)))


def rebuild(x: Scalar, visit: Callable[[Scalar], Scalar]) -> Scalar:
    """x with each child y replaced by visit(y); binders are opened first and closed again after."""
    match x:
        case Op():
            args = tuple(visit(a) for a in x.args)
            return x if args == x.args else Op(x.name, args, x.dtype)
        case Idx():
            return Idx(_visit_expr(x.e, visit), x.dtype)
        case Read():
            v = x.view
            if not _in_exprs(v.coords + v.guard):
                return x
            coords = [_visit_expr(e, visit) for e in v.coords]
            return read(x.tensor, coords, x.dtype, [_visit_expr(g, visit) for g in v.guard], v.fill)
        case Get():
            axes, lifts = opened(x.of)
            return Get(comprehension(axes, x.of.monoid, tuple(visit(y) for y in lifts)), x.k)
        case Const() | St():
            return x


def _visit_expr(e: Expr, visit: Callable[[Scalar], Scalar]) -> Expr:
    def leaf(a: affine.Atom) -> Expr | None:
        return affine.as_expr(Opaque(visit(a.value), a.lo, a.hi)) if isinstance(a, Opaque) else None

    return affine.rebuild(e, leaf) if any(isinstance(a, Opaque) for a in affine.atoms(e)) else e


def substitute(x: Scalar, mapping: Mapping[Var, Expr]) -> Scalar:
    """x with free axis variables replaced by expressions. Capture-free: binders that could clash are opened first."""
    memo: dict[Scalar, Scalar] = {}

    def go(y: Scalar) -> Scalar:
        if not mapping or free(y).isdisjoint(mapping):
            return y
        if y not in memo:
            memo[y] = step(y)
        return memo[y]

    def expr(e: Expr) -> Expr:
        def leaf(a: affine.Atom) -> Expr | None:
            if isinstance(a, Var):
                return mapping.get(a)
            return affine.as_expr(Opaque(go(a.value), a.lo, a.hi)) if isinstance(a, Opaque) else None

        return affine.rebuild(e, leaf)

    def step(y: Scalar) -> Scalar:
        match y:
            case Idx():
                return Idx(expr(y.e), y.dtype)
            case Read():
                v = y.view
                return read(y.tensor, [expr(e) for e in v.coords], y.dtype, [expr(g) for g in v.guard], v.fill)
            case Get():
                axes, lifts = opened(y.of)
                axes_new = tuple(Var(a.name, expr(a.extent)) for a in axes)
                renamed = {a: affine.as_expr(b) for a, b in zip(axes, axes_new, strict=True) if a is not b}
                inner = [substitute(go(z), renamed) for z in lifts]
                return Get(comprehension(axes_new, y.of.monoid, inner), y.k)
            case _:
                return rebuild(y, go)

    return go(x)


# ---------------------------------------------------------------- monoids


def _simple(name: str, opname: str, identity: Number, dtype: DType, exact: bool) -> Monoid:
    return Monoid(name, (const(identity, dtype),), (op(opname, St("l", 0, dtype), St("r", 0, dtype)),), True, exact)


def sum_of(dtype: DType) -> Monoid:
    """(+, 0)."""
    return _simple("sum", "add", 0, dtype, not dtype.is_float)


def product_of(dtype: DType) -> Monoid:
    """(*, 1)."""
    return _simple("product", "mul", 1, dtype, not dtype.is_float)


def max_of(dtype: DType) -> Monoid:
    """(max, least value)."""
    low: Number = float("-inf") if dtype.is_float else dtype.limits()[0]
    return _simple("max", "max", low, dtype, True)


def min_of(dtype: DType) -> Monoid:
    """(min, greatest value)."""
    high: Number = float("inf") if dtype.is_float else dtype.limits()[1]
    return _simple("min", "min", high, dtype, True)


def any_of() -> Monoid:
    """(or, false)."""
    return _simple("any", "or", False, boolean, True)


def all_of() -> Monoid:
    """(and, true)."""
    return _simple("all", "and", True, boolean, True)


def argmax_of(dtype: DType, last: bool = False) -> Monoid:
    """(value, index): the greatest value and the first (or last) index that has it; empty: (least value, -1)."""
    low: Number = float("-inf") if dtype.is_float else dtype.limits()[0]
    lv, rv, li, ri = St("l", 0, dtype), St("r", 0, dtype), St("l", 1, i64), St("r", 1, i64)
    tie = op("le" if last else "lt", ri if not last else li, li if not last else ri)
    better = op("or", op("lt", lv, rv), op("and", op("eq", lv, rv), op("and", tie, op("le", const(0, i64), ri))))
    take = op("or", better, op("lt", li, const(0, i64)))
    name = "argmax_last" if last else "argmax"
    return Monoid(name, (const(low, dtype), const(-1, i64)), (select(take, rv, lv), select(take, ri, li)), True, True)


def reduce(monoid: Monoid, axes: Sequence[Var], *lifts: Scalar) -> Scalar:
    """Component 0 of the reduction of lifts over axes."""
    return Get(comprehension(axes, monoid, lifts), 0)
