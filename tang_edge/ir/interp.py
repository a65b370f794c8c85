"""The NumPy interpreter of tensor programs: what a program means. All devices are compared to it.

A scalar expression is evaluated for all points at once: each node becomes an array over only the axes that
it depends on. A reduction evaluates its lifts over out and reduced axes and folds; a sum of products is a
matrix multiplication. A bind whose largest intermediate exceeds `interp_eval.LIMIT` elements is evaluated in
pieces along its out axes.

With floats="f64" all floating-point arithmetic is in float64 and casts between float types do nothing: the
reference. With floats="declared" every operation rounds to its dtype; float16 sums accumulate in float32. floats="disturbed" is
float64 with every float tensor, inputs included, moved by its dtype's unit round-off: how well a model is conditioned, in
figures that depend on no machine's way of summing (`disturbed`).

A read that is out of bounds where its guard holds raises CompilerBug: every point is checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Literal

import numpy as np

from tang_edge.errors import CompilerBug, InputError
from tang_edge.ir import affine
from tang_edge.ir.affine import Dim, Expr
from tang_edge.ir.dtype import DType
from tang_edge.ir.interp_contract import Array, aligned
from tang_edge.ir.interp_eval import Evaluator
from tang_edge.ir.interp_fold import cast, storage
from tang_edge.ir.tensor import Alloc, Bind, If, Item, Loop, Program, TensorType

Floats = Literal["declared", "f64", "disturbed"]
Told = Callable[[int, int], None]  # items done, of how many
__all__ = ["Floats", "Told", "cast", "disturbed", "evaluate_bind", "infer_dims", "run", "untold"]


def untold(done: int, total: int) -> None:
    """No progress wanted."""


def run(
    program: Program,
    inputs: Mapping[str, Array],
    *,
    floats: Floats = "declared",
    keep: Container[str] | None = None,
    told: Told = untold,
) -> dict[str, Array]:
    """The outputs of a program by caller name, and the tensors whose name is in `keep` by name.

    `told` is called after each item at the top of the program.

    Raises InputError for missing inputs, wrong dtypes or shapes, and violated constraints.
    """
    dims = infer_dims(program, inputs)
    env: dict[str, Array] = {i.name: np.asarray(inputs[i.name]) for i in program.inputs}
    env.update({c.name: c.data for c in program.constants})
    if floats != "declared":
        env = {k: v.astype(np.float64) if v.dtype.kind == "f" else v for k, v in env.items()}
    if floats == "disturbed":
        env.update({i.name: disturbed(env[i.name], i.type.dtype) for i in program.inputs})
    kept = {k: v for k, v in env.items() if keep is not None and k in keep}
    with np.errstate(all="ignore"):
        for k, item in enumerate(program.items, 1):
            _run_items((item,), env, dims, floats, keep, kept)
            told(k, len(program.items))
    return kept | {name: env[tensor] for name, tensor in program.outputs}


def _run_items(
    items: Sequence[Item],
    env: dict[str, Array],
    dims: Mapping[str, int],
    floats: Floats,
    keep: Container[str] | None,
    kept: dict[str, Array],
) -> None:
    for item in items:
        match item:
            case Alloc():
                env[item.name] = _poison(item.type, dims, floats)
            case Bind(store=None):
                env[item.name] = evaluate_bind(item, env, dims, floats=floats)
            case Bind():
                value = evaluate_bind(item, env, dims, floats=floats)
                _store(item, value, env, dims, floats)
            case If():
                inner = dict(env)
                branch = item.then if bool(np.reshape(env[item.cond], -1)[0]) else item.orelse
                _run_items(branch, inner, dims, floats, keep, kept)
                env.update({name: inner[name] for name in item.results})
            case Loop():
                _run_loop(item, env, dims, floats, keep, kept)
        for name in item.results if isinstance(item, (If, Loop)) else (item.name,):
            if keep is not None and name in keep and name in env:
                kept[name] = env[name]


def _run_loop(
    item: Loop,
    env: dict[str, Array],
    dims: Mapping[str, int],
    floats: Floats,
    keep: Container[str] | None,
    kept: dict[str, Array],
) -> None:
    trip = int(np.reshape(env[item.trip], -1)[0]) if isinstance(item.trip, str) else affine.evaluate(item.trip, dims)
    state = {c.name: env[c.initial] for c in item.carried}
    for _ in range(trip):
        if item.cond is not None and not bool(np.reshape(state[item.cond], -1)[0]):
            break
        inner = env | state
        _run_items(item.body, inner, dims, floats, keep, kept)
        state = {c.name: inner[c.next] for c in item.carried}
    env.update(state)


def _poison(t: TensorType, dims: Mapping[str, int], floats: Floats) -> Array:
    """An array for a tensor that stores will fill; NaN or the greatest integer shows what they left out."""
    shape = [affine.evaluate(e, dims) for e in t.shape]
    value = math.nan if t.dtype.is_float else t.dtype.limits()[1]
    return np.full(shape, value, dtype=storage(t.dtype, floats != "declared"))


def _store(bind: Bind, value: Array, env: Mapping[str, Array], dims: Mapping[str, int], floats: Floats) -> None:
    assert bind.store is not None
    points = Evaluator(env, dims, floats != "declared", bind.axes)
    coords = [points.integer(e) for e in bind.store.coords]
    target = env[bind.store.tensor]
    for c, n in zip(coords, target.shape, strict=True):
        if value.size and (c.data.min() < 0 or c.data.max() >= n):
            raise CompilerBug(f"store out of bounds: {bind.store}", where=bind.name)
    if value.size:
        target[tuple(np.broadcast_to(aligned(c, bind.axes), value.shape) for c in coords)] = value


def evaluate_bind(bind: Bind, env: Mapping[str, Array], dims: Mapping[str, int], *, floats: Floats = "declared") -> Array:
    """The array of a bind (shape of its axes), given the tensors it reads and the sizes of dimensions."""
    points = Evaluator(env, dims, floats != "declared", bind.axes)
    out = np.empty([points.size(a) for a in bind.axes], dtype=storage(bind.expr.dtype, floats != "declared"))
    with np.errstate(all="ignore"):
        try:
            points.fill(out, bind.axes, bind.expr)
        except CompilerBug as bug:
            raise CompilerBug(bug.message, where=bind.name) from bug
        return disturbed(out, bind.expr.dtype) if floats == "disturbed" else out


def disturbed(value: Array, dtype: DType) -> Array:
    """Float elements moved by one unit round-off of their dtype, up or down.

    The direction is a hash of the element rounded to 32 bits: equal elements stay equal, so that ties do not break.
    """
    if not dtype.is_float:
        return value
    bits = np.asarray(value, np.float32).view(np.uint32)
    up = (bits * np.uint32(2654435769)) >> np.uint32(31)  # Knuth, The Art of Computer Programming, section 6.4
    return value * (1 + dtype.eps * (2.0 * up - 1))


def infer_dims(program: Program, inputs: Mapping[str, Array]) -> dict[str, int]:
    """The size of each named dimension from the inputs' shapes. Raises InputError where they do not fit."""
    sizes: dict[str, int] = {}
    waiting: list[tuple[str, Expr, int]] = []
    for i in program.inputs:
        if i.name not in inputs:
            raise InputError("missing", where=f"input {i.name}")
        array = np.asarray(inputs[i.name])
        if array.dtype != np.dtype(i.type.dtype.numpy):
            raise InputError(f"dtype {array.dtype}, expected {i.type.dtype}", where=f"input {i.name}")
        if array.ndim != len(i.type.shape):
            raise InputError(f"{array.ndim} axes, expected {i.type}", where=f"input {i.name}")
        waiting += [(i.name, e, n) for e, n in zip(i.type.shape, array.shape, strict=True)]
    for _ in range(len(program.dims) + 1):
        for _name, e, n in waiting:
            unknown = [d for d in affine.dims(e) if d.name not in sizes]
            if len(unknown) == 1:
                d = unknown[0]
                whole = e is affine.as_expr(d) * d.multiple
                sizes_of = [n] if whole and n in _legal(d) else [] if whole else _legal(d)
                found = [k for k in sizes_of if affine.evaluate(e, sizes | {d.name: k}) == n]
                if len(found) == 1:
                    sizes[d.name] = found[0]
    _check_sizes(program, waiting, sizes)
    return sizes


def _legal(d: Dim) -> range:
    return range(d.lo, d.hi + 1, d.multiple)


def _check_sizes(program: Program, entries: list[tuple[str, Expr, int]], sizes: Mapping[str, int]) -> None:
    for name, e, n in entries:
        missing = sorted(d.name for d in affine.dims(e) if d.name not in sizes)
        if missing or affine.evaluate(e, sizes) != n:
            raise InputError(f"size {n} does not fit {e} with {dict(sizes)}", where=f"input {name}")
    for c in program.constraints:
        left, right = affine.evaluate(c.left, sizes), affine.evaluate(c.right, sizes)
        if left != right:
            raise InputError(f"{c.left} = {left} but {c.right} = {right}", where=c.why)
