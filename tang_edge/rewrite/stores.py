"""Arithmetic after a store moves to the axes of the bind that stores, as an epilogue.

    T[n*i + j] = f(i, j) ;  C[k] = g(T[k])   ->   C[n*i + j] = g(f(i, j))

A merge of axes whose sizes are symbols is such a store (no view can divide by a symbol), so this is what keeps
a reshape between two layers from costing a bind.
"""

from __future__ import annotations

from dataclasses import replace

from tang_edge.ir import affine, scalar
from tang_edge.ir.scalar import Read, Scalar
from tang_edge.ir.tensor import Alloc, Bind, Program, Store
from tang_edge.rewrite.address import without_units
from tang_edge.rewrite.cost import sites_of
from tang_edge.rewrite.decide import FusionLimits, has_reduction, within_limits
from tang_edge.rewrite.graph import Graph, merged_origins
from tang_edge.rewrite.simplify import simplify_bind


def move_past_stores(program: Program, limits: FusionLimits | None = None) -> Program:
    """The rule applied wherever a stored tensor has one writer and one element-wise reader of the same shape."""
    graph = Graph(program)
    writers: dict[str, list[int]] = {}
    for slot, bind in graph.binds.items():
        if bind.store is not None:
            writers.setdefault(bind.store.tensor, []).append(slot)
    for slot in sorted(graph.binds):
        bind = graph.binds[slot]
        for tensor in [t for t, w in writers.items() if len(w) == 1 and graph.readers(t) == (slot,)]:
            writer = writers[tensor][0]
            if _may_move(graph, writer, slot, limits or FusionLimits()):
                graph.insert_before(slot, Alloc(bind.name, bind.type))
                graph.replace(slot, moved(graph.binds[writer], bind))
                graph.remove(writer)
                del writers[tensor]
                writers[bind.name] = [slot]
                break
    return graph.program()


def _may_move(graph: Graph, writer: int, reader: int, limits: FusionLimits) -> bool:
    source, target = graph.binds[writer], graph.binds[reader]
    assert source.store is not None
    if graph.is_pinned(source.store.tensor) or target.store is not None or has_reduction(target):
        return False
    if graph.scopes[writer] or graph.scopes[reader]:  # results of branches are binds
        return False
    found = sites_of(target.expr, source.store.tensor)
    if len(found) != 1 or found[0].in_coordinate or found[0].read.view.guard:
        return False
    here = [without_units(affine.as_expr(a)) for a in target.axes]
    same_shape = graph.types[source.store.tensor].shape == target.type.shape
    return same_shape and list(found[0].read.view.coords) == here and within_limits(source, target, limits)


def moved(source: Bind, target: Bind) -> Bind:
    """The target on the axes of the source, with the source's value in place of what it stored."""
    assert source.store is not None
    where = dict(zip(target.axes, source.store.coords, strict=True))
    memo: dict[Scalar, Scalar] = {}
    stored = source.store.tensor

    def visit(x: Scalar) -> Scalar:
        if x not in memo:
            here = isinstance(x, Read) and x.tensor == stored
            memo[x] = source.expr if here else scalar.rebuild(x, visit)
        return memo[x]

    expr = visit(scalar.substitute(target.expr, where))
    origin = merged_origins(source.origin, target.origin)
    store = Store(target.name, source.store.coords)
    return simplify_bind(replace(source, expr=expr, store=store, origin=origin))
