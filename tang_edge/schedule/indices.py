"""Index values on 32 bits. Vectors have no lanes of 64 bits, and most index values need none: bounds tell."""

from __future__ import annotations

from tang_edge.ir import affine, dtype, scalar
from tang_edge.ir.ops import COMPARE, OPS
from tang_edge.ir.scalar import Const, Idx, Op, Scalar

_LOW, _HIGH = dtype.i32.limits()


def _fits(x: Scalar) -> bool:
    if x.dtype is not dtype.i64:
        return False
    if isinstance(x, Const):
        return _LOW <= x.value <= _HIGH
    if isinstance(x, Idx):
        lo, hi = affine.bounds(x.e)
        return lo >= _LOW and hi <= _HIGH
    return False


def _small(x: Scalar) -> Scalar:
    return scalar.const(x.value, dtype.i32) if isinstance(x, Const) else scalar.idx(x.e, dtype.i32)  # type: ignore[union-attr]


def on_32_bits(x: Scalar) -> Scalar:
    """A comparison or cast of i64 index values that fit 32 bits as the same one of i32 values; everything else as it is."""
    if not isinstance(x, Op) or not (x.name == "cast" or OPS[x.name].family is COMPARE) or not all(map(_fits, x.args)):
        return x
    args = tuple(map(_small, x.args))
    return scalar.cast(args[0], x.dtype) if x.name == "cast" else scalar.op(x.name, *args)
