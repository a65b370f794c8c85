"""Folders: what small known tensors (constants and shape arithmetic) become while the model is read.

Each takes the node and one array an input (None for an absent one) and gives (array, dtype), or a list of
them. When an input holds expressions all arrays are object arrays. TypeError, ValueError and NotFoldable
mean: cannot be known now, bind the operator instead. Only correctly rounded operations are folded, so that
every machine gives the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from itertools import accumulate
from typing import Any, Final

import numpy as np

from tang_edge.ir import affine, dtype
from tang_edge.ir.affine import Expr
from tang_edge.ir.dtype import DType
from tang_edge.onnx_in.node import Node
from tang_edge.onnx_in.ops.elementwise import target_dtype
from tang_edge.onnx_in.reshape import exact_quotient
from tang_edge.onnx_in.table import NotFoldable, folder
from tang_edge.onnx_in.values import Array, expr_of

Folded = tuple[Array, DType]


def _elementwise(fn: Callable[..., Any], *arrays: Array) -> Array:
    out = np.frompyfunc(fn, len(arrays), 1)(*arrays)
    return np.asarray(out, dtype=object).reshape(np.broadcast_shapes(*(a.shape for a in arrays)))


def _divide(a: Any, b: Any) -> Any:
    """Division of integers, toward zero."""
    x, y = expr_of(a), expr_of(b)
    if x.constant is not None and y.constant:
        q = abs(x.constant) // abs(y.constant)
        return q if (x.constant < 0) == (y.constant < 0) else -q
    exact = exact_quotient(x, y)
    if exact is not None:
        return exact
    if y.constant is None or y.constant < 1 or affine.bounds(x)[0] < 0:
        raise NotFoldable
    return affine.floordiv(x, y.constant)


def _modulo(a: Any, b: Any) -> Any:
    x, y = expr_of(a), expr_of(b)
    if y.constant is None or y.constant < 1:
        raise NotFoldable
    return affine.mod(x, y.constant)


def _compare(decide: Callable[[int, int], bool | None]) -> Callable[[Any, Any], bool]:
    def test(a: Any, b: Any) -> bool:
        result = decide(*affine.bounds(expr_of(a) - expr_of(b)))
        if result is None:
            raise NotFoldable
        return result

    return test


def _min(a: Any, b: Any) -> Expr:
    return affine.minimum(expr_of(a), expr_of(b))


def _max(a: Any, b: Any) -> Expr:
    return affine.maximum(expr_of(a), expr_of(b))


_EQUAL = _compare(lambda lo, hi: True if lo == hi == 0 else False if lo > 0 or hi < 0 else None)
_LESS = _compare(lambda lo, hi: True if hi < 0 else False if lo >= 0 else None)

# name -> (for expressions, for numbers); None: not for these
_ARITHMETIC: Final[dict[str, tuple[Callable[..., Any] | None, Callable[..., Any] | None]]] = {
    "Add": (lambda a, b: a + b, np.add),
    "Sub": (lambda a, b: a - b, np.subtract),
    "Mul": (lambda a, b: a * b, np.multiply),
    "Div": (_divide, np.divide),
    "Mod": (_modulo, None),
    "Min": (_min, np.minimum),
    "Max": (_max, np.maximum),
    "Neg": (lambda a: -a, np.negative),
    "Abs": (lambda a: _max(a, -a), np.abs),
    "Floor": (None, np.floor),
    "Ceil": (None, np.ceil),
    "Sqrt": (None, np.sqrt),
    "Not": (None, np.logical_not),
    "And": (None, np.logical_and),
    "Or": (None, np.logical_or),
}


@folder(*_ARITHMETIC)
def _arithmetic(n: Node, *arrays: Array) -> Folded:
    symbolic, numeric = _ARITHMETIC[n.op]
    dt = n.x().dtype
    if dt.is_int and (n.op != "Mod" or not n.attr("fmod", 0)):
        if symbolic is None:
            raise NotFoldable
        objects = [a.astype(object) for a in arrays]
        if len(objects) > 2:
            return reduce(lambda a, b: _elementwise(symbolic, a, b), objects), dt
        return _elementwise(symbolic, *objects), dt
    if numeric is None or any(a.dtype == object for a in arrays):
        raise NotFoldable
    return np.asarray(reduce(numeric, arrays) if len(arrays) > 1 else numeric(*arrays)).astype(dt.numpy), dt


@folder("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual")
def _comparison(n: Node, a: Array, b: Array) -> Folded:
    if not n.x().dtype.is_int:
        raise NotFoldable
    a, b = a.astype(object), b.astype(object)
    if n.op == "Equal":
        return _elementwise(_EQUAL, a, b).astype(bool), dtype.boolean
    low, high = (b, a) if n.op in ("Greater", "LessOrEqual") else (a, b)
    less = _elementwise(_LESS, low, high).astype(bool)
    return ~less if n.op.endswith("OrEqual") else less, dtype.boolean


@folder("Where")
def _where(n: Node, cond: Array, a: Array, b: Array) -> Folded:
    return np.where(cond.astype(bool), a, b), n.x(1).dtype


@folder("Cast")
def _cast(n: Node, a: Array) -> Folded:
    to = target_dtype(n, int(n.attr("to")))
    if a.dtype == object:
        if not ((to.is_int and to.bits >= 32) or to.is_float):
            raise NotFoldable
        return a, to
    if a.dtype.kind == "f" and to.is_int:
        lo, hi = to.limits()
        if not np.isfinite(a).all() or (a < lo).any() or (a > hi).any():
            raise NotFoldable
    return a.astype(to.numpy), to


@folder("Identity")
def _identity(n: Node, a: Array) -> Folded:
    return a, n.x().dtype


@folder("Reshape")
def _reshape(n: Node, a: Array, shape: Array) -> Folded:
    target = [int(s) for s in shape.ravel()]
    if not n.attr("allowzero", 0):
        target = [a.shape[k] if s == 0 else s for k, s in enumerate(target)]
    return a.reshape(target), n.x().dtype


@folder("Squeeze")
def _squeeze(n: Node, a: Array, axes: Array | None = None) -> Folded:
    given = n.attr("axes") if axes is None else [int(k) for k in axes.ravel()]
    return np.squeeze(a, None if given is None else tuple(given)), n.x().dtype


@folder("Unsqueeze")
def _unsqueeze(n: Node, a: Array, axes: Array | None = None) -> Folded:
    given = n.attr("axes") if axes is None else [int(k) for k in axes.ravel()]
    return np.expand_dims(a, tuple(given)), n.x().dtype


@folder("Flatten")
def _flatten(n: Node, a: Array) -> Folded:
    axis = n.norm_axis(int(n.attr("axis", 1)), a.ndim + 1)
    return a.reshape(math.prod(a.shape[:axis]), -1), n.x().dtype


@folder("Transpose")
def _transpose(n: Node, a: Array) -> Folded:
    return np.transpose(a, n.attr("perm")), n.x().dtype


@folder("Concat")
def _concat(n: Node, *arrays: Array) -> Folded:
    return np.concatenate(arrays, axis=int(n.attr("axis"))), n.x().dtype


@folder("Gather")
def _gather(n: Node, a: Array, index: Array) -> Folded:
    return np.asarray(np.take(a, index.astype(np.int64), axis=int(n.attr("axis", 0)))), n.x().dtype


@folder("Slice")
def _slice(n: Node, a: Array, *rest: Array | None) -> Folded:
    def vector(k: int, name: str) -> list[int] | None:
        if n.opset < 10:
            return n.attr(name)  # type: ignore[no-any-return]
        given = rest[k] if k < len(rest) else None
        return None if given is None else [int(e) for e in given.ravel()]

    starts, ends = vector(0, "starts") or [], vector(1, "ends") or []
    axes = vector(2, "axes") or list(range(len(starts)))
    steps = (vector(3, "steps") if n.opset >= 10 else None) or [1] * len(starts)
    key = [slice(None)] * a.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        size = a.shape[axis]
        stop: int | None = end if end >= -size else (None if step < 0 else 0)
        key[axis] = slice(start, stop, step)
    return a[tuple(key)], n.x().dtype


@folder("Split")
def _split(n: Node, a: Array, sizes: Array | None = None) -> list[Folded]:
    axis, parts = int(n.attr("axis", 0)), len(n.proto.output)
    given = n.attr("split") if sizes is None else [int(s) for s in sizes.ravel()]
    if given is None:
        chunk = -(-a.shape[axis] // parts)
        cuts = [chunk * k for k in range(1, parts)]
    else:
        cuts = list(accumulate(given))[:-1]
    return [(p, n.x().dtype) for p in np.split(a, cuts, axis=axis)]


@folder("ReduceProd", "ReduceSum", "ReduceMax", "ReduceMin")
def _reduce(n: Node, a: Array, axes: Array | None = None) -> Folded:
    if not n.x().dtype.is_int:
        raise NotFoldable
    given = n.attr("axes") if axes is None else [int(k) for k in axes.ravel()]
    if given is None and n.attr("noop_with_empty_axes", 0):
        return a, n.x().dtype
    fn: Callable[[Any, Any], Any] = {
        "ReduceProd": lambda x, y: x * y,
        "ReduceSum": lambda x, y: x + y,
        "ReduceMax": _max,
        "ReduceMin": _min,
    }[n.op]
    out = a.astype(object)
    for k in sorted((k % a.ndim for k in given), reverse=True) if given else range(a.ndim - 1, -1, -1):
        out = np.asarray(np.frompyfunc(fn, 2, 1).reduce(out, axis=k, keepdims=bool(n.attr("keepdims", 1))), object)
    return out, n.x().dtype


@folder("Range")
def _range(n: Node, start: Array, limit: Array, delta: Array) -> Folded:
    dt = n.x().dtype
    if any(v.dtype == object for v in (start, limit, delta)):
        raise NotFoldable
    a, b, d = (v.ravel()[0] for v in (start, limit, delta))
    if d == 0:
        n.fail("a step of 0")
    count = max(0, int(np.ceil((b - a) / d)))
    if count > 4096:
        raise NotFoldable
    return (a + np.arange(count) * d).astype(dt.numpy), dt


@folder("Expand")
def _expand(n: Node, a: Array, shape: Array) -> Folded:
    target = np.broadcast_shapes(a.shape, tuple(int(s) for s in shape.ravel()))
    if math.prod(target) > 4096:
        raise NotFoldable
    return np.broadcast_to(a, target).copy(), n.x().dtype


@folder("Tile")
def _tile(n: Node, a: Array, times: Array) -> Folded:
    if a.size * math.prod(int(t) for t in times.ravel()) > 4096:
        raise NotFoldable
    return np.tile(a, [int(t) for t in times.ravel()]), n.x().dtype
