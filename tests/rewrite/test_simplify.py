"""What simplification makes of single expressions."""

from __future__ import annotations

import numpy as np
import pytest

from tang_edge.ir import affine, scalar
from tang_edge.ir.affine import as_expr, var
from tang_edge.ir.dtype import DType, boolean, f16, f32, f64, i8, i32, i64, u8
from tang_edge.ir.scalar import Const, Scalar, cast, const, idx, op, read, reduce, select, sum_of
from tang_edge.rewrite.simplify import cast_const, simplify

A, B = var("i0", 8), var("i1", 8)
X = read("x", [A], f32)
N = read("n", [A], i32)


def test_literals_fold_in_their_dtype() -> None:
    tenth = const(0.1, f32)
    folded = simplify(tenth + tenth * tenth)
    assert isinstance(folded, Const)
    assert folded.value == float(np.float32(0.1) + np.float32(0.1) * np.float32(0.1))
    assert simplify(const(200, u8) + const(100, u8)) is const(44, u8)


def test_transcendental_literals_stay() -> None:
    x = op("exp", const(1.0, f32))
    assert simplify(x) is x


def test_integer_division_by_zero_stays() -> None:
    x = const(1, i32) / const(0, i32)
    assert simplify(x) is x


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (idx(A) + 3, idx(as_expr(A) + 3)),
        (idx(A) * idx(B) - idx(A), idx(as_expr(A) * as_expr(B) - as_expr(A))),
        (cast(idx(A), i32), idx(A, i32)),
        (op("mod", idx(as_expr(A) * 4 + 1), const(4, i64)), const(1, i64)),
        (op("lt", idx(A), const(8, i64)), const(True, boolean)),
        (op("lt", idx(A), const(0, i64)), const(False, boolean)),
        (op("eq", idx(A), idx(A)), const(True, boolean)),
        (op("min", idx(A), const(7, i64)), idx(A)),
        (select(op("le", idx(A), const(7, i64)), X, X * 2), X),
        (
            op("max", op("max", op("max", X, const(0, f32)), const(0, f32)), const(0, f32)),
            op("max", X, const(0, f32)),
        ),
        (X / 4, X * 0.25),
    ],
)
def test_becomes(before: Scalar, after: Scalar) -> None:
    assert simplify(before) is after


def test_undecided_comparison_stays() -> None:
    x = select(op("lt", idx(A), const(4, i64)), X, X * 2)
    assert simplify(x) is x


@pytest.mark.parametrize(
    ("a", "w", "b", "collapses"),
    [
        (i8, i32, i8, True),
        (i8, f32, i32, True),
        (u8, f32, i8, False),  # 200 saturates to 127 through f32 and wraps to -56 directly
        (f32, f64, f16, True),
        (f32, f16, f32, False),
        (i32, f32, i32, False),
        (boolean, f32, i32, True),
    ],
)
def test_cast_chains(a: DType, w: DType, b: DType, collapses: bool) -> None:
    x = read("x", [A], a)
    assert (simplify(cast(cast(x, w), b)) is cast(x, b)) == collapses


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [(300.7, i8, 127), (-1e30, i32, -(2**31)), (float("nan"), i32, 0), (-1.9, i8, -1), (0.5, boolean, True)],
)
def test_literal_casts_saturate(value: float, dtype: DType, expected: int) -> None:
    assert cast_const(const(value, f32), dtype) is const(expected, dtype)


def test_literal_integer_casts_wrap() -> None:
    assert cast_const(const(200, u8), i8) is const(-56, i8)


def test_axes_of_extent_one_vanish() -> None:
    k, unit = var("k", 5), var("u", 1)
    y = read("y", [k, unit], f32)
    both = reduce(sum_of(f32), (k, unit), y)
    assert simplify(both) is reduce(sum_of(f32), (k,), read("y", [k, affine.const(0)], f32))
    assert simplify(reduce(sum_of(f32), (unit,), X)) is X


def test_read_outside_its_guard_is_the_fill() -> None:
    guarded = scalar.read("x", [A], f32, [as_expr(A) - 8], const(2.5, f32))
    assert simplify(guarded) is const(2.5, f32)


def test_gather_at_a_known_index_is_a_view() -> None:
    e = scalar.gather_index(const(3, i64), affine.const(8))
    assert simplify(read("x", [e], f32)) is read("x", [affine.const(3)], f32)
