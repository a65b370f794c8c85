"""Scalars: hash-consing, canonical binders, substitution without capture, monoid laws, operators."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tang_edge.ir import affine, scalar
from tang_edge.ir.affine import as_expr, var
from tang_edge.ir.dtype import boolean, f32, f64, i8, i32, i64
from tang_edge.ir.interp import evaluate_bind
from tang_edge.ir.interp_fold import cast, combine_states, fold
from tang_edge.ir.ops import OPS
from tang_edge.ir.scalar import Get, St, comprehension, op, opened, reduce, substitute, sum_of
from tang_edge.ir.tensor import Bind, out_axes

I0, J = var("i0", 5), var("i1", 5)


def a(*coords):
    return scalar.read("a", coords, f64)


def total(x, *axes):
    return reduce(sum_of(f64), axes, x)


def test_alpha_equal_comprehensions_are_one_object():
    u, v = var("u", 5), var("v", 5)
    assert total(a(I0, u), u) is total(a(I0, v), v)
    assert str(total(a(I0, u), u)) == "sum(r0_0 < 5: a[i0, r0_0])"
    nested = total(total(a(u, v), v), u)
    assert nested is total(total(a(v, u), u), v)
    assert [x.name for x in nested.of.axes] == ["r1_0"]


def test_substitution_captures_nothing():
    r = var("r0_0", 5)
    inner = total(a(I0, r), r)
    put = substitute(inner, {I0: as_expr(r)})
    assert scalar.free(put) == {r}
    assert str(put) == "sum(r1_0 < 5: a[r0_0, r1_0])"
    closed = total(put, r)  # closing the outer binder restores the canonical names
    assert str(closed) == "sum(r1_0 < 5: sum(r0_0 < 5: a[r1_0, r0_0]))"
    other = var("r0_0", 7)  # the same name with another extent would be ambiguous in the text form
    assert scalar.free(substitute(inner, {I0: as_expr(other)})) == {other}
    assert str(substitute(inner, {I0: as_expr(other)})) == "sum(r1_0 < 5: a[r0_0, r1_0])"


def test_prefix_extents_follow_a_substitution():
    r = var("r", as_expr(I0) + 1)
    moved = substitute(total(a(I0, r), r), {I0: as_expr(J) + 2})
    assert str(moved) == "sum(r0_0 < i1 + 3: a[i1 + 2, r0_0])"


index = st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 1))


@st.composite
def bodies(draw, depth=0):
    """A scalar over i0, i1 < 5 and whatever is bound around it; every coordinate is clamped into [0, 5)."""
    axes = [I0, J, *(var(f"x{k}", 5 - k) for k in range(depth))]

    def coord():
        p, q, c = draw(index)
        e = as_expr(draw(st.sampled_from(axes))) * p + as_expr(draw(st.sampled_from(axes))) * q + c
        return affine.mod(e, 5)

    kind = draw(st.sampled_from(["read", "idx", "add", "mul", "sum", "max"] if depth < 2 else ["read", "idx"]))
    match kind:
        case "read":
            return a(coord(), coord())
        case "idx":
            return scalar.cast(scalar.idx(coord()), f64)
        case "add" | "mul":
            return op(kind, draw(bodies(depth)), draw(bodies(depth)))
        case _:
            x = var(f"x{depth}", 5 - depth)
            return reduce((sum_of if kind == "sum" else scalar.max_of)(f64), [x], draw(bodies(depth + 1)))


DATA = {"a": np.random.default_rng(0).integers(-3, 4, (5, 5)).astype(float)}


def evaluated(x):
    return evaluate_bind(Bind("y", out_axes([5, 5]), x), DATA, {})


@settings(max_examples=80, deadline=None)
@given(bodies(), index, index)
def test_substitution_commutes_with_evaluation(x, p, q):
    def coordinate(w):
        return affine.mod(as_expr(I0) * w[0] + as_expr(J) * w[1] + w[2], 5)

    before = evaluated(x)
    after = evaluated(substitute(x, {I0: coordinate(p), J: coordinate(q)}))
    for i in range(5):
        for j in range(5):
            u, v = ((i * w[0] + j * w[1] + w[2]) % 5 for w in (p, q))
            assert after[i, j] == before[u, v]


def test_opened_and_closed_again_is_the_same():
    u = var("u", 5)
    c = comprehension([u], scalar.argmax_of(f32), [scalar.read("a", [I0, u], f32), scalar.idx(u)])
    axes, lifts = opened(c)
    assert comprehension(axes, c.monoid, lifts) is c
    assert not {x.name for x in axes} & {x.name for x in c.axes}
    assert Get(c, 1).dtype is i64


# ---------------------------------------------------------------- monoids

MONOIDS = [f(dt) for dt in (f64, i32) for f in (sum_of, scalar.product_of, scalar.max_of, scalar.min_of)]
MONOIDS += [scalar.any_of(), scalar.all_of()]
MONOIDS += [scalar.argmax_of(dt, last) for dt in (f64, i32) for last in (False, True)]


def states(m, rng, size):
    kinds = {f64: lambda: rng.integers(-3, 4, size).astype(float), boolean: lambda: rng.random(size) < 0.5}
    one = kinds.get(m.identity[0].dtype, lambda: rng.integers(-3, 4, size).astype(np.int32))()
    return [one] if len(m.identity) == 1 else [one, rng.permutation(size)]


def identities(m, size):
    return [np.full(size, i.value, i.dtype.numpy) for i in m.identity]


@pytest.mark.parametrize("m", MONOIDS, ids=lambda m: f"{m.name}-{m.identity[0].dtype}")
def test_monoid_laws(m):
    rng = np.random.default_rng(1)
    x, y, z = (states(m, rng, 64) for _ in range(3))

    def equal(p, q):
        return all(np.array_equal(u, v) for u, v in zip(p, q, strict=True))

    def combined(p, q):
        return combine_states(m, p, q)

    assert equal(combined(x, combined(y, z)), combined(combined(x, y), z))
    assert equal(combined(x, identities(m, 64)), x)
    assert equal(combined(identities(m, 64), x), x)
    assert not m.commutative or len(x) > 1 or equal(combined(x, y), combined(y, x))


@pytest.mark.parametrize("m", MONOIDS, ids=lambda m: f"{m.name}-{m.identity[0].dtype}")
@pytest.mark.parametrize("n", [0, 1, 2, 7, 8])
def test_fold_is_the_sequential_one(m, n):
    s = states(m, np.random.default_rng(n), n)
    want = identities(m, 1)
    for k in range(n):
        want = combine_states(m, want, [c[k : k + 1] for c in s])
    got = fold(m, s, (0,))
    assert all(g == w[0] for g, w in zip(got, want, strict=True))


# ---------------------------------------------------------------- operators


def test_types_are_checked():
    x, k = a(I0, J), scalar.idx(I0)
    for wrong in (lambda: op("add", x, k), lambda: op("exp", x, x), lambda: scalar.select(x, x, x)):
        with pytest.raises(TypeError):
            wrong()
    assert op("lt", x, x).dtype is boolean
    assert scalar.cast(x, f64) is x
    assert (x + 1).args[1] is scalar.const(1, f64)
    assert (2 - x).args[0] is scalar.const(2.0, f64)
    with pytest.raises(TypeError):
        scalar.idx(I0, f32)


def test_literals_are_kept_apart():
    assert scalar.const(0.0, f32) is not scalar.const(-0.0, f32)
    assert scalar.const(0, i32) is not scalar.const(0, i64)
    assert scalar.const(float("nan"), f32) is scalar.const(float("nan"), f32)
    assert scalar.const(0.1, f32).value == float(np.float32(0.1))


def test_integer_division_truncates_everywhere():
    values = np.array([-128, -127, -7, -1, 0, 1, 7, 127], np.int8)
    p, q = np.meshgrid(values, values)
    with np.errstate(all="ignore"):
        got = OPS["div"].evaluate(p, q)
    exact = [
        0 if y == 0 else (abs(x) // abs(y)) * (1 if (x < 0) == (y < 0) else -1)
        for x, y in zip(p.ravel().tolist(), q.ravel().tolist(), strict=True)
    ]
    np.testing.assert_array_equal(got.ravel(), np.array(exact).astype(np.int8))
    assert got.dtype == np.int8


def test_casts():
    x = np.array([np.nan, np.inf, -np.inf, 3.9, -3.9, 1e30, -1e30, 127.5, -128.9])
    np.testing.assert_array_equal(cast(x, f64, i8), [0, 127, -128, 3, -3, 127, -128, 127, -128])
    top = np.iinfo(np.int64).max
    np.testing.assert_array_equal(cast(x, f64, i64), [0, top, -top - 1, 3, -3, top, -top - 1, 127, -128])
    np.testing.assert_array_equal(cast(x, f64, boolean), np.ones(9, bool))
    np.testing.assert_array_equal(cast(np.array([300, -1]), i64, i8), [44, -1])
    assert cast(np.float64(0.1), f64, f32, wide=True) == 0.1
    assert St("l", 0, f32) is St("l", 0, f32)
