"""Storage layouts: which axis of each tensor is innermost in memory.

Inputs, outputs and constants are row-major. Every other tensor is laid out as the bind that makes it likes to write it: the
axis that suits vectors best goes innermost, the others keep their order. That one rule gives channels-last activations behind
convolutions (the output channel is the one axis along which the image operand does not move) and row-major ones elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tang_edge.ir import affine, dtype, scalar
from tang_edge.ir.affine import Var
from tang_edge.ir.tensor import Bind, Program, TensorType, walk
from tang_edge.rewrite.constants import is_prologue
from tang_edge.schedule.addresses import Layout, Placed, place
from tang_edge.schedule.analysis import accesses, main_fold, vector_score
from tang_edge.schedule.limits import Limits


def stored(t: TensorType, limits: Limits) -> dtype.DType:
    """The dtype that holds a tensor on a class of devices."""
    return dtype.BY_NAME[limits.storage(t.dtype.name)]


def innermost(order: Layout, axis: int) -> Layout:
    """The layout with one axis moved innermost."""
    return (*(a for a in order if a != axis), axis)


def _natural(bind: Bind, layouts: Mapping[str, Layout]) -> Layout:
    """The layout of the first tensor that an element-wise bind reads axis by axis, else row-major."""
    rank = len(bind.axes)
    for r in sorted(scalar.reads(bind.expr), key=str):
        order = layouts.get(r.tensor)
        if order is None or len(order) != rank or order == tuple(range(rank)):
            continue
        own = [affine.variables(c) <= {a} for c, a in zip(r.view.coords, bind.axes, strict=True)]
        if all(own) and r.view.coords[order[-1]] is affine.as_expr(bind.axes[order[-1]]):
            return order
    return tuple(range(rank))


def best_axis(
    bind: Bind, placed: Mapping[str, Placed], constants: Collection[str], lanes: int, steps: Mapping[Var, int | None]
) -> tuple[Var | None, float]:
    """The output axis that suits vectors best, given the step of the store along each axis."""
    fold = main_fold(bind)
    reads = accesses(bind.expr, placed, constants)
    scored = [
        (vector_score(bind, a, reads, lanes, steps[a], fold is not None), k, a)
        for k, a in enumerate(bind.axes)
        if a.extent.constant != 1
    ]
    if not scored:
        return None, 0.0
    score, _, axis = max(scored, key=lambda s: (s[0], s[1]))
    return axis, score


def assign(program: Program, limits: Limits, lanes: int) -> dict[str, Placed]:
    """The place of every tensor of a program. An Alloc takes the layout that its first writer prefers."""
    types = program.types()
    fixed = {i.name for i in program.inputs} | {c.name for c in program.constants} | {t for _, t in program.outputs}
    constants = {c.name for c in program.constants} | is_prologue(program)
    layouts: dict[str, Layout] = {n: tuple(range(len(types[n].shape))) for n in types if n in fixed}
    placed = {n: place(types[n], None, stored(types[n], limits)) for n in layouts}
    for item in walk(program.items):
        name = item.store.tensor if isinstance(item, Bind) and item.store else getattr(item, "name", "")
        if not isinstance(item, Bind) or name in layouts:
            continue
        order = tuple(range(len(item.axes)))
        if item.name not in constants:
            order = _preferred(item, placed, constants, layouts, lanes)
        layouts[name] = order
        placed[name] = place(types[name], order, stored(types[name], limits))
    return placed


def _preferred(
    bind: Bind, placed: Mapping[str, Placed], constants: Collection[str], layouts: Mapping[str, Layout], lanes: int
) -> Layout:
    natural = _natural(bind, layouts)
    if main_fold(bind) is None:
        return natural
    axis, score = best_axis(bind, placed, constants, lanes, dict.fromkeys(bind.axes, 1))
    return natural if axis is None or score < 0.1 else innermost(natural, bind.axes.index(axis))
