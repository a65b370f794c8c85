"""Fourier transforms as sums, and windows."""

from __future__ import annotations

from tang_edge.ir import affine, dtype
from tang_edge.ir.affine import Expr
from tang_edge.ir.scalar import Scalar, op, select
from tang_edge.onnx_in.node import Node, number
from tang_edge.onnx_in.ops.elementwise import target_dtype
from tang_edge.onnx_in.table import operator

TURN = 6.283185307179586


@operator("HammingWindow", "HannWindow", "BlackmanWindow", since=17)
def _window(n: Node) -> None:
    """a0 - a1 cos(2 pi k / N) + a2 cos(4 pi k / N), N = size (periodic) or size - 1."""
    size = (n.ints(0, "size") or [affine.const(0)])[0]
    dt = target_dtype(n, int(n.attr("output_datatype", 1)))
    a0, a1, a2 = {
        "HannWindow": (0.5, 0.5, 0.0),
        "HammingWindow": (25 / 46, 21 / 46, 0.0),
        "BlackmanWindow": (0.42, 0.5, 0.08),
    }[n.op]
    length = size if n.attr("periodic", 1) else size - 1

    def body(c: list[Expr]) -> Scalar:
        angle = number(c[0], dt) * TURN / number(length, dt)
        y = a0 - a1 * op("cos", angle)
        return y + a2 * op("cos", angle * 2) if a2 else y

    n.emit([size], body)


@operator("DFT", since=17)
def _dft(n: Node) -> None:
    """X[k] = sum over t of x[t] exp(-2 pi i k t / N); k t is reduced modulo N in integers, exactly."""
    x = n.x()
    if n.opset < 20:
        axis = n.norm_axis(int(n.attr("axis", 1)), x.rank)
    else:
        data = n.constant(2, "the axis")
        axis = n.norm_axis(-2 if data is None else int(data.ravel()[0]), x.rank)
    given = n.ints(1, "the length")
    length = given[0] if given else x.shape[axis]
    inverse, onesided = bool(n.attr("inverse", 0)), bool(n.attr("onesided", 0))
    size = length.constant
    if size is None or (inverse and onesided):
        n.fail("a transform of unknown length, or an inverse one-sided one", "Fix the length with --dim")
    dt, parts = x.dtype, x.shape[-1].constant
    bins = size // 2 + 1 if onesided else size
    shape = [affine.const(bins) if k == axis else e for k, e in enumerate(x.shape[:-1])] + [affine.const(2)]

    def body(c: list[Expr]) -> Scalar:
        def lift(r: list[Expr]) -> Scalar:
            at = [r[0] if k == axis else e for k, e in enumerate(c[:-1])]
            guard = [x.shape[axis] - 1 - r[0]]
            angle = number(affine.mod(c[axis] * r[0], size), dt) * (TURN / size * (1 if inverse else -1))
            cos, sin = op("cos", angle), op("sin", angle)
            real = op("eq", number(c[-1], dtype.i32), number(affine.const(0), dtype.i32))
            a = n.at(x, [*at, affine.const(0)], guard)
            if parts == 1:
                return a * select(real, cos, sin)
            b = n.at(x, [*at, affine.const(1)], guard)
            return select(real, a * cos - b * sin, a * sin + b * cos)

        total = n.sum([length], lift)
        return total / float(size) if inverse else total

    n.emit(shape, body)


@operator("Col2Im", since=18)
def _col_to_im(n: Node) -> None:
    """y[n, c, o...] sums the columns of the blocks b that cover o: b * stride + k * dilation = o + pad, k a
    tap.
    """
    x = n.x()
    image, block = n.ints(1, "the image shape") or [], n.needed(2, "the block shape")
    kernel, rank = [int(b) for b in block], len(image)
    strides, dilations = n.attr("strides") or [1] * rank, n.attr("dilations") or [1] * rank
    pads, taps = n.attr("pads") or [0] * (2 * rank), 1
    for k in kernel:
        taps *= k
    counts = [
        affine.floordiv(e + (p + q - d * (k - 1) - 1), s) + 1
        for e, k, s, d, p, q in zip(image, kernel, strides, dilations, pads[:rank], pads[rank:], strict=True)
    ]
    channels = x.shape[1].constant
    if channels is None or channels % taps:
        n.fail(f"{x.shape[1]} channels of columns for blocks of {taps}")

    def body(c: list[Expr]) -> Scalar:
        def lift(r: list[Expr]) -> Scalar:
            guard: list[Expr] = []
            tap = column = affine.const(0)
            for k in range(rank):
                rest = c[k + 2] + pads[k] - r[k] * dilations[k]
                b = affine.floordiv(rest, strides[k])
                guard += [b, counts[k] - 1 - b, -affine.mod(rest, strides[k])]
                tap, column = tap * kernel[k] + r[k], column * counts[k] + b
            return n.at(x, [c[0], c[1] * taps + tap, column], guard)

        return n.sum([affine.const(k) for k in kernel], lift)

    n.emit([x.shape[0], affine.const(channels // taps), *image], body)
