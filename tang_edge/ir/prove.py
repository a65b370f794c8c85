"""Proofs that integer expressions are >= 0 where guards hold. One-sided: False means "not proved"."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import lru_cache

from tang_edge.ir import affine
from tang_edge.ir.affine import Atom, Div, Expr, Max, Min, Opaque
from tang_edge.ir.scalar import Const, Idx, Op

DEPTH = 6  # case splits on Min, Max and Opaque in one proof


@lru_cache(maxsize=1 << 15)
def implied(goal: Expr, facts: tuple[Expr, ...] = (), depth: int = DEPTH) -> bool:
    """True when goal >= 0 is proved wherever all facts are >= 0.

    Tried in turn: affine bounds; goal = e // k + rest, turned into an inequality without division; a bound
    in place of Min, Max and clamped Opaque atoms; a·goal + (a - 1) - Σ m·fact >= 0 for small a, m.
    """
    if affine.nonneg(goal) or goal in facts:
        return True
    flat = tuple(undivided(f) for f in facts)
    target = undivided(goal)
    if affine.nonneg(target) or target in flat:
        return True
    if depth > 0:
        for alternatives in _cases(target):
            if all(implied(g, facts, depth - 1) for g in alternatives):
                return True
    return any(affine.nonneg(e) for e in _combinations(target, flat))


@lru_cache(maxsize=1 << 14)
def undivided(e: Expr) -> Expr:
    """An expression that is >= 0 exactly when e is, without divisions that stand alone with coefficient ±1.

    rest + e // k >= 0  iff  k·rest + e >= 0 ;   rest - e // k >= 0  iff  k·rest + k - 1 - e >= 0 .
    """
    for m, c in e.terms:
        if len(m) == 1 and isinstance(m[0], Div) and abs(c) == 1:
            d = m[0]
            rest = e - affine.as_expr(d) * c
            return undivided(rest * d.k + d.e if c > 0 else rest * d.k + (d.k - 1) - d.e)
    return e


def _replace(e: Expr, old: Atom, new: Expr) -> Expr:
    return affine.rebuild(e, lambda a: new if a is old else None)


def _cases(e: Expr) -> Iterator[tuple[Expr, ...]]:
    """Groups of expressions: e >= 0 follows when all of one group are >= 0."""
    for m, c in e.terms:
        if len(m) != 1:
            continue
        a = m[0]
        match a:
            case Min() | Max():
                if isinstance(a, Min) == (c > 0):  # the atom is one of the two, everywhere
                    yield (_replace(e, a, a.a), _replace(e, a, a.b))
                else:
                    yield (e - affine.as_expr(a) * c + a.a * c,)
                    yield (e - affine.as_expr(a) * c + a.b * c,)
            case Opaque() if c < 0:
                top = _upper(a)
                if top is not None and affine.nonneg(top):
                    yield (e - affine.as_expr(a) * c + top * c,)


def _upper(a: Opaque) -> Expr | None:
    """u where the value is max(min(x, u), 0), which is <= u when u >= 0."""
    v = a.value
    if isinstance(v, Op) and v.name == "max" and isinstance(v.args[1], Const) and v.args[1].value == 0:
        inner = v.args[0]
        if isinstance(inner, Op) and inner.name == "min" and isinstance(inner.args[1], Idx):
            return inner.args[1].e
    return None


def _combinations(goal: Expr, facts: tuple[Expr, ...]) -> Iterator[Expr]:
    """Expressions whose non-negativity implies goal >= 0: integers g with a·g + (a - 1) >= 0 are >= 0."""
    for a, used in itertools.product((1, 2), (1, 2)):
        for group in itertools.combinations(facts, used):
            yield goal * a + (a - 1) - sum(group, affine.const(0))
    coefficients = dict(goal.terms)
    for f in facts:
        for m, c in f.terms:
            here = coefficients.get(m, 0) if m else 0
            if here and here % c == 0 and here // c > 1:
                yield goal - f * (here // c)
            elif here and c % here == 0 and c // here > 1:
                yield goal * (c // here) + (c // here - 1) - f
