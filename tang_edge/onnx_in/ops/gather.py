"""Reads at computed coordinates, and writes turned into reads: gather, scatter by matching, ranks by
counting.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Final

from tang_edge.ir import affine, dtype, scalar
from tang_edge.ir.affine import Expr
from tang_edge.ir.scalar import Scalar, cast, const, op, select
from tang_edge.onnx_in.node import Node, number
from tang_edge.onnx_in.reshape import product
from tang_edge.onnx_in.table import operator
from tang_edge.onnx_in.values import Value, as_objects, expr_of


def from_front(value: Scalar, extent: Expr) -> Scalar:
    """An index that may count from the end, counted from the front (i64 or i32)."""
    v = value if value.dtype in (dtype.i32, dtype.i64) else cast(value, dtype.i64)
    return select(op("lt", v, const(0, v.dtype)), v + number(extent, v.dtype), v)


def place(n: Node, index: Value, coords: list[Expr], extent: Expr) -> Expr:
    """The coordinate that an index tensor gives: affine where the indices are constants in arithmetic
    progression.
    """
    if index.known is not None:
        elements = [expr_of(e) for e in as_objects(index.known).ravel().tolist()]
        elements = [e + extent if affine.bounds(e)[1] < 0 else e for e in elements]
        for e in elements:
            if affine.nonneg(-e - 1) or affine.nonneg(e - extent):
                n.fail(f"index {e} is outside of an axis of {extent}")
        inside = all(affine.nonneg(e) and affine.nonneg(extent - 1 - e) for e in elements)
        steps = [b - a for a, b in itertools.pairwise(elements)]
        flat = affine.const(0)
        for c, e in zip(coords, index.shape, strict=True):
            flat = flat * e + c
        if len(elements) == 1 and inside:
            return elements[0]
        if steps and inside and all(s is steps[0] for s in steps):
            return elements[0] + flat * steps[0]
        if index.data is not None and (index.data >= 0).all():
            v = n.at(index, coords)
            return scalar.gather_index(v if v.dtype in (dtype.i32, dtype.i64) else cast(v, dtype.i64), extent)
    return scalar.gather_index(from_front(n.at(index, coords), extent), extent)


@operator("Gather")
def _gather(n: Node) -> None:
    x, index, axis = n.x(0), n.x(1), n.axis()
    shape = [*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]]

    def body(c: list[Expr]) -> Scalar:
        own = c[axis : axis + index.rank]
        return n.at(x, [*c[:axis], place(n, index, own, x.shape[axis]), *c[axis + index.rank :]])

    n.emit(shape, body)


@operator("GatherElements", since=11)
def _gather_elements(n: Node) -> None:
    x, index, axis = n.x(0), n.x(1), n.axis()
    n.emit(
        index.shape,
        lambda c: n.at(x, [place(n, index, c, x.shape[axis]) if k == axis else e for k, e in enumerate(c)]),
    )


@operator("GatherND", since=11)
def _gather_nd(n: Node) -> None:
    x, index, batch = n.x(0), n.x(1), int(n.attr("batch_dims", 0))
    depth = index.shape[-1].constant
    if depth is None:
        n.fail("indices of unknown depth")
    for a, b in zip(x.shape[:batch], index.shape[:batch], strict=True):
        n.same(a, b)
    outer = index.rank - 1

    def body(c: list[Expr]) -> Scalar:
        own = [
            scalar.gather_index(from_front(n.at(index, [*c[:outer], affine.const(k)]), x.shape[batch + k]), x.shape[batch + k])
            for k in range(depth)
        ]
        return n.at(x, [*c[:batch], *own, *c[outer:]])

    n.emit([*index.shape[:-1], *x.shape[batch + depth :]], body)


@operator("OneHot", since=9)
def _one_hot(n: Node) -> None:
    index, values = n.x(0), n.x(2)
    depth = (n.ints(1, "the depth") or [affine.const(0)])[0]
    axis = n.norm_axis(int(n.attr("axis", -1)), index.rank + 1)
    shape = [*index.shape[:axis], depth, *index.shape[axis:]]

    def body(c: list[Expr]) -> Scalar:
        own = [e for k, e in enumerate(c) if k != axis]
        at = from_front(cast(n.at(index, own), dtype.i64), depth)
        off, on = (n.at(values, [affine.const(k)]) for k in (0, 1))
        return select(op("eq", at, number(c[axis], dtype.i64)), on, off)

    n.emit(shape, body)


_COMBINE: Final[dict[str, Callable[[Scalar, Scalar], Scalar]]] = {
    "add": lambda a, b: op("add", a, b),
    "mul": lambda a, b: op("mul", a, b),
    "max": lambda a, b: op("max", a, b),
    "min": lambda a, b: op("min", a, b),
}


def scattered(
    n: Node, x: Value, c: list[Expr], extents: list[Expr], hit: Callable[[list[Expr]], Scalar],
    update: Callable[[list[Expr]], Scalar], pick: Callable[[Scalar], list[Expr]],
) -> Scalar:  # fmt: skip
    """x[c] combined with the updates r (over extents) for which hit(r) holds; of several writes the last
    one counts.
    """
    how = str(n.attr("reduction", "none"))
    old = n.at(x, c)
    if how != "none":
        dt = x.dtype
        monoid = {
            "add": scalar.sum_of,
            "mul": scalar.product_of,
            "max": scalar.max_of,
            "min": scalar.min_of,
        }[how](dt)
        total = n.reduce(monoid, extents, lambda r: select(hit(r), update(r), monoid.identity[0]))
        return _COMBINE[how](old, total)

    def last(r: list[Expr]) -> Scalar:
        flat = affine.const(0)
        for k, e in zip(r, extents, strict=True):
            flat = flat * e + k
        return select(hit(r), scalar.idx(flat), const(-1, dtype.i64))

    winner = n.reduce(scalar.max_of(dtype.i64), extents, last)
    return select(op("lt", winner, const(0, dtype.i64)), old, update(pick(winner)))


@operator("ScatterElements", "Scatter", since=9)
def _scatter_elements(n: Node) -> None:
    """y[c] = the update whose index along the axis names c (the other coordinates are the same)."""
    x, index, updates, axis = n.x(0), n.x(1), n.x(2), n.axis()
    extent = index.shape[axis]

    def body(c: list[Expr]) -> Scalar:
        def along(j: Expr) -> list[Expr]:
            return [j if k == axis else e for k, e in enumerate(c)]

        inside = [index.shape[k] - 1 - e for k, e in enumerate(c) if k != axis]

        def hit(r: list[Expr]) -> Scalar:
            v = n.at(index, along(r[0]), inside, -x_span)
            at = from_front(cast(v, dtype.i64), x.shape[axis])
            return op("eq", at, number(c[axis], dtype.i64))

        x_span = 2 * affine.bounds(x.shape[axis])[1] + 1  # far below every legal index: matches nothing
        return scattered(
            n, x, c, [extent], hit,
            lambda r: n.at(updates, along(r[0]), inside, 0),
            lambda w: [scalar.gather_index(op("max", w, const(0, dtype.i64)), extent)],
        )  # fmt: skip

    n.emit(x.shape, body)


@operator("ScatterND", since=11)
def _scatter_nd(n: Node) -> None:
    """y[c] = the update whose index vector names the first coordinates of c."""
    x, index, updates = n.x(0), n.x(1), n.x(2)
    depth = index.shape[-1].constant
    if depth is None:
        n.fail("indices of unknown depth")
    extents = list(index.shape[:-1])
    total = product(extents)
    rows = len(extents)
    sizes = [e.constant for e in extents]
    if rows > 1 and any(s is None for s in sizes[1:]):
        n.fail("indices with inner axes of unknown size", "Fix the sizes with --dim")

    def body(c: list[Expr]) -> Scalar:
        def hit(r: list[Expr]) -> Scalar:
            tests = [
                op(
                    "eq",
                    from_front(cast(n.at(index, [*r, affine.const(k)]), dtype.i64), x.shape[k]),
                    number(c[k], dtype.i64),
                )
                for k in range(depth)
            ]
            out = tests[0]
            for t in tests[1:]:
                out = op("and", out, t)
            return out

        def pick(w: Scalar) -> list[Expr]:
            flat = scalar.gather_index(op("max", w, const(0, dtype.i64)), total)
            out: list[Expr] = []
            for k in range(rows - 1, -1, -1):
                out.insert(0, affine.mod(flat, sizes[k] or 1) if k else flat)
                flat = affine.floordiv(flat, sizes[k] or 1) if k else flat
            return out

        return scattered(n, x, c, extents, hit, lambda r: n.at(updates, [*r, *c[depth:]]), pick)

    n.emit(x.shape, body)


@operator("TopK", since=10)
def _top_k(n: Node) -> None:
    """Rank by counting: the elements that beat x[i]; then output place k reads the i whose rank is k."""
    x, axis = n.x(0), n.axis(default=-1)
    k = (n.ints(1, "k") or [affine.const(1)])[0]
    largest, extent = bool(n.attr("largest", 1)), x.shape[axis]

    def along(c: list[Expr], j: Expr) -> list[Expr]:
        return [j if a == axis else e for a, e in enumerate(c)]

    def rank_of(c: list[Expr]) -> Scalar:
        me = n.at(x, c)

        def beats(r: list[Expr]) -> Scalar:
            it = n.at(x, along(c, r[0]))
            better = op("lt", me, it) if largest else op("lt", it, me)
            earlier = op("lt", number(r[0], dtype.i32), number(c[axis], dtype.i32))
            return cast(op("or", better, op("and", op("eq", me, it), earlier)), dtype.i32)

        return n.reduce(scalar.sum_of(dtype.i32), [extent], beats)

    rank = n.temp("rank", x.shape, rank_of)
    shape = [k if a == axis else e for a, e in enumerate(x.shape)]

    def source(c: list[Expr]) -> Scalar:
        def match(r: list[Expr]) -> Scalar:
            here = op("eq", n.at(rank, along(c, r[0])), number(c[axis], dtype.i32))
            return select(here, number(r[0], dtype.i64), const(0, dtype.i64))

        return n.reduce(scalar.max_of(dtype.i64), [extent], match)

    index = n.emit(shape, source, 1) if n.wants(1) else n.temp("index", shape, source)
    n.emit(shape, lambda c: n.at(x, along(c, scalar.gather_index(n.at(index, c), extent))))


@operator("ReverseSequence", since=10)
def _reverse_sequence(n: Node) -> None:
    x, lengths = n.x(0), n.x(1)
    time, batch = int(n.attr("time_axis", 0)), int(n.attr("batch_axis", 1))

    def body(c: list[Expr]) -> Scalar:
        length, t = cast(n.at(lengths, [c[batch]]), dtype.i64), number(c[time], dtype.i64)
        at = select(op("lt", t, length), length - 1 - t, t)
        return n.at(x, [scalar.gather_index(at, x.shape[time]) if k == time else e for k, e in enumerate(c)])

    n.emit(x.shape, body)
