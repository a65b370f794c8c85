"""Quantisation: integers with a scale and a zero point."""

from __future__ import annotations

from collections.abc import Callable

from tang_edge.ir import affine, dtype, scalar
from tang_edge.ir.affine import Expr
from tang_edge.ir.dtype import DType
from tang_edge.ir.scalar import Scalar, cast, const, op
from tang_edge.onnx_in.node import Node
from tang_edge.onnx_in.ops.conv import integer_convolution
from tang_edge.onnx_in.ops.elementwise import target_dtype
from tang_edge.onnx_in.ops.matmul import product, shifted
from tang_edge.onnx_in.table import operator
from tang_edge.onnx_in.values import Value


def saturated(x: Scalar, zero: Scalar | None, to: DType) -> Scalar:
    """round(x) + zero, clipped to the range of an integer dtype before the cast (x is f32)."""
    y = op("round", x)
    if zero is not None and not (isinstance(zero, scalar.Const) and zero.value == 0):
        y = y + cast(zero, x.dtype)
    lo, hi = to.limits()
    return cast(op("max", op("min", y, const(hi, x.dtype)), const(lo, x.dtype)), to)


def parameters(n: Node, x: Value, scale: Value) -> Callable[[list[Expr]], list[Expr]]:
    """The place in a scale (or zero point) for the element at c: one for all, one a channel, or one a
    block.
    """
    if scale.rank == 0 or (scale.rank == 1 and scale.shape[0].constant == 1):
        return lambda c: [affine.const(0)] * scale.rank
    axis = n.norm_axis(int(n.attr("axis", 1)), x.rank)
    if scale.rank == 1:
        n.same(scale.shape[0], x.shape[axis])
        return lambda c: [c[axis]]
    block = int(n.attr("block_size", 0))
    if scale.rank != x.rank or block < 1:
        n.fail(f"a scale of rank {scale.rank} for {x}")
    return lambda c: [affine.floordiv(e, block) if k == axis else e for k, e in enumerate(c)]


@operator("QuantizeLinear", since=10)
def _quantize(n: Node) -> None:
    x, scale, zero = n.x(0), n.x(1), n.opt(2)
    elem = int(n.attr("output_dtype", 0))
    to = zero.dtype if zero is not None else target_dtype(n, elem) if elem else dtype.u8
    at = parameters(n, x, scale)

    def body(c: list[Expr]) -> Scalar:
        y = cast(n.at(x, c), dtype.f32) / cast(n.at(scale, at(c)), dtype.f32)
        return saturated(y, None if zero is None else n.at(zero, at(c)), to)

    n.emit(x.shape, body)


@operator("DequantizeLinear", since=10)
def _dequantize(n: Node) -> None:
    x, scale, zero = n.x(0), n.x(1), n.opt(2)
    at = parameters(n, x, scale)

    def body(c: list[Expr]) -> Scalar:
        y = cast(n.at(x, c), dtype.i32)
        z = None if zero is None else n.at(zero, at(c))
        if z is not None and not (isinstance(z, scalar.Const) and z.value == 0):
            y = y - cast(z, dtype.i32)
        return cast(y, scale.dtype) * n.at(scale, at(c))

    n.emit(x.shape, body)


@operator("DynamicQuantizeLinear", since=11)
def _dynamic_quantize(n: Node) -> None:
    """scale = (max(0, x) - min(0, x)) / 255 over the whole tensor, zero = saturate(round(-min / scale))."""
    x = n.x()
    zero = const(0, dtype.f32)
    every = list(x.shape)
    high = n.temp("max", [], lambda c: op("max", zero, n.reduce(scalar.max_of(x.dtype), every, lambda r: n.at(x, r))))
    low = n.temp("min", [], lambda c: op("min", zero, n.reduce(scalar.min_of(x.dtype), every, lambda r: n.at(x, r))))
    scale = n.emit([], lambda c: (n.at(high, []) - n.at(low, [])) / 255.0, 1)
    point = n.emit([], lambda c: saturated((0.0 - n.at(low, [])) / n.at(scale, []), None, dtype.u8), 2)
    n.emit(x.shape, lambda c: saturated(n.at(x, c) / n.at(scale, []), n.at(point, []), dtype.u8))


@operator("QLinearMatMul", since=10)
def _qlinear_matmul(n: Node) -> None:
    a, sa, za, b, sb, zb, sy, zy = (n.x(k) for k in range(8))
    shape, total = product(n, a, b, shifted(n, a, za, -2), shifted(n, b, zb, -1))

    def scale_of(v: Value, c: list[Expr], axis: int) -> Scalar:
        if v.rank <= 1:
            own = [c[axis]] if v.rank == 1 and v.shape[0].constant != 1 else [affine.const(0)] * v.rank
            return cast(n.at(v, own), dtype.f32)
        return cast(n.pick(v, c), dtype.f32)

    def body(c: list[Expr]) -> Scalar:
        real = cast(total(c), dtype.f32) * (scale_of(sa, c, -2) * scale_of(sb, c, -1))
        return saturated(real / scale_of(sy, c, -2), n.pick(zy, c[: zy.rank]), zy.dtype)

    n.emit(shape, body)


@operator("QLinearConv", since=10)
def _qlinear_conv(n: Node) -> None:
    x, sx, zx, w, sw, zw, sy, zy = (n.x(k) for k in range(8))
    bias = n.opt(8)
    shape, total = integer_convolution(n, x, w, zx, zw)

    def one(v: Value, c: list[Expr]) -> Scalar:
        return n.at(v, [c[1]] if v.rank == 1 and v.shape[0].constant != 1 else [affine.const(0)] * v.rank)

    def body(c: list[Expr]) -> Scalar:
        acc = total(c) if bias is None else total(c) + n.at(bias, [c[1]])
        real = cast(acc, dtype.f32) * (one(sx, c) * one(sw, c))
        return saturated(real / one(sy, c), one(zy, c), zy.dtype)

    n.emit(shape, body)
