"""Shapes: what is known without looking at data, and changes of shape that keep the elements."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tang_edge.ir import affine, dtype
from tang_edge.ir.affine import Expr
from tang_edge.ir.scalar import Scalar, cast, const, op
from tang_edge.onnx_in import reshape, weights
from tang_edge.onnx_in.node import Node, number
from tang_edge.onnx_in.ops.elementwise import target_dtype
from tang_edge.onnx_in.table import operator
from tang_edge.onnx_in.values import FOLD_LIMIT, Array, Value, constant


def objects(items: Sequence[Expr | int]) -> Array:
    """A vector of expressions as an object array."""
    out = np.empty(len(items), dtype=object)
    out[:] = list(items)
    return out


@operator("Shape")
def _shape(n: Node) -> None:
    n.give(objects(n.x().shape[n.attr("start", 0) : n.attr("end")]), dtype.i64)


@operator("Size")
def _size(n: Node) -> None:
    n.give(objects([reshape.product(n.x().shape)]).reshape(()), dtype.i64)


@operator("Constant")
def _constant(n: Node) -> None:
    a = n.proto.attribute[0]
    if a.name == "value":
        data = weights.array_of(a.t, n.importer.folder, n.importer.allow_nan)
    elif a.name in ("value_int", "value_ints"):
        data = np.asarray(n.attr(a.name), dtype=np.int64)
    elif a.name in ("value_float", "value_floats"):
        data = np.asarray(n.attr(a.name), dtype=np.float32)
    else:
        n.fail(f"a constant given as {a.name}", "Export dense numbers")
    n.results[0] = constant(n.scope.ir_name(n.proto.output[0]), data)


@operator("ConstantOfShape", since=9)
def _constant_of_shape(n: Node) -> None:
    shape = n.ints(0, "the shape") or []
    proto = n.attr("value")
    fill = np.zeros(1, np.float32) if proto is None else weights.array_of(proto, None, n.importer.allow_nan)
    sizes = [e.constant for e in shape]
    dt = dtype.from_numpy(fill.dtype)
    if all(s is not None for s in sizes) and math.prod(s or 0 for s in sizes) <= FOLD_LIMIT:
        n.give(np.full([s or 0 for s in sizes], fill.ravel()[0], dtype=fill.dtype), dt)
    else:
        n.emit(shape, lambda c: const(fill.ravel()[0].item(), dt))


@operator("EyeLike", since=9)
def _eye_like(n: Node) -> None:
    x = n.x()
    elem = n.attr("dtype")
    dt = x.dtype if elem is None else target_dtype(n, int(elem))
    k = int(n.attr("k", 0))
    n.emit(x.shape, lambda c: cast(op("eq", number(c[0] + k, dtype.i32), number(c[1], dtype.i32)), dt))


@operator("Range", since=11)
def _range(n: Node) -> None:
    """start, start + delta, ...: `fold` has taken the static ones; here the bounds are expressions."""
    dt = n.x().dtype
    parts = [n.ints(k, "a bound of the range") for k in range(3)] if dt.is_int else None
    if parts is None:
        n.fail("a range of floats that is computed", "Make it a constant in the export")
    start, limit, delta = (p[0] if p else affine.const(0) for p in parts)
    step = delta.constant
    if not step:
        n.fail("a range whose step is not a constant", "Make it a constant in the export")
    distance = limit - start if step > 0 else start - limit
    count = affine.maximum(affine.floordiv(distance + abs(step) - 1, abs(step)), 0)
    n.emit([count], lambda c: number(start + c[0] * step, dt))


@operator("Reshape", since=5)
def _reshape(n: Node) -> None:
    target = n.ints(1, "the shape") or []
    reshaped(n, n.x(), resolve(n, n.x().shape, target, bool(n.attr("allowzero", 0))))


def resolve(n: Node, source: Sequence[Expr], target: Sequence[Expr], allow_zero: bool) -> list[Expr]:
    """The target shape with 0 (keep) and -1 (the rest) filled in; equal factors cancel before dividing."""
    out: list[Expr | None] = []
    for k, t in enumerate(target):
        if t.constant == 0 and not allow_zero:
            if k >= len(source):
                n.fail(f"the shape keeps axis {k} of a tensor of rank {len(source)}")
            out.append(source[k])
        else:
            out.append(None if t.constant == -1 else n.importer.settle(t))
    if None not in out:
        return [e for e in out if e is not None]
    rest, divisors = list(source), [e for e in out if e is not None]
    for d in list(divisors):
        if d in rest:
            rest.remove(d)
            divisors.remove(d)
    top, bottom = reshape.product(rest), reshape.product(divisors)
    q = reshape.exact_quotient(top, bottom)
    if q is None:
        divisor = bottom.constant
        if not divisor:
            n.fail(f"the size -1 is ({top}) / ({bottom}), which is not a polynomial", _SPLIT_REMEDY)
        n.importer.require_zero(affine.mod(top, divisor), n.label)
        q = affine.floordiv(top, divisor)
    return [q if e is None else e for e in out]


_SPLIT_REMEDY = "Give the dimensions fixed sizes or a declared multiple (--dim name=lo..hi:multiple)"


def reshaped(n: Node, x: Value, target: Sequence[Expr]) -> None:
    """Bind output 0 to x with the target shape."""
    source = [n.importer.settle(e) for e in x.shape]
    if any(e.constant == 0 for e in (*source, *target)):
        n.emit(target, lambda c: const(0, x.dtype))  # no elements: nothing to read
        return
    r = reshape.refine(source, target, n.same)
    if r is None:
        n.same(reshape.product(source), reshape.product(target))
        if reshape.linear(source, target, [affine.const(0)] * len(target)) is None:
            shapes = f"[{', '.join(map(str, source))}] to [{', '.join(map(str, target))}]"
            n.fail(f"reshaping {shapes} splits symbolic extents across each other", _SPLIT_REMEDY)
        n.emit(target, lambda c: n.at(x, reshape.linear(source, target, c) or []))
        return
    ext = r.extents
    if all(ext[k].constant is not None for parts in r.targets for k in parts[1:]):

        def body(c: list[Expr]) -> Scalar:
            fine = {k: e for p, i in zip(r.targets, c, strict=True) for k, e in (reshape.split(p, i, ext) or {}).items()}
            return n.at(x, [reshape.merged(p, [fine[k] for k in range(len(ext))], ext) for p in r.sources])

        n.emit(target, body)
        return
    order = [k for parts in r.targets for k in parts]
    at = {k: place for place, k in enumerate(order)}

    def fine(c: list[Expr]) -> list[Expr]:
        return [c[at[k]] for k in range(len(ext))]

    n.results[0] = n.importer.store(
        n.scope.ir_name(n.proto.output[0]),
        target,
        [ext[k] for k in order],
        lambda c: n.at(x, [reshape.merged(p, fine(c), ext) for p in r.sources]),
        lambda c: [reshape.merged(p, fine(c), ext) for p in r.targets],
        n,
    )


@operator("Flatten")
def _flatten(n: Node) -> None:
    x = n.x()
    axis = int(n.attr("axis", 1))
    axis = axis + x.rank if axis < 0 else axis
    reshaped(n, x, [reshape.product(x.shape[:axis]), reshape.product(x.shape[axis:])])


@operator("Squeeze")
def _squeeze(n: Node) -> None:
    x = n.x()
    given = n.axes_list(1)
    ones = [k for k, e in enumerate(x.shape) if e.constant == 1]
    gone = ones if given is None else [n.norm_axis(a, x.rank) for a in given]
    for k in gone:
        n.same(x.shape[k], affine.const(1))
    kept = [k for k in range(x.rank) if k not in gone]

    def body(c: list[Expr]) -> Scalar:
        put = dict(zip(kept, c, strict=True))
        return n.at(x, [put.get(k, affine.const(0)) for k in range(x.rank)])

    n.emit([x.shape[k] for k in kept], body)


@operator("Unsqueeze")
def _unsqueeze(n: Node) -> None:
    x = n.x()
    given = n.axes_list(1) or []
    rank = x.rank + len(given)
    new = [n.norm_axis(a, rank) for a in given]
    rest = iter(x.shape)
    shape = [affine.const(1) if k in new else next(rest) for k in range(rank)]
    n.emit(shape, lambda c: n.at(x, [e for k, e in enumerate(c) if k not in new]))


@operator("NonZero", since=9)
def _non_zero(n: Node) -> None:
    """Only of a constant: its result's size depends on its data."""
    data = n.needed(0, "the input")
    n.give(np.array(np.nonzero(np.atleast_1d(data)), dtype=np.int64), dtype.i64)
