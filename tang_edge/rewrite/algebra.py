"""The scalar equations that `simplify` applies: all exact (see `rules` for the laws).

Not here, on purpose: x + 0.0 = x (it is 0.0 for x = -0.0, so the bits change; x + -0.0 = x and x - 0.0 = x
are exact); x * 0 = 0 for floats (NaN and infinity); x / c = x * (1/c) unless 1/c is exact (c a power of two).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from tang_edge.ir.scalar import Const, Scalar
from tang_edge.rewrite.rules import Bool, Float, Int, Lit, Rule, Term, by_root, recorder, term

RULES: list[Rule] = []
rule = recorder(RULES)


def least(a: Term, b: Term) -> Term:
    """min(a, b)."""
    return term("min", a, b)


def greatest(a: Term, b: Term) -> Term:
    """max(a, b)."""
    return term("max", a, b)


def choose(c: Term, a: Term, b: Term) -> Term:
    """select(c, a, b)."""
    return term("select", c, a, b)


def _reciprocal_exact(bound: Mapping[str, Scalar]) -> bool:
    """The divisor is a power of two with a normal reciprocal in the dtype."""
    c = bound["1"]
    if not isinstance(c, Const) or not math.isfinite(c.value) or c.value == 0:
        return False
    return abs(math.frexp(c.value)[0]) == 0.5 and 2.0**-13 <= abs(c.value) <= 2.0**13


@rule("x * 1 = x")
def mul_one(x: Term) -> tuple[Term, Term]:
    return x * 1, x


@rule("x / 1 = x")
def div_one(x: Term) -> tuple[Term, Term]:
    return x / 1, x


@rule("x / 2^k = x * 2^-k", where=_reciprocal_exact)
def div_power_of_two(x: Float, c: Lit) -> tuple[Term, Term]:
    return x / c, x * term("div", 1, c)


@rule("x + 0 = x (integers)")
def add_zero_int(x: Int) -> tuple[Term, Term]:
    return x + 0, x


@rule("x + -0.0 = x")
def add_minus_zero(x: Float) -> tuple[Term, Term]:
    return x + -0.0, x


@rule("x - 0 = x")
def sub_zero(x: Term) -> tuple[Term, Term]:
    return x - 0, x


@rule("x * 0 = 0 (integers)")
def mul_zero_int(x: Int) -> tuple[Term, int]:
    return x * 0, 0


@rule("x - x = 0 (integers)")
def sub_self(x: Int) -> tuple[Term, int]:
    return x - x, 0


@rule("x + (-y) = x - y")
def add_neg(x: Term, y: Term) -> tuple[Term, Term]:
    return x + -y, x - y


@rule("x - (-y) = x + y")
def sub_neg(x: Term, y: Term) -> tuple[Term, Term]:
    return x - -y, x + y


@rule("-(-x) = x")
def neg_neg(x: Term) -> tuple[Term, Term]:
    return term("neg", -x), x


@rule("x ** 1 = x")
def pow_one(x: Float) -> tuple[Term, Term]:
    return x**1, x


@rule("x ** 2 = x * x")
def pow_two(x: Float) -> tuple[Term, Term]:
    return x**2, x * x


@rule("abs(abs(x)) = abs(x)")
def abs_abs(x: Term) -> tuple[Term, Term]:
    return term("abs", term("abs", x)), term("abs", x)


@rule("abs(-x) = abs(x) (floats)")
def abs_neg(x: Float) -> tuple[Term, Term]:
    return term("abs", -x), term("abs", x)


@rule("max(x, x) = x")
def max_self(x: Term) -> tuple[Term, Term]:
    return greatest(x, x), x


@rule("min(x, x) = x")
def min_self(x: Term) -> tuple[Term, Term]:
    return least(x, x), x


@rule("max(max(x, c), d) = max(x, max(c, d))")
def max_max(x: Term, c: Lit, d: Lit) -> tuple[Term, Term]:
    return greatest(greatest(x, c), d), greatest(x, greatest(c, d))


@rule("min(min(x, c), d) = min(x, min(c, d))")
def min_min(x: Term, c: Lit, d: Lit) -> tuple[Term, Term]:
    return least(least(x, c), d), least(x, least(c, d))


@rule("max(max(x, y), y) = max(x, y)")
def max_absorbs(x: Term, y: Term) -> tuple[Term, Term]:
    return greatest(greatest(x, y), y), greatest(x, y)


@rule("min(min(x, y), y) = min(x, y)")
def min_absorbs(x: Term, y: Term) -> tuple[Term, Term]:
    return least(least(x, y), y), least(x, y)


@rule("not(not(x)) = x")
def not_not(x: Bool) -> tuple[Term, Term]:
    return term("not", term("not", x)), x


@rule("x and x = x")
def and_self(x: Term) -> tuple[Term, Term]:
    return term("and", x, x), x


@rule("x or x = x")
def or_self(x: Term) -> tuple[Term, Term]:
    return term("or", x, x), x


@rule("x and true = x")
def and_true(x: Bool) -> tuple[Term, Term]:
    return term("and", x, True), x


@rule("x and false = false")
def and_false(x: Bool) -> tuple[Term, bool]:
    return term("and", x, False), False


@rule("x or false = x")
def or_false(x: Bool) -> tuple[Term, Term]:
    return term("or", x, False), x


@rule("x or true = true")
def or_true(x: Bool) -> tuple[Term, bool]:
    return term("or", x, True), True


@rule("x xor false = x")
def xor_false(x: Bool) -> tuple[Term, Term]:
    return term("xor", x, False), x


@rule("select(c, x, x) = x")
def select_same(c: Term, x: Term) -> tuple[Term, Term]:
    return choose(c, x, x), x


@rule("select(true, x, y) = x")
def select_true(x: Term, y: Term) -> tuple[Term, Term]:
    return term("select", True, x, y), x


@rule("select(false, x, y) = y")
def select_false(x: Term, y: Term) -> tuple[Term, Term]:
    return term("select", False, x, y), y


@rule("select(not c, x, y) = select(c, y, x)")
def select_not(c: Bool, x: Term, y: Term) -> tuple[Term, Term]:
    return choose(term("not", c), x, y), choose(c, y, x)


@rule("select(c, select(c, x, y), z) = select(c, x, z)")
def select_inner_true(c: Term, x: Term, y: Term, z: Term) -> tuple[Term, Term]:
    return choose(c, choose(c, x, y), z), choose(c, x, z)


@rule("select(c, x, select(c, y, z)) = select(c, x, z)")
def select_inner_false(c: Term, x: Term, y: Term, z: Term) -> tuple[Term, Term]:
    return choose(c, x, choose(c, y, z)), choose(c, x, z)


BY_ROOT = by_root(RULES)
