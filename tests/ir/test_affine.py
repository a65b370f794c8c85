"""Integer expressions: what construction simplifies is checked by evaluation at random points."""

from __future__ import annotations

import itertools
import operator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tang_edge.ir import affine
from tang_edge.ir.affine import as_expr, bounds, const, dim, evaluate, floordiv, mod, nonneg, substitute, var
from tang_edge.ir.prove import implied, undivided

N, M = dim("n", 1, 12), dim("m", 4, 24, 4)
I0, J, K = var("i", 5), var("j", N), var("k", M)
LEAVES = [as_expr(I0), as_expr(J), as_expr(K), N, M]
# A tree is a leaf, an integer, or (operator, operand, operand or constant); built as an Expr and as a value.
trees = st.recursive(
    st.integers(-9, 9).map(lambda c: ("const", c)) | st.integers(0, 4).map(lambda k: ("leaf", k)),
    lambda t: (
        st.tuples(st.sampled_from(["+", "-", "min", "max"]), t, t)
        | st.tuples(st.sampled_from(["*", "//", "%"]), t, st.integers(1, 8))
        | st.tuples(st.just("*"), t, st.integers(-3, 3))
    ),
    max_leaves=8,
)
PYTHON = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "min": min,
    "max": max,
}
EXPR = PYTHON | {"//": floordiv, "%": mod, "min": affine.minimum, "max": affine.maximum}


def build(tree):
    match tree:
        case ("const", c):
            return const(c)
        case ("leaf", k):
            return LEAVES[k]
        case (op, a, b):
            return EXPR[op](build(a), b if isinstance(b, int) else build(b))


def value(tree, point):
    match tree:
        case ("const", c):
            return c
        case ("leaf", k):
            return point[k]
        case (op, a, b):
            return PYTHON[op](value(a, point), b if isinstance(b, int) else value(b, point))


@st.composite
def points(draw):
    n, m = draw(st.integers(1, 12)), draw(st.sampled_from(range(4, 25, 4)))
    return [draw(st.integers(0, 4)), draw(st.integers(0, n - 1)), draw(st.integers(0, m - 1)), n, m]


def names(point):
    return dict(zip("ijknm", point, strict=True))


@settings(max_examples=300, deadline=None)
@given(trees, st.lists(points(), min_size=1, max_size=5))
def test_value_bounds_and_nonneg(tree, where):
    e = build(tree)
    lo, hi = bounds(e)
    for p in where:
        v = evaluate(e, names(p))
        assert v == value(tree, p)
        assert lo <= v <= hi
        assert v >= 0 or not (nonneg(e) or implied(e))
        assert v % affine.multiple_of(e) == 0 if affine.multiple_of(e) else v == 0
        assert (v >= 0) == (evaluate(undivided(e), names(p)) >= 0)


@settings(max_examples=200, deadline=None)
@given(trees, trees, st.lists(points(), min_size=1, max_size=4))
def test_implied_by_a_fact(goal, fact, where):
    g, f = build(goal), build(fact)
    if implied(g, (f,)):
        for p in where:
            assert value(fact, p) < 0 or value(goal, p) >= 0


@settings(max_examples=150, deadline=None)
@given(trees, trees, points())
def test_substitute(tree, other, p):
    e, replacement = build(tree), build(other)
    new = substitute(e, {I0: replacement})
    # where the new value of i lies outside its range, rules that used the range need not hold
    v = value(other, p)
    if 0 <= v < 5:
        assert evaluate(new, names(p)) == value(tree, [v, *p[1:]])


@settings(max_examples=150, deadline=None)
@given(trees)
def test_equal_expressions_are_one_object(tree):
    e = build(tree)
    assert build(tree) is e
    assert e + 1 - 1 is e
    assert e - e is const(0)
    coefficient = affine.linear_coefficient(e, I0)
    if coefficient is not None:
        assert I0 not in affine.variables(coefficient)
        assert I0 not in affine.variables(e - coefficient * as_expr(I0))


def test_floor_semantics():
    assert floordiv(const(-1), 2) is const(-1)
    assert mod(const(-1), 2) is const(1)
    assert floordiv(M, 4) * 4 is M
    assert floordiv(as_expr(I0) * 6 + 5, 6) is as_expr(I0)
    assert mod(as_expr(I0) * 6 + 5, 6) is const(5)
    assert str(floordiv(floordiv(as_expr(K), 2), 3)) == "(k) // 6"
    for bad in (0, -1):
        with pytest.raises(ValueError, match=str(bad)):
            floordiv(as_expr(I0), bad)
        with pytest.raises(ValueError, match=str(bad)):
            mod(as_expr(I0), bad)


def test_dimensions():
    assert dim("one", 3, 3) is const(3)
    assert bounds(dim("r", 5, 23, 4)) == (8, 20)
    with pytest.raises(ValueError, match="no multiple"):
        dim("none", 5, 7, 4)


def test_extents_cancel():
    assert nonneg(N - 1 - as_expr(J))
    prefix = var("p", as_expr(J) + 1)
    assert nonneg(as_expr(J) - as_expr(prefix))
    assert nonneg(N - 1 - as_expr(prefix))
    assert not nonneg(as_expr(J) - 1)


def test_proofs_with_guards():
    i, j = as_expr(I0), as_expr(J)
    assert implied(floordiv(j - 1, 2), (j - 1,))
    assert implied(N - 1 - (j + 3), (N - 4 - j,))
    assert not implied(N - 1 - (j + 3))
    assert implied(2 * j - 2, (j - 1,))
    assert implied(j - 1, (2 * j - 1,))
    clamped = affine.maximum(affine.minimum(i - 3, N - 1), 0)
    assert implied(clamped) and implied(N - 1 - clamped)


def test_nonneg_is_right_on_small_affine_expressions():
    for a, b, c in itertools.product(range(-2, 3), repeat=3):
        e = as_expr(I0) * a + as_expr(J) * b + c
        least = min(a * i + b * j + c for i in range(5) for n in range(1, 13) for j in range(n))
        assert nonneg(e) == (least >= 0), e
