"""Casts, and folding arrays under a monoid."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tang_edge.errors import CompilerBug
from tang_edge.ir.dtype import DType, Kind
from tang_edge.ir.interp_contract import Array
from tang_edge.ir.ops import OPS
from tang_edge.ir.scalar import Const, Monoid, Op, Scalar, St

UFUNCS: Mapping[str, Any] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
}


def storage(dt: DType, wide: bool) -> np.dtype[Any]:
    """The NumPy type that holds a dtype; float64 for every float type when `wide`."""
    return np.dtype(np.float64) if wide and dt.is_float else np.dtype(dt.numpy)


def cast(x: Array, source: DType, target: DType, wide: bool = False) -> Array:
    """x converted: float to integer saturates and maps NaN to 0, integers wrap, bool tests for non-zero."""
    if target.kind is Kind.BOOL:
        return np.asarray(x != 0)
    if not (source.is_float and target.is_int):
        return x.astype(storage(target, wide))
    lo, hi = target.limits()
    with np.errstate(invalid="ignore"):
        whole = np.trunc(np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=math.inf, neginf=-math.inf))
        inside = (whole >= float(lo)) & (whole < float(hi + 1))  # both ends are exact in float64
        result = np.where(inside, whole, 0).astype(target.numpy)
        limit = np.where(whole < 0, np.asarray(lo, target.numpy), np.asarray(hi, target.numpy))
    return np.where(inside, result, limit)


def ufunc_of(m: Monoid) -> Any:
    """The NumPy function of a monoid that is one operator on one component, else None."""
    body = m.combine[0]
    if len(m.combine) > 1 or not isinstance(body, Op) or body.name not in UFUNCS:
        return None
    sides = {(a.side, a.k) for a in body.args if isinstance(a, St)}
    return UFUNCS[body.name] if sides == {("l", 0), ("r", 0)} else None


def fold(m: Monoid, states: Sequence[Array], where: tuple[int, ...], wide: bool = False) -> tuple[Array, ...]:
    """States (an array a component, broadcastable) combined over the axes `where`, in row-major order."""
    ufunc = ufunc_of(m)
    if ufunc is not None:
        start = np.asarray(m.identity[0].value, dtype=states[0].dtype)
        return (np.asarray(ufunc.reduce(states[0], axis=where, dtype=start.dtype, initial=start)),)
    front = [np.moveaxis(s, where, range(len(where))) for s in states]
    parts = [s.reshape((math.prod(s.shape[: len(where)]), *s.shape[len(where) :])) for s in front]
    n = parts[0].shape[0]
    if n == 0:
        return tuple(np.full(p.shape[1:], i.value, dtype=p.dtype) for p, i in zip(parts, m.identity, strict=True))
    while n > 1:
        even, last = n // 2 * 2, [p[n - 1 :] for p in parts]
        pairs = combine_states(m, [p[0:even:2] for p in parts], [p[1:even:2] for p in parts], wide)
        parts = [_join(p, q) for p, q in zip(pairs, last, strict=True)] if n % 2 else list(pairs)
        n = even // 2 + n % 2
    return tuple(p[0] for p in parts)


def _join(head: Array, tail: Array) -> Array:
    shape = np.broadcast_shapes(head.shape[1:], tail.shape[1:])
    return np.concatenate([np.broadcast_to(x, (x.shape[0], *shape)) for x in (head, tail)])


def combine_states(m: Monoid, left: Sequence[Array], right: Sequence[Array], wide: bool = False) -> tuple[Array, ...]:
    """The monoid's combine, on arrays."""
    memo: dict[Scalar, Array] = {}

    def go(x: Scalar) -> Array:
        if x not in memo:
            memo[x] = step(x)
        return memo[x]

    def step(x: Scalar) -> Array:
        match x:
            case St():
                return (left if x.side == "l" else right)[x.k]
            case Const():
                return np.asarray(x.value, dtype=storage(x.dtype, wide))
            case Op(name="cast"):
                return cast(go(x.args[0]), x.args[0].dtype, x.dtype, wide)
            case Op():
                return np.asarray(OPS[x.name].evaluate(*map(go, x.args)))
            case _:
                raise CompilerBug(f"{x} in the combine of {m.name}")

    return tuple(go(x) for x in m.combine)
