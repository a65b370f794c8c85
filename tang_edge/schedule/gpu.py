"""Default schedules for WebGPU-like devices.

points      one invocation an output element, lanes along the store's innermost axes
registers   a tile of TM x TN outputs an invocation, in named registers, operands straight from memory
workgroup   the same, operands staged in workgroup memory BK reduced elements at a time (GPUs; CPU drivers pay for barriers)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tang_edge.ir import affine
from tang_edge.ir.affine import Expr, Var
from tang_edge.ir.scalar import Comprehension
from tang_edge.ir.tensor import Bind
from tang_edge.schedule.addresses import Placed
from tang_edge.schedule.analysis import Access, accesses, main_fold, typical
from tang_edge.schedule.cpu import (
    Scheduled,
    merged,
    order_outputs,
    pack_constants,
    placed_with,
    points_axis,
    reduced_order,
    step_of,
)
from tang_edge.schedule.layout import best_axis
from tang_edge.schedule.limits import Limits
from tang_edge.schedule.lower import target_of
from tang_edge.schedule.nest import Kind, Nest, Tail, mark, nest, reorder, split, stage

LANES = 64  # invocations of a workgroup without workgroup memory


def options(
    bind: Bind, placed: Mapping[str, Placed], constants: Collection[str], limits: Limits
) -> Sequence[tuple[str, Scheduled]]:
    """The tagged default schedules of a bind, the best for a GPU first, the safest last."""
    found: list[tuple[str, Scheduled]] = []
    fold = main_fold(bind)
    if fold is not None:
        found += _tiled(bind, fold, placed, constants, limits)
    return [*found, ("points", Scheduled(bind, (), (plain(bind, placed),)))]


def plain(bind: Bind, placed: Mapping[str, Placed]) -> Nest:
    """The schedule `points`."""
    out = target_of(nest(bind, None))
    store = placed[out.tensor].address(out.coords)
    n = order_outputs(merged(nest(bind, main_fold(bind)), placed, store), store)
    names = [x.var.name for x in n.loops if not x.reduce]
    lanes: list[str] = []
    left = LANES
    for name in reversed(names):
        extent = typical(n.loop(name).var.extent)
        width = min(left, 1 << max(0, (extent - 1).bit_length()))
        if width > 1 and len(lanes) < 2:
            n = split(n, name, width, Tail.GUARD)
            lanes.insert(0, name + "i")
            left //= width
    return _bound(n, lanes, [])


def _bound(n: Nest, lanes: Sequence[str], unrolled: Sequence[str]) -> Nest:
    """Grid loops, then lanes, then reduced loops, then register loops."""
    outer = [x.var.name for x in n.loops if not x.reduce and x.var.name not in (*lanes, *unrolled)]
    reduced = [x.var.name for x in n.loops if x.reduce]
    n = reorder(n, *outer, *lanes, *reduced, *unrolled)
    return mark(mark(mark(n, Kind.GRID, *outer), Kind.LANE, *lanes), Kind.UNROLL, *unrolled)


def _pow2(n: int, most: int) -> int:
    return min(most, 1 << max(0, (max(1, n) - 1).bit_length()))


def _tiled(
    bind: Bind, fold: Comprehension, placed: Mapping[str, Placed], constants: Collection[str], limits: Limits
) -> list[tuple[str, Scheduled]]:
    out = target_of(nest(bind, None))
    store = placed[out.tensor].address(out.coords)
    axis, score = best_axis(bind, placed, constants, 1, {a: step_of(store, a) for a in bind.axes})
    if axis is None or score < 0.05 or typical(axis.extent) < 2:
        return []
    reads = tuple(a for y in fold.lifts for a in accesses(y, placed, constants))
    if all(r.moves(axis) for r in reads):
        return []  # nothing is shared between neighbours: a tile would save no loads
    order = reduced_order(fold, reads)
    strided = [r for r in reads if not (r.constant and r.step(axis) == 1)]
    width = axis.extent.constant or 1
    new, prologue, _ = pack_constants(bind, strided, axis, order, width, placed)
    places = placed_with(placed, prologue)
    names = [v.name for v in order]
    found: list[tuple[str, Scheduled]] = []
    main = main_fold(new)
    assert main is not None
    for tag, lanes in (("workgroup", limits.invocations), ("registers", LANES)):
        base = merged(nest(new, main), places, store, keep=(axis,))
        points = points_axis(base, axis, reads, store)
        n = _tile(order_outputs(base, store), axis, points, names, lanes, limits.tile)
        if tag == "workgroup":
            staged = _staged(n, main, order, places, limits, constants)
            if staged is None or points is None or typical(points.extent) < 8:
                continue
            n = staged
        found.append((tag, Scheduled(new, prologue, (n,))))
    return found


def _tile(n: Nest, axis: Var, points: Var | None, order: Sequence[str], lanes: int, tile: tuple[int, int]) -> Nest:
    """Lanes and registers over the vector axis and the points axis."""
    v = axis.name
    wide = typical(axis.extent)
    tn = min(tile[1], _pow2(-(-wide // 4), tile[1])) if points is not None else 1
    lx = _pow2(-(-wide // tn), 16 if points is not None else lanes)
    n = split(split(n, v, lx * tn, Tail.GUARD), v + "i", lx)
    lane_names, unrolled = [v + "ii"], [v + "io"]
    if points is not None:
        p = points.name
        high = typical(points.extent)
        tm = min(tile[0], _pow2(high, tile[0]))
        ly = min(max(1, lanes // lx), 16, _pow2(-(-high // tm), 16))
        n = split(split(n, p, ly * tm, Tail.GUARD), p + "i", ly)
        lane_names.insert(0, p + "ii")
        unrolled.insert(0, p + "io")
    n = _bound(n, lane_names, unrolled)
    return reorder(n, *order)


def _staged(
    n: Nest,
    fold: Comprehension,
    order: Sequence[Var],
    placed: Mapping[str, Placed],
    limits: Limits,
    constants: Collection[str],
) -> Nest | None:
    """Operands in workgroup memory, a block of the innermost reduced axis at a time; None when no block divides it."""
    inner = order[-1]
    block = _block(inner.extent)
    if block is None:
        return None
    n = split(n, inner.name, block)
    o, i = inner.name + "o", inner.name + "i"
    n = mark(n, Kind.UNROLL, i) if block <= 8 else n
    reads: list[Access] = [a for y in fold.lifts for a in accesses(y, placed, constants)]
    for r in reads:
        n = stage(n, r.read, o)
    size = sum(4 * _footprint(n, r, placed, i) for r in reads)
    return n if size <= limits.workgroup_memory else None


def _block(extent: Expr) -> int | None:
    known = affine.multiple_of(extent)
    for b in (8, 16, 12, 10, 9, 15, 7, 6, 5, 4):
        if known % b == 0:
            return b
    return extent.constant if extent.constant is not None and extent.constant <= 16 else None


def _footprint(n: Nest, r: Access, placed: Mapping[str, Placed], inner: str) -> int:
    e = affine.substitute(r.address, n.index)
    used = affine.variables(e).union(*(affine.variables(affine.substitute(g, n.index)) for g in r.read.view.guard))
    total = 1
    for x in n.loops:
        local = x.kind in (Kind.LANE, Kind.UNROLL) or x.var.name == inner
        if local and x.var in used:
            total *= x.var.extent.constant or 1
    return total
