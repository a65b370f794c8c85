"""Resize and Upsample: each output place reads a few input places (taps) with weights, axis by axis.

With a rational scale p/q the source place is x = a / b for integer expressions a and b > 0, so its floor is a
// b and its fraction (a % b) / b: the view stays quasi-affine. With a symbolic scale the place is computed in
f32 at run time and the reads are gathers.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tang_edge.ir import affine, dtype, scalar
from tang_edge.ir.affine import Expr
from tang_edge.ir.scalar import Scalar, cast, const, op, select
from tang_edge.onnx_in.node import Node, number
from tang_edge.onnx_in.reshape import exact_quotient
from tang_edge.onnx_in.table import operator
from tang_edge.onnx_in.values import Value

Tap = tuple[Expr, Scalar | None]


@dataclass(frozen=True)
class Axis:
    """One resized axis: its extents, its scale (output per input) where it is a rational constant, and its
    region.
    """

    size: Expr
    out: Expr
    scale: Fraction | None
    roi: tuple[float, float] = (0.0, 1.0)


def rational(scale: float) -> Fraction:
    """The simplest fraction that rounds to the same f32 as a scale."""
    for limit in (1, 16, 256, 4096):
        f = Fraction(scale).limit_denominator(limit)
        if np.float32(float(f)) == np.float32(scale):
            return f
    return Fraction(scale)


@operator("Upsample", since=7)
def _upsample(n: Node) -> None:
    x = n.x()
    scales = n.attr("scales") if n.opset < 9 else n.needed(1, "the scales")
    axes = [_scaled(e, float(s)) for e, s in zip(x.shape, scales, strict=True)]
    interpolate(n, x, axes, str(n.attr("mode", "nearest")), "asymmetric", "floor")


def _scaled(size: Expr, scale: float, roi: tuple[float, float] = (0.0, 1.0)) -> Axis:
    f = rational(scale)
    if roi != (0.0, 1.0):
        if size.constant is None:
            return Axis(size, size, None, roi)
        return Axis(size, affine.const(int(size.constant * (roi[1] - roi[0]) * scale)), f, roi)
    return Axis(size, affine.floordiv(size * f.numerator, f.denominator), f)


@operator("Resize", since=10)
def _resize(n: Node) -> None:
    x = n.x()
    mode = str(n.attr("mode", "nearest"))
    if n.opset < 11:
        scales = n.needed(1, "the scales")
        axes = [_scaled(e, float(s)) for e, s in zip(x.shape, scales.ravel(), strict=True)]
        interpolate(n, x, axes, mode, "asymmetric", "floor")
        return
    how = str(n.attr("coordinate_transformation_mode", "half_pixel"))
    if n.attr("antialias", 0):
        n.fail("antialias", "Export the resize without it")
    interpolate(n, x, _axes(n, x, how), mode, how, str(n.attr("nearest_mode", "round_prefer_floor")))


def _axes(n: Node, x: Value, how: str) -> list[Axis]:
    """The axes of a Resize of opset 11 or later, from its scales or sizes."""
    chosen = [n.norm_axis(int(a), x.rank) for a in n.attr("axes") or range(x.rank)]
    out = [Axis(e, e, Fraction(1)) for e in x.shape]
    rois = [(0.0, 1.0)] * len(chosen)
    if how == "tf_crop_and_resize":
        region = n.needed(1, "the region")
        rois = [(float(region[k]), float(region[k + len(chosen)])) for k in range(len(chosen))]
    sizes = n.ints(3, "the sizes")
    if sizes:
        sizes = _keep_ratio(n, [x.shape[a] for a in chosen], sizes)
        for a, size, roi in zip(chosen, sizes, rois, strict=True):
            out[a] = Axis(x.shape[a], size, _ratio(size, x.shape[a]), roi)
        return out
    scales = n.constant(2, "the scales")
    if scales is None or not scales.size:
        n.fail("neither scales nor sizes", "Export the model again")
    for a, s, roi in zip(chosen, scales.ravel(), rois, strict=True):
        out[a] = _scaled(x.shape[a], float(s), roi)
    return out


def _ratio(out: Expr, size: Expr) -> Fraction | None:
    if out.constant is not None and size.constant:
        return Fraction(out.constant, size.constant)
    for p in range(1, 65):
        q = exact_quotient(out * p, size)
        if q is not None and q.constant is not None:
            return Fraction(q.constant, p)
    return None


def _keep_ratio(n: Node, sizes: list[Expr], wanted: list[Expr]) -> list[Expr]:
    policy = str(n.attr("keep_aspect_ratio_policy", "stretch"))
    if policy == "stretch":
        return wanted
    pairs = [(w.constant, s.constant) for w, s in zip(wanted, sizes, strict=True)]
    ratios = [Fraction(w, s) for w, s in pairs if w is not None and s]
    if len(ratios) < len(pairs):
        n.fail(f"the policy {policy} with unknown sizes", "Fix the sizes with --dim")
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    return [affine.const(int(scale * int(s or 0) + Fraction(1, 2))) for _, s in pairs]


def interpolate(n: Node, x: Value, axes: list[Axis], mode: str, how: str, rounding: str) -> None:
    """Bind output 0 to x resized; nearest in one view, the others one axis after the other."""
    busy = [k for k, a in enumerate(axes) if not (a.scale == 1 and a.out is a.size and a.roi == (0.0, 1.0))]
    out = [a.out for a in axes]
    if mode == "nearest" or not busy:

        def body(c: list[Expr]) -> Scalar:
            at = [nearest(axes[k], e, how, rounding) if k in busy else e for k, e in enumerate(c)]
            return _outside(n, axes, c, how, n.at(x, at))

        n.emit(out, body)
        return
    if mode not in ("linear", "cubic"):
        n.fail(f"the mode {mode!r}")
    current = x
    for step, k in enumerate(busy):
        shape = [out[j] if j <= k or j not in busy else e for j, e in enumerate(x.shape)]
        last = step == len(busy) - 1
        source = current

        def one(c: list[Expr], k: int = k, source: Value = source, last: bool = last) -> Scalar:
            y = _weighted(n, source, c, k, taps(n, axes[k], c[k], mode, how))
            return _outside(n, axes, c, how, y) if last else y

        current = n.emit(shape, one) if last else n.temp(f"axis{k}", shape, one)


def _weighted(n: Node, x: Value, c: list[Expr], k: int, ts: list[Tap]) -> Scalar:
    total: Scalar | None = None
    for place, weight in ts:
        v = n.at(x, [place if j == k else e for j, e in enumerate(c)])
        term = v if weight is None else v * cast(weight, x.dtype)
        total = term if total is None else total + term
    assert total is not None
    return total


def _outside(n: Node, axes: list[Axis], c: list[Expr], how: str, inside: Scalar) -> Scalar:
    """tf_crop_and_resize: the extrapolation value where the source place lies outside the tensor."""
    if how != "tf_crop_and_resize":
        return inside
    fill = const(float(n.attr("extrapolation_value", 0.0)), inside.dtype)
    for a, i in zip(axes, c, strict=True):
        if a.roi == (0.0, 1.0):
            continue
        place = _computed(a, i, how)
        beyond = op("or", op("lt", place, const(0, dtype.f32)), op("lt", number(a.size - 1, dtype.f32), place))
        inside = select(beyond, fill, inside)
    return inside


def source(a: Axis, i: Expr, how: str) -> tuple[Expr, int] | None:
    """(a, b): the source place of output place i is a / b, b a positive constant. None when the scale is no
    constant.
    """
    if a.scale is None or a.roi != (0.0, 1.0):
        return None
    p, q = a.scale.numerator, a.scale.denominator
    if how == "asymmetric":
        return i * q, p
    if how == "align_corners":
        last_in, last_out = a.size.constant, a.out.constant
        if last_out == 1:
            return affine.const(0), 1
        return None if last_in is None or last_out is None else (i * (last_in - 1), last_out - 1)
    if how == "pytorch_half_pixel" and a.out.constant == 1:
        return affine.const(0), 1
    if how == "half_pixel" or (how == "pytorch_half_pixel" and affine.bounds(a.out)[0] > 1):
        return (i * 2 + 1) * q - p, 2 * p
    if how == "tf_half_pixel_for_nn":
        return (i * 2 + 1) * q, 2 * p
    if how == "half_pixel_symmetric" and a.size.constant and a.out.constant:
        adjust = Fraction(a.out.constant) / (a.scale * a.size.constant)
        offset = Fraction(a.size.constant, 2) * (1 - adjust)
        f = offset - Fraction(1, 2) + Fraction(q, 2 * p)
        b = int(np.lcm(p, f.denominator))
        return i * (q * (b // p)) + int(f * b), b
    return None


def _computed(a: Axis, i: Expr, how: str) -> Scalar:
    """The source place in f32, for scales known only at run time."""
    f = dtype.f32
    x, size, out = number(i, f), number(a.size, f), number(a.out, f)
    scale = out / size if a.scale is None else const(float(a.scale), f)
    if how == "asymmetric":
        return x / scale
    if how == "align_corners":
        return x * (size - 1.0) / op("max", out - 1.0, const(1.0, f))
    if how == "tf_half_pixel_for_nn":
        return (x + 0.5) / scale
    if how == "tf_crop_and_resize":
        start, end = a.roi
        if a.out.constant == 1:
            return (size - 1.0) * (0.5 * (start + end))
        return start * (size - 1.0) + x * ((end - start) * (size - 1.0)) / (out - 1.0)
    half = (x + 0.5) / scale - 0.5
    if how == "pytorch_half_pixel":
        return select(op("lt", const(1.0, f), out), half, const(0.0, f))
    if how == "half_pixel_symmetric":
        adjust = out / (scale * size)
        return size * 0.5 * (1.0 - adjust) + half
    return half


def _clamped(e: Expr, size: Expr) -> Expr:
    return affine.maximum(affine.minimum(e, size - 1), 0)


def nearest(a: Axis, i: Expr, how: str, rounding: str) -> Expr:
    """The input place nearest to output place i."""
    known = source(a, i, how)
    if known is not None:
        x, b = known
        if rounding == "floor":
            e = affine.floordiv(x, b)
        elif rounding == "ceil":
            e = -affine.floordiv(-x, b)
        elif rounding == "round_prefer_ceil":
            e = affine.floordiv(x * 2 + b, 2 * b)
        else:  # round_prefer_floor: ceil(x - 1/2)
            e = -affine.floordiv(b - x * 2, 2 * b)
        return _clamped(e, a.size)
    y = _computed(a, i, how)
    rounded = {
        "floor": lambda: op("floor", y),
        "ceil": lambda: op("ceil", y),
        "round_prefer_ceil": lambda: op("floor", y + 0.5),
    }.get(rounding, lambda: op("ceil", y - 0.5))()
    return scalar.gather_index(cast(rounded, dtype.i32), a.size)


def taps(n: Node, a: Axis, i: Expr, mode: str, how: str) -> list[Tap]:
    """The input places that output place i reads, with their weights (None: 1)."""
    known = source(a, i, how)
    f = dtype.f32
    reach = range(2) if mode == "linear" else range(-1, 3)
    if known is not None:
        x, b = known
        floor, fraction = affine.floordiv(x, b), number(affine.mod(x, b), f) * (1 / b)
        places = [_clamped(floor + k, a.size) for k in reach]
        inside = [_within(number(floor + k, dtype.i32), a.size) for k in reach]
    else:
        y = _computed(a, i, how)
        whole = op("floor", y)
        base, fraction = cast(whole, dtype.i32), y - whole
        places = [scalar.gather_index(base + k, a.size) for k in reach]
        inside = [_within(base + k, a.size) for k in reach]
    weights = [1.0 - fraction, fraction] if mode == "linear" else cubic_weights(fraction, float(n.attr("cubic_coeff_a", -0.75)))
    if n.attr("exclude_outside", 0):
        weights = [select(ok, w, const(0.0, f)) for ok, w in zip(inside, weights, strict=True)]
        total = weights[0]
        for w in weights[1:]:
            total = total + w
        weights = [w / total for w in weights]
    return list(zip(places, weights, strict=True))


def _within(i: Scalar, size: Expr) -> Scalar:
    return op("and", op("le", const(0, dtype.i32), i), op("lt", i, number(size, dtype.i32)))


def cubic_weights(t: Scalar, a: float) -> list[Scalar]:
    """Keys' cubic convolution weights at distances 1 + t, t, 1 - t, 2 - t."""

    def near(s: Scalar) -> Scalar:
        return ((a + 2) * s - (a + 3)) * s * s + 1.0

    def far(s: Scalar) -> Scalar:
        return ((a * s - 5 * a) * s + 8 * a) * s - 4 * a

    return [far(1.0 + t), near(t), near(1.0 - t), far(2.0 - t)]
