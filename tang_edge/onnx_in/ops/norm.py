"""Normalisations. Statistics are binds of their own; what depends on weights alone is too, so that it runs
once.
"""

from __future__ import annotations

from collections.abc import Sequence

from tang_edge.ir import affine, dtype, scalar
from tang_edge.ir.affine import Expr
from tang_edge.ir.scalar import Scalar, cast, const, op
from tang_edge.onnx_in.node import Node
from tang_edge.onnx_in.ops.arithmetic import power
from tang_edge.onnx_in.ops.pool import mean
from tang_edge.onnx_in.ops.reduce import Over
from tang_edge.onnx_in.table import operator
from tang_edge.onnx_in.values import Value


@operator("BatchNormalization", since=7)
def _batch_norm(n: Node) -> None:
    """x * f + (b - mean * f) with f = scale / sqrt(var + eps), for each channel."""
    if n.attr("training_mode", 0):
        n.fail("training mode", "Export the model for inference")
    x, scale, bias, mu, var = (n.x(k) for k in range(5))
    eps = float(n.attr("epsilon", 1e-5))
    factor = n.temp("factor", scale.shape, lambda c: cast(n.at(scale, c), var.dtype) / op("sqrt", n.at(var, c) + eps))
    shift = n.temp("shift", bias.shape, lambda c: cast(n.at(bias, c), mu.dtype) - n.at(mu, c) * n.at(factor, c))
    channel = 1 if x.rank > 1 else 0

    def body(c: list[Expr]) -> Scalar:
        at = [c[channel]] if x.rank > 1 else [affine.const(0)]
        y = cast(n.at(x, c), factor.dtype) * n.at(factor, at) + n.at(shift, at)
        return cast(y, x.dtype)

    n.emit(x.shape, body)


def statistics(n: Node, x: Value, axes: Sequence[int], eps: float) -> tuple[Over, Value, Value]:
    """The mean and 1 / sqrt(variance + eps) of x over axes, in f32 for f16, with the axes kept."""
    o = Over(x, axes, True)
    wide = dtype.f32 if x.dtype is dtype.f16 else x.dtype
    mu = n.temp("mean", o.shape, lambda c: mean(n, o.extents, lambda r: cast(n.at(x, o.place(c, r)), wide)))

    def squares(c: list[Expr]) -> Scalar:
        def lift(r: list[Expr]) -> Scalar:
            d = cast(n.at(x, o.place(c, r)), wide) - n.at(mu, c)
            return d * d

        return 1 / op("sqrt", mean(n, o.extents, lift) + eps)

    return o, mu, n.temp("rstd", o.shape, squares)


def row(o: Over, c: list[Expr]) -> list[Expr]:
    """The coordinates of a statistic for the element at c."""
    return [affine.const(0) if k in o.axes else e for k, e in enumerate(c)]


@operator("LayerNormalization", since=17)
def _layer_norm(n: Node) -> None:
    x, scale, bias = n.x(0), n.x(1), n.opt(2)
    axis = n.axis(default=-1)
    o, mu, rstd = statistics(n, x, range(axis, x.rank), float(n.attr("epsilon", 1e-5)))

    def body(c: list[Expr]) -> Scalar:
        at = row(o, c)
        y = (cast(n.at(x, c), mu.dtype) - n.at(mu, at)) * n.at(rstd, at)
        y = cast(y, x.dtype) * n.pick(scale, c)
        return y if bias is None else y + n.pick(bias, c)

    n.emit(x.shape, body)
    if n.wants(1):
        n.alias(mu, 1)
    if n.wants(2):
        n.alias(rstd, 2)


@operator("RMSNormalization", since=23)
def _rms_norm(n: Node) -> None:
    x, scale = n.x(0), n.x(1)
    o = Over(x, range(n.axis(default=-1), x.rank), True)
    wide = dtype.f32 if x.dtype is dtype.f16 else x.dtype
    eps = float(n.attr("epsilon", 1e-5))

    def square(c: list[Expr], r: list[Expr]) -> Scalar:
        v = cast(n.at(x, o.place(c, r)), wide)
        return v * v

    scaled = n.temp("rrms", o.shape, lambda c: 1 / op("sqrt", mean(n, o.extents, lambda r: square(c, r)) + eps))

    def body(c: list[Expr]) -> Scalar:
        return cast(cast(n.at(x, c), wide) * n.at(scaled, row(o, c)), scale.dtype) * n.pick(scale, c)

    n.emit(x.shape, body)


