"""Views: operators that only say where each element comes from."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tang_edge.ir import affine, dtype, scalar
from tang_edge.ir.affine import Expr
from tang_edge.ir.scalar import Scalar, const, op, select
from tang_edge.onnx_in.node import Node, number
from tang_edge.onnx_in.table import operator
from tang_edge.onnx_in.values import Value


@operator("Transpose")
def _transpose(n: Node) -> None:
    x = n.x()
    perm = [int(p) for p in n.attr("perm") or reversed(range(x.rank))]
    if sorted(perm) != list(range(x.rank)):
        n.fail(f"the permutation {perm} of a tensor of rank {x.rank}")
    n.emit([x.shape[p] for p in perm], lambda c: n.at(x, [c[perm.index(k)] for k in range(x.rank)]))


@operator("Expand", since=8)
def _expand(n: Node) -> None:
    x = n.x()
    target = n.ints(1, "the shape") or []
    n.emit(n.broadcast_shapes(x.shape, target), lambda c: n.pick(x, c))


@operator("Tile", since=6)
def _tile(n: Node) -> None:
    x = n.x()
    times = n.ints(1, "the repeats") or []
    if all(e.constant is not None or t.constant == 1 for e, t in zip(x.shape, times, strict=True)):
        n.emit(
            [e * t for e, t in zip(x.shape, times, strict=True)],
            lambda c: n.at(x, [affine.mod(i, e.constant) if e.constant else i for i, e in zip(c, x.shape, strict=True)]),
        )
        return
    pairs = [axis for e, t in zip(x.shape, times, strict=True) for axis in (t, e)]
    n.results[0] = n.importer.store(
        n.scope.ir_name(n.proto.output[0]),
        [e * t for e, t in zip(x.shape, times, strict=True)],
        pairs,
        lambda c: n.at(x, c[1::2]),
        lambda c: [q * e + r for q, r, e in zip(c[::2], c[1::2], x.shape, strict=True)],
        n,
    )


@operator("Concat", since=4)
def _concat(n: Node) -> None:
    values = n.all_inputs()
    axis = n.axis()
    shape = list(values[0].shape)
    ends: list[Expr] = []
    for v in values:
        if v.rank != len(shape):
            n.fail(f"inputs of rank {len(shape)} and {v.rank}")
        ends.append((ends[-1] if ends else affine.const(0)) + v.shape[axis])
        shape = [e if k == axis else n.same(e, v.shape[k]) for k, e in enumerate(shape)]
    shape[axis] = ends[-1]
    n.emit(shape, lambda c: joined(n, values, ends, c, axis))


def joined(n: Node, values: Sequence[Value], ends: Sequence[Expr], c: list[Expr], axis: int) -> Scalar:
    """select(i < end0, A0[i], select(i < end1, A1[i - end0], ...)), every read guarded by its own extent."""
    out: Scalar | None = None
    for k in range(len(values) - 1, -1, -1):
        v = values[k]
        own = c[axis] - (ends[k - 1] if k else 0)
        at = [affine.const(0) if v.shape[j].constant == 1 and j != axis else e for j, e in enumerate(c)]
        at[axis] = affine.const(0) if v.shape[axis].constant == 1 else own
        here = n.at(v, at, [own, v.shape[axis] - 1 - own])
        test = None if out is None else op("lt", number(c[axis], dtype.i32), number(ends[k], dtype.i32))
        out = here if out is None or test is None else select(test, here, out)
    assert out is not None
    return out


@operator("Split")
def _split(n: Node) -> None:
    x, axis = n.x(), n.axis()
    parts = len(n.proto.output)
    given = n.attr("split")
    sizes = [affine.const(s) for s in given] if given else n.ints(1, "the sizes")
    if sizes is None:
        total = x.shape[axis]
        chunk = affine.floordiv(total + (parts - 1), parts)
        sizes = [chunk] * (parts - 1) + [total - chunk * (parts - 1)]
        if n.opset < 18:
            n.same(sizes[-1], chunk)
    offset = affine.const(0)
    for k, size in enumerate(sizes):
        if n.wants(k):
            start = [offset if j == axis else affine.const(0) for j in range(x.rank)]
            shape = [size if j == axis else e for j, e in enumerate(x.shape)]
            n.emit(shape, partial(_shifted, n, x, start), k)
        offset = offset + size
    n.same(offset, x.shape[axis])


def _shifted(n: Node, x: Value, start: list[Expr], c: list[Expr]) -> Scalar:
    return n.at(x, [e + s for e, s in zip(c, start, strict=True)])


@operator("Slice")
def _slice(n: Node) -> None:
    x = n.x()
    if n.opset < 10:
        starts = [affine.const(s) for s in n.attr("starts")]
        ends = [affine.const(s) for s in n.attr("ends")]
        axes, steps = n.attr("axes"), None
    else:
        starts, ends = n.ints(1, "the starts") or [], n.ints(2, "the ends") or []
        axes = n.axes_list(3)
        steps = n.constant(4, "the steps")
    axes = list(range(len(starts))) if axes is None else axes
    shape, first, stride = list(x.shape), [affine.const(0)] * x.rank, [1] * x.rank
    for k, axis in enumerate(axes):
        a = n.norm_axis(int(axis), x.rank)
        step = 1 if steps is None else int(steps.ravel()[k])
        if not step:
            n.fail("a step of 0")
        first[a], shape[a] = _range_of(n, starts[k], ends[k], step, x.shape[a])
        stride[a] = step
    n.emit(shape, lambda c: n.at(x, [f + i * s for f, i, s in zip(first, c, stride, strict=True)]))


def _range_of(n: Node, start: Expr, end: Expr, step: int, extent: Expr) -> tuple[Expr, Expr]:
    """The first place and the count of a slice of an axis, after NumPy's rules for negative and too great
    ends.
    """
    if step > 0:
        low, high = (affine.maximum(affine.minimum(_counted(n, e, extent), extent), 0) for e in (start, end))
        count = affine.floordiv(high - low + (step - 1), step)
    else:
        low = affine.maximum(affine.minimum(_counted(n, start, extent), extent - 1), -1)
        high = affine.maximum(affine.minimum(_counted(n, end, extent), extent - 1), -1)
        count = affine.floordiv(low - high + (-step - 1), -step)
    return low, affine.maximum(count, 0)


def _counted(n: Node, e: Expr, extent: Expr) -> Expr:
    """A place counted from the front."""
    lo, hi = affine.bounds(e)
    if lo >= 0:
        return e
    if hi < 0:
        return e + extent
    n.fail(f"the place {e} may be negative or not", "Give the dimensions ranges that decide it")


@operator("Pad")
def _pad(n: Node) -> None:
    x = n.x()
    mode = str(n.attr("mode", "constant"))
    given = [affine.const(p) for p in n.attr("pads")] if n.opset < 11 else n.ints(1, "the pads") or []
    axes = range(x.rank) if n.opset < 18 or n.opt(3) is None else n.axes_list(3) or []
    before, after = [affine.const(0)] * x.rank, [affine.const(0)] * x.rank
    half = len(given) // 2
    for k, axis in enumerate(axes):
        a = n.norm_axis(axis, x.rank)
        before[a], after[a] = given[k], given[k + half]
    shape = [e + p + q for e, p, q in zip(x.shape, before, after, strict=True)]
    if mode == "constant":
        n.emit(shape, lambda c: _padded(n, x, [i - p for i, p in zip(c, before, strict=True)]))
    else:
        n.emit(
            shape,
            lambda c: n.at(
                x,
                [_inside(n, mode, i - p, e, p, q) for i, p, q, e in zip(c, before, after, x.shape, strict=True)],
            ),
        )


def _padded(n: Node, x: Value, at: list[Expr]) -> Scalar:
    value = n.opt(2) if n.opset >= 11 else None
    guard = [g for p, e in zip(at, x.shape, strict=True) for g in (p, e - 1 - p)]
    fill: float | int | bool = 0
    if n.opset < 11:
        fill = float(n.attr("value", 0.0))
    elif value is not None and value.data is not None:
        fill = value.data.ravel()[0].item()
    elif value is not None:
        inside = n.at(x, at, guard, 0)
        shown: Scalar = scalar.const(True, dtype.boolean)
        for g in guard:
            if not affine.nonneg(g):
                shown = op("and", shown, op("le", const(0, dtype.i32), number(g, dtype.i32)))
        return select(shown, inside, n.single(value))
    return n.at(x, at, guard, fill)


def _inside(n: Node, mode: str, i: Expr, extent: Expr, before: Expr, after: Expr) -> Expr:
    """The place of an axis that stands for place i of its padded form."""
    last = extent - 1
    if before.constant == 0 and after.constant == 0:
        return i
    if mode == "edge":
        return affine.maximum(affine.minimum(i, last), 0)
    if mode == "reflect":
        far = affine.maximum(i, -i)
        return affine.maximum(affine.minimum(affine.minimum(far, last * 2 - far), last), 0)
    if mode == "wrap":
        if extent.constant is None:
            n.fail("wrap padding of an axis of unknown size", "Fix the size with --dim")
        return affine.mod(i, extent.constant)
    n.fail(f"the mode {mode!r}")


@operator("DepthToSpace")
def _depth_to_space(n: Node) -> None:
    x, b = n.x(), int(n.attr("blocksize"))
    channels = x.shape[1].constant
    if channels is None or channels % (b * b):
        n.fail(f"{x.shape[1]} channels in blocks of {b} x {b}")
    depth, column_first = channels // (b * b), n.attr("mode", "DCR") == "DCR"

    def body(c: list[Expr]) -> Scalar:
        block = affine.mod(c[2], b) * b + affine.mod(c[3], b)
        channel = block * depth + c[1] if column_first else c[1] * (b * b) + block
        return n.at(x, [c[0], channel, affine.floordiv(c[2], b), affine.floordiv(c[3], b)])

    n.emit([x.shape[0], depth, x.shape[2] * b, x.shape[3] * b], body)


@operator("SpaceToDepth")
def _space_to_depth(n: Node) -> None:
    x, b = n.x(), int(n.attr("blocksize"))
    channels = x.shape[1].constant
    if channels is None:
        n.fail("an unknown number of channels")
    crd = n.attr("mode", "DCR") == "CRD"
    for e in x.shape[2:]:
        n.importer.require_zero(affine.mod(e, b), n.label)

    def body(c: list[Expr]) -> Scalar:
        block, channel = affine.floordiv(c[1], channels), affine.mod(c[1], channels)
        if crd:
            block, channel = affine.mod(c[1], b * b), affine.floordiv(c[1], b * b)
        row = c[2] * b + affine.floordiv(block, b)
        return n.at(x, [c[0], channel, row, c[3] * b + affine.mod(block, b)])

    n.emit([x.shape[0], channels * b * b, *(affine.floordiv(e, b) for e in x.shape[2:])], body)


@operator("Trilu", since=14)
def _trilu(n: Node) -> None:
    x, upper = n.x(), bool(n.attr("upper", 1))
    k = (n.ints(1, "the diagonal") or [affine.const(0)])[0]

    def body(c: list[Expr]) -> Scalar:
        distance = c[-1] - c[-2] - k if upper else c[-2] - c[-1] + k
        if x.dtype is dtype.boolean:
            return n.at(x, c, [distance], False)
        return n.at(x, c, [distance], 0)

    n.emit(x.shape, body)


@operator("CenterCropPad", since=18)
def _center_crop_pad(n: Node) -> None:
    x = n.x()
    wanted = n.ints(1, "the shape") or []
    axes = n.attr("axes") or list(range(x.rank))
    shape, shift = list(x.shape), [affine.const(0)] * x.rank
    for a, size in zip(axes, wanted, strict=True):
        k = n.norm_axis(int(a), x.rank)
        lo, hi = affine.bounds(x.shape[k] - size)
        if lo < 0 < hi:
            n.fail(
                "an axis that is cropped for some sizes and padded for others",
                "Give the dimensions other ranges",
            )
        crop = affine.floordiv(x.shape[k] - size, 2)
        shift[k] = crop if lo >= 0 else -affine.floordiv(size - x.shape[k], 2)
        shape[k] = size

    def body(c: list[Expr]) -> Scalar:
        at = [i + s for i, s in zip(c, shift, strict=True)]
        return n.at(x, at, [g for p, e in zip(at, x.shape, strict=True) for g in (p, e - 1 - p)], 0)

    n.emit(shape, body)
