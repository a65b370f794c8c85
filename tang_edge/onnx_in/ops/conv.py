"""Convolutions: windows are affine views; a transposed convolution gathers through floor division by its
stride.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tang_edge.ir import affine, dtype
from tang_edge.ir.affine import Expr
from tang_edge.ir.scalar import Scalar, cast
from tang_edge.onnx_in.node import Node
from tang_edge.onnx_in.ops.matmul import shifted
from tang_edge.onnx_in.table import operator
from tang_edge.onnx_in.values import Value

Element = Callable[..., Scalar]


@dataclass(frozen=True)
class Window:
    """One spatial axis of a sliding window: kernel extent, stride, dilation, pads before and after."""

    extent: Expr
    kernel: int
    stride: int
    dilation: int
    before: Expr
    after: Expr

    @property
    def span(self) -> int:
        """How many places the window covers from its first to its last tap."""
        return self.dilation * (self.kernel - 1) + 1

    def count(self, ceil: bool = False) -> Expr:
        """How many windows there are. With `ceil` a last one may hang over, if it starts before the padding
        ends.
        """
        padded = self.extent + self.before + self.after
        if not ceil:
            return affine.floordiv(padded - self.span, self.stride) + 1
        n = affine.floordiv(padded - self.span + (self.stride - 1), self.stride) + 1
        return affine.minimum(n, affine.floordiv(self.extent + self.before - 1, self.stride) + 1)

    def start(self, i: Expr) -> Expr:
        """The place of the first tap of window i (negative inside the padding)."""
        return i * self.stride - self.before

    def place(self, i: Expr, k: Expr) -> Expr:
        """The place of tap k of window i."""
        return self.start(i) + k * self.dilation

    def guard(self, place: Expr) -> tuple[Expr, Expr]:
        """The conditions (>= 0) under which a place lies inside the tensor."""
        return place, self.extent - 1 - place


def windows(n: Node, spatial: Sequence[Expr], kernel: Sequence[int]) -> list[Window]:
    """The windows of a convolution or a pool over its spatial axes."""
    rank = len(spatial)
    if len(kernel) != rank:
        n.fail(f"a kernel of {len(kernel)} axes over {rank} spatial axes")
    strides = n.attr("strides") or [1] * rank
    dilations = n.attr("dilations") or [1] * rank
    pads = [affine.const(p) for p in n.attr("pads") or [0] * (2 * rank)]
    auto = n.attr("auto_pad", "NOTSET")
    out: list[Window] = []
    for k in range(rank):
        before, after = pads[k], pads[k + rank]
        if auto == "VALID":
            before = after = affine.const(0)
        elif auto in ("SAME_UPPER", "SAME_LOWER"):
            before, after = same_pads(spatial[k], kernel[k], strides[k], dilations[k], auto == "SAME_UPPER")
        out.append(Window(spatial[k], kernel[k], strides[k], dilations[k], before, after))
    return out


def same_pads(extent: Expr, kernel: int, stride: int, dilation: int, upper: bool) -> tuple[Expr, Expr]:
    """The pads that give ceil(extent / stride) windows; the odd one goes after (upper) or before."""
    count = affine.floordiv(extent + (stride - 1), stride)
    total = affine.maximum((count - 1) * stride + dilation * (kernel - 1) + 1 - extent, 0)
    small = affine.floordiv(total, 2)
    return (small, total - small) if upper else (total - small, small)


def kernel_of(n: Node, weight: Value) -> list[int]:
    """The spatial extents of a weight, which must be static."""
    sizes = [e.constant for e in weight.shape[2:]]
    if any(s is None for s in sizes):
        n.fail("a kernel of unknown size", "Export with static weights")
    return [int(s) for s in sizes if s is not None]


def convolution(n: Node, x: Value, w: Value, ex: Element, ew: Element) -> tuple[list[Expr], Element]:
    """The shape and element of a convolution. ex(coords, guard) and ew(coords) give the elements of x and w.

    y[n, m, o...] = sum over c, k... of x[n, g*C + c, o*stride + k*dilation - pad ...] * w[m, c, k...], g = m
    // M.
    """
    if w.rank != x.rank or x.rank < 3:
        n.fail(f"a weight of rank {w.rank} over an input of rank {x.rank}")
    groups = int(n.attr("group", 1))
    ws = windows(n, x.shape[2:], kernel_of(n, w))
    outs, per_group = w.shape[0].constant, w.shape[1]
    if outs is None or outs % groups:
        n.fail(f"{w.shape[0]} output channels in {groups} groups")
    n.same(x.shape[1], per_group * groups)
    extents = [per_group] + [affine.const(v.kernel) for v in ws]

    def body(c: list[Expr]) -> Scalar:
        base = affine.floordiv(c[1], outs // groups) * per_group

        def lift(r: list[Expr]) -> Scalar:
            places = [v.place(i, k) for v, i, k in zip(ws, c[2:], r[1:], strict=True)]
            guard = [g for v, p in zip(ws, places, strict=True) for g in v.guard(p)]
            return ex([c[0], base + r[0], *places], guard) * ew([c[1], *r])

        return n.sum(extents, lift)

    return [x.shape[0], w.shape[0], *(v.count() for v in ws)], body


@operator("Conv")
def _conv(n: Node) -> None:
    x, w, bias = n.x(0), n.x(1), n.opt(2)
    shape, body = convolution(n, x, w, lambda c, g: n.at(x, c, g), lambda c: n.at(w, c))
    n.emit(shape, lambda c: body(c) if bias is None else body(c) + n.at(bias, [c[1]]))


@operator("ConvInteger", since=10)
def _conv_integer(n: Node) -> None:
    n.emit(*integer_convolution(n, n.x(0), n.x(1), n.opt(2), n.opt(3)))


def integer_convolution(n: Node, x: Value, w: Value, x_zero: Value | None, w_zero: Value | None) -> tuple[list[Expr], Element]:
    """The shape and element (i32) of a convolution of integers with zero points; padding counts as the zero
    point.
    """
    z = 0
    if x_zero is not None:
        data = x_zero.data
        if data is None or data.size != 1:
            n.fail("a zero point of the input that is computed or not one number", "Make it a constant")
        z = int(data.ravel()[0])

    def ex(c: list[Expr], guard: list[Expr]) -> Scalar:
        v = cast(n.at(x, c, guard, z), dtype.i32)
        return v - z if z else v

    return convolution(n, x, w, ex, shifted(n, w, w_zero, 0))


@operator("ConvTranspose")
def _conv_transpose(n: Node) -> None:
    x, w, bias = n.x(0), n.x(1), n.opt(2)
    groups = int(n.attr("group", 1))
    if w.rank != x.rank or x.rank < 3:
        n.fail(f"a weight of rank {w.rank} over an input of rank {x.rank}")
    kernel = kernel_of(n, w)
    channels, per_group = w.shape[0].constant, w.shape[1].constant
    if channels is None or per_group is None or channels % groups:
        n.fail(f"{w.shape[0]} input channels in {groups} groups")
    n.same(x.shape[1], w.shape[0])
    taps = [_Taps(*t) for t in _transposed(n, x.shape[2:], kernel)]
    depth = channels // groups

    def body(c: list[Expr]) -> Scalar:
        group, own = affine.floordiv(c[1], per_group), affine.mod(c[1], per_group)

        def lift(r: list[Expr]) -> Scalar:
            at = [t.tap(o, k) for t, o, k in zip(taps, c[2:], r[1:], strict=True)]
            guard = [g for _, _, gs in at for g in gs]
            channel = group * depth + r[0]
            inside = n.at(x, [c[0], channel, *(p for p, _, _ in at)], guard)
            outside = [g for t, (_, k, _) in zip(taps, at, strict=True) for g in t.kernel_guard(k)]
            return inside * n.at(w, [channel, own, *(k for _, k, _ in at)], outside)

        total = n.sum([affine.const(depth)] + [affine.const(t.steps) for t in taps], lift)
        return total if bias is None else total + n.at(bias, [c[1]])

    n.emit([x.shape[0], affine.const(per_group * groups), *(t.size for t in taps)], body)


@dataclass(frozen=True)
class _Taps:
    """One spatial axis of a transposed convolution: y[o] sums x[q] * w[k] over q * stride + k * dilation = o
    + before.

    Without dilation k runs over o + before (mod stride), stride apart: k = (o + before) % stride + stride *
    t. With it, all k are tried and q must come out whole.
    """

    extent: Expr
    kernel: int
    stride: int
    dilation: int
    before: Expr
    size: Expr

    @property
    def steps(self) -> int:
        """How many taps each output place tries."""
        return -(-self.kernel // self.stride) if self.dilation == 1 else self.kernel

    def tap(self, o: Expr, t: Expr) -> tuple[Expr, Expr, tuple[Expr, ...]]:
        """The input place, the kernel place and the guards of try t."""
        lin = o + self.before
        if self.dilation == 1:
            q, k = affine.floordiv(lin, self.stride) - t, affine.mod(lin, self.stride) + t * self.stride
            return q, k, (q, self.extent - 1 - q)
        rest = lin - t * self.dilation
        q = affine.floordiv(rest, self.stride)
        return q, t, (q, self.extent - 1 - q, -affine.mod(rest, self.stride))

    def kernel_guard(self, k: Expr) -> tuple[Expr, ...]:
        """The condition that a kernel place exists."""
        return (self.kernel - 1 - k,)


def _transposed(n: Node, spatial: Sequence[Expr], kernel: list[int]) -> list[tuple[Expr, int, int, int, Expr, Expr]]:
    rank = len(spatial)
    strides, dilations = n.attr("strides") or [1] * rank, n.attr("dilations") or [1] * rank
    extra, pads = n.attr("output_padding") or [0] * rank, n.attr("pads") or [0] * (2 * rank)
    auto, wanted = n.attr("auto_pad", "NOTSET"), n.attr("output_shape")
    out = []
    for k in range(rank):
        full = (spatial[k] - 1) * strides[k] + (dilations[k] * (kernel[k] - 1) + 1 + extra[k])
        before = affine.const(pads[k])
        size = full - pads[k] - pads[k + rank]
        if wanted or auto.startswith("SAME"):
            size = affine.const(int(np.asarray(wanted)[-rank:][k])) if wanted else spatial[k] * strides[k]
            total = affine.maximum(full - size, 0)
            small = affine.floordiv(total, 2)
            before = small if auto == "SAME_UPPER" else total - small
        out.append((spatial[k], kernel[k], strides[k], dilations[k], before, size))
    return out