@operator("InstanceNormalization", since=6)
def _instance_norm(n: Node) -> None:
    x, scale, bias = n.x(0), n.x(1), n.x(2)
    o, mu, rstd = statistics(n, x, range(2, x.rank), float(n.attr("epsilon", 1e-5)))

    def body(c: list[Expr]) -> Scalar:
        at = row(o, c)
        y = (cast(n.at(x, c), mu.dtype) - n.at(mu, at)) * n.at(rstd, at)
        return cast(y, x.dtype) * n.at(scale, [c[1]]) + n.at(bias, [c[1]])

    n.emit(x.shape, body)


@operator("GroupNormalization", since=18)
def _group_norm(n: Node) -> None:
    x, scale, bias = n.x(0), n.x(1), n.x(2)
    groups, channels = int(n.attr("num_groups")), x.shape[1].constant
    if channels is None or channels % groups:
        n.fail(f"{x.shape[1]} channels in {groups} groups")
    depth = channels // groups
    eps = float(n.attr("epsilon", 1e-5))
    extents = [affine.const(depth), *x.shape[2:]]
    shape = [x.shape[0], affine.const(groups)]
    wide = dtype.f32 if x.dtype is dtype.f16 else x.dtype

    def element(c: list[Expr], r: list[Expr]) -> Scalar:
        return cast(n.at(x, [c[0], c[1] * depth + r[0], *r[1:]]), wide)

    def squares(c: list[Expr], r: list[Expr]) -> Scalar:
        d = element(c, r) - n.at(mu, c)
        return d * d

    mu = n.temp("mean", shape, lambda c: mean(n, extents, lambda r: element(c, r)))
    rstd = n.temp("rstd", shape, lambda c: 1 / op("sqrt", mean(n, extents, lambda r: squares(c, r)) + eps))

    def body(c: list[Expr]) -> Scalar:
        g = affine.floordiv(c[1], depth)
        at = [g if n.opset < 21 else c[1]]  # opset 21 made scale and bias per channel
        y = (cast(n.at(x, c), wide) - n.at(mu, [c[0], g])) * n.at(rstd, [c[0], g])
        return cast(y, x.dtype) * n.at(scale, at) + n.at(bias, at)

    n.emit(x.shape, body)


@operator("LRN")
def _lrn(n: Node) -> None:
    x, size = n.x(), int(n.attr("size"))
    alpha, beta, k = float(n.attr("alpha", 1e-4)), float(n.attr("beta", 0.75)), float(n.attr("bias", 1.0))
    before = (size - 1) // 2

    def body(c: list[Expr]) -> Scalar:
        def lift(r: list[Expr]) -> Scalar:
            at = c[1] + r[0] - before
            v = n.at(x, [c[0], at, *c[2:]], [at, x.shape[1] - 1 - at])
            return v * v

        total = n.sum([affine.const(size)], lift)
        return n.at(x, c) / power(k + (alpha / size) * total, const(beta, x.dtype))

    n.emit(x.shape, body)


@operator("LpNormalization")
def _lp_norm(n: Node) -> None:
    """x / norm, and 0 where the norm is 0."""
    x, p = n.x(), int(n.attr("p", 2))
    o = Over(x, [n.axis(default=-1)], True)

    def norm(c: list[Expr]) -> Scalar:
        def lift(r: list[Expr]) -> Scalar:
            v = n.at(x, o.place(c, r))
            return op("abs", v) if p == 1 else v * v

        total = n.sum(o.extents, lift)
        return total if p == 1 else op("sqrt", total)

    length = n.temp("norm", o.shape, norm)

    def body(c: list[Expr]) -> Scalar:
        d = n.at(length, row(o, c))
        zero = const(0, x.dtype)
        return scalar.select(op("eq", d, zero), zero, n.at(x, c) / d)

    n.emit(x.shape, body)


@operator("MeanVarianceNormalization", since=9)
def _mvn(n: Node) -> None:
    x = n.x()
    axes = [n.norm_axis(int(a), x.rank) for a in n.attr("axes") or [0, 2, 3]]
    o, mu, _ = statistics(n, x, axes, 0.0)

    def deviation(c: list[Expr]) -> Scalar:
        def lift(r: list[Expr]) -> Scalar:
            d = n.at(x, o.place(c, r)) - n.at(mu, c)
            return d * d

        return op("sqrt", mean(n, o.extents, lift)) + 1e-9

    sd = n.temp("sd", o.shape, deviation)
    n.emit(x.shape, lambda c: (n.at(x, c) - n.at(mu, row(o, c))) / n.at(sd, row(o, c)))
