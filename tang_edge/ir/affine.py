"""Integer expressions: construction and arithmetic (from `affine_core`), and the questions asked of them.

Import this module: it carries the whole interface.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache

from tang_edge.ir.affine_core import UNBOUNDED as UNBOUNDED
from tang_edge.ir.affine_core import Atom as Atom
from tang_edge.ir.affine_core import Dim as Dim
from tang_edge.ir.affine_core import Div as Div
from tang_edge.ir.affine_core import Expr as Expr
from tang_edge.ir.affine_core import Max as Max
from tang_edge.ir.affine_core import Min as Min
from tang_edge.ir.affine_core import Mod as Mod
from tang_edge.ir.affine_core import Monomial as Monomial
from tang_edge.ir.affine_core import Opaque as Opaque
from tang_edge.ir.affine_core import Var as Var
from tang_edge.ir.affine_core import as_expr as as_expr
from tang_edge.ir.affine_core import bounds as bounds
from tang_edge.ir.affine_core import const as const
from tang_edge.ir.affine_core import dim as dim
from tang_edge.ir.affine_core import floordiv as floordiv
from tang_edge.ir.affine_core import merge as merge
from tang_edge.ir.affine_core import mod as mod
from tang_edge.ir.affine_core import multiple_of as multiple_of
from tang_edge.ir.affine_core import text_of as text_of
from tang_edge.ir.affine_core import var as var


def minimum(a: Expr | int, b: Expr | int) -> Expr:
    """min(a, b), decided where the bounds tell."""
    x, y = as_expr(a), as_expr(b)
    if nonneg(y - x):
        return x
    if nonneg(x - y):
        return y
    return as_expr(Min(*sorted((x, y), key=str)))


def maximum(a: Expr | int, b: Expr | int) -> Expr:
    """max(a, b), decided where the bounds tell."""
    x, y = as_expr(a), as_expr(b)
    if nonneg(x - y):
        return x
    if nonneg(y - x):
        return y
    return as_expr(Max(*sorted((x, y), key=str)))


@lru_cache(maxsize=1 << 16)
def nonneg(e: Expr) -> bool:
    """True when e >= 0 is proved for all values of its variables and dimensions; False means "not proved".

    A Var that occurs linearly is set to the end of its range that makes e least, symbolically, so that extents cancel:
    n - 1 - i >= 0 because i <= n - 1. Then k * (a // k) is relaxed to a or a - k + 1, and intervals decide.
    """
    for _ in range(16):
        if bounds(e)[0] >= 0:
            return True
        step = _lower_one(e)
        if step is None:
            return False
        e = step
    return bounds(e)[0] >= 0


def _lower_one(e: Expr) -> Expr | None:
    """An expression that is nowhere greater than e, with one Var or Div fewer; None when there is none to remove."""
    for v in sorted(variables(e), key=lambda v: v.key, reverse=True):
        c = linear_coefficient(e, v)
        if c is None:
            continue
        lo, hi = bounds(c)
        if lo >= 0:
            return substitute(e, {v: const(0)})
        if hi <= 0:
            return substitute(e, {v: v.extent - 1})
    for m, count in e.terms:
        if len(m) == 1 and isinstance(m[0], Div) and count % m[0].k == 0:
            d, scale = m[0], count // m[0].k
            rest = e - Expr(((m, count),))
            return rest + d.e * scale if scale < 0 else rest + (d.e - (d.k - 1)) * scale
    return None


@lru_cache(maxsize=1 << 16)
def atoms(e: Expr) -> frozenset[Atom]:
    """All atoms of e, those under Div, Mod, Min and Max included (not those inside Opaque scalars)."""
    found: set[Atom] = set()
    for m, _ in e.terms:
        for a in m:
            found.add(a)
            if isinstance(a, (Div, Mod)):
                found |= atoms(a.e)
            elif isinstance(a, (Min, Max)):
                found |= atoms(a.a) | atoms(a.b)
    return frozenset(found)


@lru_cache(maxsize=1 << 16)
def variables(e: Expr) -> frozenset[Var]:
    """The axis variables of e (not those inside Opaque scalars)."""
    return frozenset(a for a in atoms(e) if isinstance(a, Var))


@lru_cache(maxsize=1 << 16)
def dims(e: Expr) -> frozenset[Dim]:
    """The named dimensions of e."""
    return frozenset(a for a in atoms(e) if isinstance(a, Dim))


def linear_coefficient(e: Expr, v: Var) -> Expr | None:
    """c with e = c·v + (terms without v), or None when v occurs otherwise (squared, or under Div, Mod, Min, Max)."""
    coefficient: list[tuple[Monomial, int]] = []
    for m, c in e.terms:
        n = m.count(v)
        inside = any(v in atoms(as_expr(a)) for a in m if a is not v)
        if n > 1 or inside:
            return None
        if n:
            coefficient.append((tuple(a for a in m if a is not v), c))
    return merge(coefficient)


def rebuild(e: Expr, leaf: Callable[[Atom], Expr | None]) -> Expr:
    """e with each atom a replaced by leaf(a); where leaf gives None, Div, Mod, Min and Max are rebuilt from their parts."""
    terms: list[tuple[Monomial, int]] = []
    changed = False
    for m, c in e.terms:
        made = [_rebuild_atom(a, leaf) for a in m]
        if all(x is None for x in made):
            terms.append((m, c))
            continue
        changed = True
        product = const(c)
        for a, x in zip(m, made, strict=True):
            product = product * (as_expr(a) if x is None else x)
        terms.extend(product.terms)
    return merge(terms) if changed else e


def _rebuild_atom(a: Atom, leaf: Callable[[Atom], Expr | None]) -> Expr | None:
    """What takes the place of an atom, None for the atom itself."""
    new = leaf(a)
    if new is not None:
        return new
    match a:
        case Div() | Mod():
            inner = rebuild(a.e, leaf)
            if inner is a.e:
                return None
            return floordiv(inner, a.k) if isinstance(a, Div) else mod(inner, a.k)
        case Min() | Max():
            x, y = rebuild(a.a, leaf), rebuild(a.b, leaf)
            if x is a.a and y is a.b:
                return None
            return minimum(x, y) if isinstance(a, Min) else maximum(x, y)
        case _:
            return None


def substitute(e: Expr, mapping: Mapping[Var, Expr]) -> Expr:
    """e with variables replaced (Opaque atoms are left: `scalar.substitute` handles expressions that hold scalars)."""
    if not mapping or not any(v in mapping for v in variables(e)):
        return e
    return rebuild(e, lambda a: mapping.get(a) if isinstance(a, Var) else None)


def evaluate(e: Expr, values: Mapping[str, int]) -> int:
    """The value of e where `values` gives each Var and Dim by name; raises KeyError for a missing one."""
    return sum(c * math.prod(_evaluate_atom(a, values) for a in m) for m, c in e.terms)


def _evaluate_atom(a: Atom, values: Mapping[str, int]) -> int:
    match a:
        case Var():
            return values[a.name]
        case Dim():
            return values[a.name] // a.multiple
        case Div():
            return evaluate(a.e, values) // a.k
        case Mod():
            return evaluate(a.e, values) % a.k
        case Min():
            return min(evaluate(a.a, values), evaluate(a.b, values))
        case Max():
            return max(evaluate(a.a, values), evaluate(a.b, values))
        case Opaque():
            raise TypeError(f"{a} is known only where its data is")
