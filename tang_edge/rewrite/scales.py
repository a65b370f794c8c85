"""A tensor that is another one times a number is no tensor of its own where it is a factor of a sum.

    s[i] = x[i] * c ;  y[j] = sum(i: s[i] * w[i, j])   ->   y[j] = sum(i: x[i] * w[i, j]) * c

Distributivity: the factor is free of the reduced axes. Not exact in floating point (one rounding moves).
"""

from __future__ import annotations

from dataclasses import replace

from tang_edge.ir import scalar
from tang_edge.ir.scalar import Const, Get, Op, Read, Scalar
from tang_edge.ir.tensor import Bind, Program
from tang_edge.rewrite.cost import sites_of
from tang_edge.rewrite.graph import Graph, merged_origins
from tang_edge.rewrite.inline import body_at, is_gather
from tang_edge.rewrite.simplify import simplify


def scales_out_of_sums(program: Program) -> Program:
    """The rule applied to every scaled tensor whose readers all multiply it inside sums."""
    graph = Graph(program)
    for slot in sorted(graph.binds):
        bind = graph.binds[slot]
        readers = graph.readers(bind.name)
        if scaled_read(bind.expr) is None or bind.store is not None or graph.is_pinned(bind.name):
            continue
        if not readers or not all(graph.visible(slot, r) for r in readers):
            continue
        changed = [scale_out(graph.binds[r], bind) for r in readers]
        if all(c is not None for c in changed):
            for r, c in zip(readers, changed, strict=True):
                assert c is not None
                graph.replace(r, c)
            graph.remove(slot)
    return graph.program()


def scaled_read(x: Scalar) -> tuple[Read, Const] | None:
    """(read, number) when x is their product; a division by a number is a product with its reciprocal."""
    if not isinstance(x, Op) or x.name not in ("mul", "div") or not x.dtype.is_float:
        return None
    a, c = x.args
    if x.name == "mul" and isinstance(a, Const):
        a, c = c, a
    if not isinstance(a, Read) or not isinstance(c, Const) or is_gather(a):
        return None
    if x.name == "mul":
        return a, c
    return (a, scalar.const(1 / c.value, c.dtype)) if c.value else None


def scale_out(reader: Bind, producer: Bind) -> Bind | None:
    """The reader with the scale of `producer` outside its sums; None when a read is no factor of a sum."""
    memo: dict[Scalar, Scalar] = {}

    def visit(x: Scalar) -> Scalar:
        if x not in memo:
            out = _sum(x, producer) if isinstance(x, Get) else None
            memo[x] = out or (x if isinstance(x, Get) else scalar.rebuild(x, visit))
        return memo[x]

    expr = simplify(visit(reader.expr))
    if sites_of(expr, producer.name):
        return None
    return replace(reader, expr=expr, origin=merged_origins(producer.origin, reader.origin))


def _sum(x: Get, producer: Bind) -> Scalar | None:
    c = x.of
    if not x.dtype.is_float or c.monoid is not scalar.sum_of(x.dtype):
        return None
    lift, scale = _factor(c.lifts[0], producer)
    if scale is None:
        return None
    return scalar.op("mul", scalar.reduce(c.monoid, c.axes, lift), scale)


def _factor(x: Scalar, producer: Bind) -> tuple[Scalar, Scalar | None]:
    """x without the producer's scale, and that scale (None: x does not hold it as a factor)."""
    if isinstance(x, Read) and x.tensor == producer.name:
        found = scaled_read(simplify(body_at(x, producer)))
        return found if found is not None else (x, None)
    if not isinstance(x, Op) or x.name != "mul":
        return x, None
    (a, s), (b, t) = (_factor(y, producer) for y in x.args)
    scale = s if t is None else t if s is None else scalar.op("mul", s, t)
    return scalar.op("mul", a, b), scale
