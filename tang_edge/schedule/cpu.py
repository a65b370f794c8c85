"""Default schedules for processors: vectors along the axis that suits them, register tiles, loops ordered for caches.

For a reduction the micro-kernel is P points x N vectors of accumulators. P and N minimise, by a cost in cycles,

    (max(P·N / m, loads(P, N) / 2, 4, streamed(N) / 24) + c·loads(P, N) + 1/2) · ⌈p/P⌉ · ⌈v/(N·L)⌉
                                                                                    with P·N + N + 1 <= vector registers

(m multiply-adds and two loads a cycle, a latency of four, 24 bytes a cycle from the second-level cache, c cycles for an address
where that takes them from arithmetic, half a cycle to turn the loop), where loads counts each read once per unrolled axis along
which it moves and streamed the bytes that are new to every turn because they do not move along the points. Weights are packed
in the order of the walk; their size decides whether the output tile or the points turn outside.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from tang_edge.ir import affine, scalar
from tang_edge.ir.affine import Expr, Var
from tang_edge.ir.scalar import Comprehension
from tang_edge.ir.tensor import Bind
from tang_edge.schedule.addresses import Placed
from tang_edge.schedule.analysis import Access, accesses, main_fold, typical, vector_dtypes_ok
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
from tang_edge.schedule.nest import Kind, Nest, Tail, mark, nest, reorder, split

SMALL_WEIGHTS = 300 << 10  # bytes: below, points turn outside and weights stay in cache (c_speed: around 300 KB)
PARALLEL = 16  # iterations that the outer loops should offer to threads


@dataclass(frozen=True, slots=True)
class Tile:
    """P points along axis `points` (None: no such axis) and N vectors along axis `vector`."""

    vector: Var
    lanes: int
    vectors: int
    points: Var | None
    count: int


def schedule(bind: Bind, placed: Mapping[str, Placed], constants: Collection[str], limits: Limits) -> Scheduled:
    """The default schedule of a bind on a processor class."""
    lanes = limits.lanes(4) if vector_dtypes_ok(bind) and not _narrow(bind, placed) else 1
    fold = main_fold(bind)
    out = target_of(nest(bind, None))
    store = placed[out.tensor].address(out.coords)
    steps = {a: step_of(store, a) for a in bind.axes}
    axis, score = best_axis(bind, placed, constants, lanes, steps) if lanes > 1 else (None, 0.0)
    if fold is not None and (axis is None or score < 0.3):
        across = _across(bind, fold, placed, constants, lanes)
        if across is not None:
            return Scheduled(bind, (), (across,))
    if axis is None or score < 0.05:
        return Scheduled(bind, (), (_plain(nest(bind, fold), placed, store),))
    if fold is None:
        return Scheduled(bind, (), (_elementwise(bind, axis, lanes, placed, store),))
    return _tiled(bind, fold, axis, lanes, placed, constants, limits, store)


def _narrow(bind: Bind, placed: Mapping[str, Placed]) -> bool:
    """True when a bool or 16-bit float is read or written, which vectors do not load."""
    out = target_of(nest(bind, None)).tensor
    names = {r.tensor for r in scalar.reads(bind.expr)} | {out}
    return any(placed[n].dtype.name in ("bool", "f16", "f64", "i64", "u64") for n in names)


def grid(n: Nest) -> Nest:
    """The outermost serial output loops become the grid, until they offer enough iterations to threads."""
    total, names = 1, []
    for x in n.loops:
        if x.reduce or x.kind is not Kind.SERIAL or total >= PARALLEL:
            break
        names.append(x.var.name)
        total *= typical(x.var.extent)
    return mark(n, Kind.GRID, *names)


def _plain(n: Nest, placed: Mapping[str, Placed], store: Expr) -> Nest:
    return grid(order_outputs(merged(n, placed, store), store))


def plain(bind: Bind, placed: Mapping[str, Placed]) -> Nest:
    """One output element after the other, no vectors."""
    out = target_of(nest(bind, None))
    return _plain(nest(bind, main_fold(bind)), placed, placed[out.tensor].address(out.coords))


def _elementwise(bind: Bind, axis: Var, lanes: int, placed: Mapping[str, Placed], store: Expr) -> Nest:
    n = order_outputs(merged(nest(bind, None), placed, store), store)
    names = {x.var.name for x in n.loops}
    inner = axis.name if axis.name in names else n.loops[-1].var.name
    n = split(n, inner, lanes, Tail.OVER)
    rest = [x.var.name for x in n.loops if x.var.name != inner + "i"]
    n = mark(reorder(n, *rest, inner + "i"), Kind.VECTOR, inner + "i")
    return grid(n)


def _across(
    bind: Bind, fold: Comprehension, placed: Mapping[str, Placed], constants: Collection[str], lanes: int
) -> Nest | None:
    """Vectors along a reduced axis that is contiguous: a partial state in each lane (commutative monoids only)."""
    if lanes == 1 or not fold.monoid.commutative or len(fold.lifts) != 1:
        return None
    reads = [a for y in fold.lifts for a in accesses(y, placed, constants)]
    good = [v for v in fold.axes if _contiguous(v, reads) and typical(v.extent) >= lanes]
    if not good:
        return None
    v = good[-1]
    n = nest(bind, fold)
    n = split(n, v.name, lanes, Tail.REST)
    others = [x.var.name for x in n.loops if x.reduce and x.var.name not in (v.name + "o", v.name + "i")]
    n = reorder(n, *others, v.name + "o", v.name + "i")
    return grid(mark(n, Kind.VECTOR, v.name + "i")) if not others else None


def _contiguous(v: Var, reads: Sequence[Access]) -> bool:
    return all(not r.moves(v) or (r.step(v) == 1 and not r.guarded_by(v)) for r in reads)


def choose_tile(bind: Bind, reads: Sequence[Access], axis: Var, lanes: int, points: Var | None, limits: Limits) -> Tile:
    """The tile of least cost (see the module's head)."""
    vectors = -(-typical(axis.extent) // lanes)
    extent = typical(points.extent) if points else 1
    known = points is not None and points.extent.constant is not None
    best: tuple[float, int, int] | None = None
    for n in range(1, min(8, vectors) + 1):
        for p in range(1, 15 if points else 2):
            if p * n + n + 1 > limits.registers or p > extent:
                continue
            loads = sum((p if _along(r, points) else 1) * (n if r.moves(axis) else 1) for r in reads)
            streamed = sum(n * lanes * 4 for r in reads if r.moves(axis) and not _along(r, points))
            multiple = affine.multiple_of(points.extent) if points else 1
            tiles = -(-extent // p) if known or multiple % p == 0 else extent / p + 0.4
            cost = (
                (max(p * n / limits.multiply_adds, loads / 2, 4, streamed / 24) + limits.address_cost * loads + 0.5)
                * tiles
                * -(-vectors // n)
            )
            if best is None or cost < best[0] - 1e-9:
                best = (cost, p, n)
    assert best is not None
    return Tile(axis, lanes, best[2], points, best[1])


def _along(r: Access, points: Var | None) -> bool:
    """Whether a read moves along the points, which may be axes merged into one."""
    return points is not None and (r.moves(points) or points in affine.variables(r.address))


def _tiled(
    bind: Bind,
    fold: Comprehension,
    axis: Var,
    lanes: int,
    placed: Mapping[str, Placed],
    constants: Collection[str],
    limits: Limits,
    store: Expr,
) -> Scheduled:
    reads = tuple(a for y in fold.lifts for a in accesses(y, placed, constants))
    n = merged(nest(bind, fold), placed, store, keep=(axis,))
    points = points_axis(n, axis, reads, store)
    moved = [replace(r, address=affine.substitute(r.address, n.index)) for r in reads]
    tile = choose_tile(bind, moved, axis, lanes, points, limits)
    order = reduced_order(fold, reads)
    new, prologue, bytes_packed = pack_constants(bind, reads, axis, order, tile.vectors * lanes, placed)
    folds = [c for c in (main_fold(new),) if c is not None]
    n = merged(nest(new, folds[0]), placed_with(placed, prologue), store, keep=(axis,))
    names = [v.name for v in order if v.extent.constant != 1]  # axes of one element have no loop
    whole = grid(_shape(n, tile, names, bytes_packed, store, Tail.SHIFT))
    if not whole.needs:
        return Scheduled(new, prologue, (whole,))
    same = [x.var.name for x in whole.loops if x.kind is Kind.GRID]
    part = mark(_shape(n, tile, names, bytes_packed, store, Tail.CUT), Kind.GRID, *same)
    return Scheduled(new, prologue, (whole, part))


def _shape(n: Nest, tile: Tile, order: Sequence[str], packed_bytes: int, store: Expr, tail: Tail) -> Nest:
    """The moves of a tiled reduction, in order."""
    v = tile.vector.name
    n = order_outputs(n, store)
    outputs = [x.var.name for x in n.loops if not x.reduce and x.var.name != v]
    n = split(n, v, tile.vectors * tile.lanes, Tail.OVER)
    n = split(n, v + "i", tile.lanes)
    inner = [v + "io"]
    n = mark(mark(n, Kind.UNROLL, v + "io"), Kind.VECTOR, v + "ii")
    if tile.points is not None and tile.count > 1:
        p = tile.points.name
        n = split(n, p, tile.count, tail)
        outputs = [p + "o" if x == p else x for x in outputs]
        outputs = [*(x for x in outputs if x != p + "o"), p + "o"]
        if n.loop(p + "i").kind is Kind.SERIAL and tail is not Tail.CUT:
            n = mark(n, Kind.UNROLL, p + "i")
        if tail is Tail.CUT:
            outputs.append(p + "i")
        else:
            inner.insert(0, p + "i")
    outer = [*outputs, v + "o"] if packed_bytes <= SMALL_WEIGHTS else [v + "o", *outputs]
    return reorder(n, *outer, *order, *inner, v + "ii")
