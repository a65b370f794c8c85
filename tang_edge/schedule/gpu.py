"""Default schedules for WebGPU-like devices.

split       a long reduction to few outputs in two passes (`split.py`), each like `vectors` or `points`
points      one invocation an output element, lanes along the store's innermost axes
registers   a tile of TM x TN outputs an invocation, in named registers, operands straight from memory; a few points and one
            vector where every operand moves along the vectors (a depthwise convolution)
workgroup   the same, operands staged in workgroup memory BK reduced elements at a time (GPUs; CPU drivers pay for barriers)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from tang_edge.ir import affine, scalar
from tang_edge.ir.affine import Expr, Var
from tang_edge.ir.scalar import Comprehension
from tang_edge.ir.tensor import Bind
from tang_edge.schedule.addresses import Placed
from tang_edge.schedule.analysis import Access, accesses, four_bytes, main_fold, typical, vector_dtypes_ok
from tang_edge.schedule.families import (
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
from tang_edge.schedule.split import split_reduction, within_turns, worth

LANES = 64  # invocations of a workgroup without workgroup memory
BUSY = 256  # workgroups that keep a large GPU busy


def options(
    bind: Bind, placed: Mapping[str, Placed], constants: Collection[str], limits: Limits
) -> Sequence[tuple[str, Scheduled]]:
    """The tagged default schedules of a bind, the best for a GPU first, the safest last."""
    parts, whole = within_turns(bind, limits.serial_turns)
    if parts:
        simple = replace(limits, vector_bytes=0)
        kinds = (("split", limits), ("split-points", simple))
        return [(tag, _passes(parts, whole, placed, constants, kind)) for tag, kind in kinds]
    fold = main_fold(bind)
    found = _tiled(bind, fold, placed, constants, limits) if fold is not None else []
    lanes = limits.lanes(4)
    if lanes > 1:
        rows = _rows(bind, fold, placed, constants, limits) if fold is not None and not found else []
        tag = "vectors" if found or rows else "registers"
        found += [(tag, s) for s in _vector_points(bind, fold, placed, constants, lanes)]
        found += [("registers", s) for s in rows]
    axis_worth = worth(bind, fold) if fold is not None else None
    if fold is not None and axis_worth is not None:
        two = split_reduction(bind, fold, axis_worth, limits.serial_turns)
        found.insert(0, ("split", _passes(*two, placed, constants, limits)))
    return [*found, ("points", Scheduled(bind, (), (plain(bind, placed),)))]


def _passes(
    parts: Sequence[Bind], whole: Bind, placed: Mapping[str, Placed], constants: Collection[str], limits: Limits
) -> Scheduled:
    """The schedule `split`: partial states, then their combination; each pass takes the best single-pass schedule."""
    places = placed_with(placed, parts)
    first = [_one_pass(p, places, constants, limits) for p in parts]
    return replace(_one_pass(whole, places, constants, limits), before=tuple(first))


def _one_pass(bind: Bind, placed: Mapping[str, Placed], constants: Collection[str], limits: Limits) -> Scheduled:
    lanes = limits.lanes(4)
    vectors = _vector_points(bind, main_fold(bind), placed, constants, lanes) if lanes > 1 else []
    return vectors[0] if vectors else Scheduled(bind, (), (plain(bind, placed),))


def _vector_points(
    bind: Bind, fold: Comprehension | None, placed: Mapping[str, Placed], constants: Collection[str], lanes: int
) -> list[Scheduled]:
    """The schedule `vectors`: a vector an invocation; constants that are strided along it are laid out anew."""
    out = target_of(nest(bind, None))
    store = placed[out.tensor].address(out.coords)
    inner = [a for a in bind.axes if step_of(store, a) == 1 and a.extent.constant != 1]
    if not inner:
        return []
    axis = inner[-1]
    reads = accesses(bind.expr, placed, constants)
    strided = [r for r in reads if r.constant and r.moves(axis) and r.step(axis) != 1]
    order = reduced_order(fold, reads) if fold is not None else []
    new, prologue, _ = pack_constants(bind, strided, axis, order, axis.extent.constant or 1, placed)
    n = plain(new, placed_with(placed, prologue), constants, lanes)
    return [Scheduled(new, prologue, (n,))] if any(x.kind is Kind.VECTOR for x in n.loops) else []


def plain(bind: Bind, placed: Mapping[str, Placed], constants: Collection[str] = (), lanes: int = 1) -> Nest:
    """The schedule `points`: an invocation makes one element, or one vector where the innermost axis of the store has one."""
    out = target_of(nest(bind, None))
    store = placed[out.tensor].address(out.coords)
    n = order_outputs(merged(nest(bind, main_fold(bind)), placed, store), store)
    n, vector = _vectors(n, bind, placed, constants, store, lanes)
    names = [x.var.name for x in n.loops if not x.reduce and x.var.name not in vector]
    lane_names: list[str] = []
    left = LANES
    for name in reversed(names):
        width = _width(n.loop(name).var.extent, left)
        if width > 1 and len(lane_names) < 2:
            whole = n.loop(name).var.extent.constant == width
            n = n if whole else split(n, name, width, Tail.GUARD)
            lane_names.insert(0, name if whole else name + "i")
            left //= width
    return _bound(n, lane_names, [], vector)


def _vectors(
    n: Nest, bind: Bind, placed: Mapping[str, Placed], constants: Collection[str], store: Expr, lanes: int
) -> tuple[Nest, list[str]]:
    """Split the innermost output axis into vectors when all its accesses are contiguous or standing still."""
    loops = [x for x in n.loops if not x.reduce]
    if lanes == 1 or not loops or not vector_dtypes_ok(bind) or not four_bytes(bind, placed):
        return n, []
    v = loops[-1].var
    fold = main_fold(bind)
    reads = [replace(r, address=affine.substitute(r.address, n.index)) for r in accesses(bind.expr, placed, constants)]
    good = all(v not in affine.variables(r.address) or step_of(r.address, v) == 1 for r in reads)
    good = good and step_of(affine.substitute(store, n.index), v) == 1 and not any(r.guarded_by(v) for r in reads)
    good = good and affine.multiple_of(v.extent) % lanes == 0 and not _walks(bind, v)
    if not good or (fold is not None and any(affine.variables(a.extent) for a in fold.axes)):
        return n, []
    n = mark(split(n, v.name, lanes), Kind.VECTOR, v.name + "i")
    return n, [v.name + "i"]


def _walks(bind: Bind, v: Var) -> bool:
    """True when the axis is used as a number or under a computed coordinate: lanes would have to be taken apart."""
    seen: set[scalar.Scalar] = set()

    def go(x: scalar.Scalar) -> bool:
        if x in seen:
            return False
        seen.add(x)
        if isinstance(x, scalar.Idx) and v in affine.variables(x.e):
            return True
        inside = isinstance(x, scalar.Read) and any(v in scalar.free(y) for y in scalar.children(x))
        return inside or any(go(y) for y in scalar.children(x))

    return go(bind.expr)


def _bound(n: Nest, lanes: Sequence[str], unrolled: Sequence[str], vector: Sequence[str] = ()) -> Nest:
    """Grid loops, then lanes, then reduced loops, then register loops and the vector."""
    inner = (*lanes, *unrolled, *vector)
    outer = [x.var.name for x in n.loops if not x.reduce and x.var.name not in inner]
    reduced = [x.var.name for x in n.loops if x.reduce]
    n = reorder(n, *outer, *lanes, *reduced, *unrolled, *vector)
    return mark(mark(mark(n, Kind.GRID, *outer), Kind.LANE, *lanes), Kind.UNROLL, *unrolled)


def _width(extent: Expr, most: int) -> int:
    """Lanes along an axis: few enough that little of the last workgroup is idle."""
    size = typical(extent)
    if extent.constant is None:
        return min(most, 1 << (size - 1).bit_length())
    blocks = -(-size // most)
    return most if blocks > 1 and blocks * most <= 1.15 * size else -(-size // blocks)


def _pow2(n: int, most: int) -> int:
    return min(most, 1 << max(0, (max(1, n) - 1).bit_length()))


def _tiled(
    bind: Bind, fold: Comprehension, placed: Mapping[str, Placed], constants: Collection[str], limits: Limits
) -> list[tuple[str, Scheduled]]:
    out = target_of(nest(bind, None))
    store = placed[out.tensor].address(out.coords)
    axis, score = best_axis(bind, placed, constants, 4, {a: step_of(store, a) for a in bind.axes})
    if axis is None or score < 0.05 or typical(axis.extent) < 2:
        return []
    reads = tuple(a for y in fold.lifts for a in accesses(y, placed, constants))
    if all(r.moves(axis) for r in reads):
        return []  # nothing is shared between neighbours: a tile would save no loads
    order = reduced_order(fold, reads)
    if not order:
        return []
    strided = [r for r in reads if not (r.constant and r.step(axis) == 1)]
    lanes = limits.lanes(4)
    whole = vector_dtypes_ok(bind) and four_bytes(bind, placed) and affine.multiple_of(axis.extent) % lanes == 0
    lanes = lanes if whole and step_of(store, axis) in (1, None) else 1
    width = axis.extent.constant or 1
    new, prologue, _ = pack_constants(bind, strided, axis, order, width, placed)
    places = placed_with(placed, prologue)
    looped = [v for v in order if v.extent.constant != 1]  # axes of one element have no loop
    names = [v.name for v in looped]
    found: list[tuple[str, Scheduled]] = []
    main = main_fold(new)
    assert main is not None
    for tag, threads in (("workgroup", limits.invocations), ("registers", LANES)):
        base = merged(nest(new, main), places, store, keep=(axis,))
        points = points_axis(base, axis, reads, store)
        tile = limits.tile if tag == "registers" else block_tile(base, axis, points, threads, limits.tile, lanes)
        shape = lane_shape(axis, points, threads, tile, lanes)
        n = _tile(order_outputs(base, store), axis, points, names, shape, lanes)
        if tag == "workgroup":
            staged = _staged(n, main, looped, places, limits, constants)
            if staged is None or points is None or typical(points.extent) < 8:
                continue
            n = staged
        elif affine.multiple_of(order[-1].extent) % 4 == 0:
            n = mark(split(n, names[-1], 4), Kind.UNROLL, names[-1] + "i")
        found.append((tag, Scheduled(new, prologue, (n,))))
    return found


def _rows(
    bind: Bind, fold: Comprehension, placed: Mapping[str, Placed], constants: Collection[str], limits: Limits
) -> list[Scheduled]:
    """The schedule `registers` where no operand stands still along the vectors, but one along another output axis."""
    lanes = limits.lanes(4)
    simple = _vector_points(bind, fold, placed, constants, lanes)
    if not simple:
        return []
    new, prologue = simple[0].bind, simple[0].prologue
    places, main = placed_with(placed, prologue), main_fold(new)
    out = target_of(nest(new, None))
    store = places[out.tensor].address(out.coords)
    axis = next(a for a in reversed(new.axes) if step_of(store, a) == 1 and a.extent.constant != 1)
    assert main is not None
    reads = tuple(a for y in main.lifts for a in accesses(y, places, constants))
    base = order_outputs(merged(nest(new, main), places, store, keep=(axis,)), store)
    points = points_axis(base, axis, reads, store)
    if points is None or all(r.moves(points) for r in reads) or axis not in {x.var for x in base.loops}:
        return []
    high = min(limits.tile[0], typical(points.extent))
    wide = _width(axis.extent // lanes, LANES)
    shape = LaneShape(wide, lanes, _width((points.extent + (high - 1)) // high, LANES // wide), high)
    order = [v.name for v in reduced_order(main, reads)]
    return [Scheduled(new, prologue, (_tile(base, axis, points, order, shape, lanes),))]


@dataclass(frozen=True, slots=True)
class LaneShape:
    """lx invocations of tn elements along the vector axis, ly of tm along the points."""

    lx: int
    tn: int
    ly: int
    tm: int


def lane_shape(axis: Var, points: Var | None, threads: int, tile: tuple[int, int], lanes: int) -> LaneShape:
    """The shape that wastes least: elements computed beyond the extents, times lanes idle in a warp of 32."""
    wide = typical(axis.extent)
    high = typical(points.extent) if points is not None else 1
    best: tuple[float, int, LaneShape] | None = None
    tn = max(lanes, min(tile[1], _pow2(-(-wide // lanes), tile[1]))) if points is not None else lanes
    tm = min(tile[0], high) if points is not None else 1
    for lx in range(1, (16 if points is not None else threads) + 1):
        for ly in range(1, max(1, min(threads // lx, 32)) + 1) if points is not None else (1,):
            used = lx * ly
            waste = (-(-wide // (lx * tn)) * lx * tn / wide) * (-(-high // (ly * tm)) * ly * tm / high)
            waste *= -(-used // 32) * 32 / used * (1 + 4 / used)
            score = (round(waste, 3), -used, LaneShape(lx, tn, ly, tm))
            if best is None or score[:2] < best[:2]:
                best = score
    assert best is not None
    return best[2]


def block_tile(n: Nest, axis: Var, points: Var | None, threads: int, least: tuple[int, int], lanes: int) -> tuple[int, int]:
    """Registers of an invocation when operands are staged: the greatest tile that still leaves BUSY workgroups and wastes
    little. Every doubling halves the traffic from workgroup memory along one side.
    """
    total = 1
    for x in n.loops:
        total *= 1 if x.reduce else typical(x.var.extent)
    for tile in ((8, 8), (8, 4), (4, 8)):
        s = lane_shape(axis, points, threads, tile, lanes)
        block = s.lx * s.tn * s.ly * s.tm
        wide, high = typical(axis.extent), typical(points.extent) if points is not None else 1
        used = -(-wide // (s.lx * s.tn)) * s.lx * s.tn * (-(-high // (s.ly * s.tm))) * s.ly * s.tm
        if s.tm == tile[0] and s.tn == tile[1] and total // block >= BUSY and used <= 1.15 * wide * high:
            return tile
    return least


def _tile(n: Nest, axis: Var, points: Var | None, order: Sequence[str], shape: LaneShape, lanes: int) -> Nest:
    """Lanes and registers over the vector axis and the points axis."""
    v = axis.name
    n = split(split(n, v, shape.lx * shape.tn, Tail.GUARD), v + "i", shape.lx * lanes)
    lane_names, unrolled, vector = [v + "ii"], [v + "io"], []
    if lanes > 1:
        n = mark(split(n, v + "ii", lanes), Kind.VECTOR, v + "iii")
        lane_names, vector = [v + "iio"], [v + "iii"]
    if points is not None:
        p = points.name
        n = split(split(n, p, shape.ly * shape.tm, Tail.GUARD), p + "i", shape.ly)
        lane_names.insert(0, p + "ii")
        unrolled.insert(0, p + "io")
    return reorder(_bound(n, lane_names, unrolled, vector), *order)


def _staged(
    n: Nest,
    fold: Comprehension,
    order: Sequence[Var],
    placed: Mapping[str, Placed],
    limits: Limits,
    constants: Collection[str],
) -> Nest | None:
    """Operands in workgroup memory, a block of the innermost reduced axis at a time; None when no block divides it."""
    inner = order[-1] if order else None
    block = _block(inner.extent) if inner is not None else None
    if inner is None or block is None:
        return None
    n = split(n, inner.name, block)
    o, i = inner.name + "o", inner.name + "i"
    n = mark(n, Kind.UNROLL, i) if block <= 8 else n
    reads: list[Access] = [a for y in fold.lifts for a in accesses(y, placed, constants)]
    if any(scalar.children(r.read) or not scalar.free(r.read) <= set(n.index) for r in reads):
        return None  # coordinates computed from data, or axes of a comprehension inside: no fixed block of memory
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
        local = x.kind in (Kind.LANE, Kind.UNROLL, Kind.VECTOR) or x.var.name == inner
        if local and x.var in used:
            total *= x.var.extent.constant or 1
    return total
