"""Views cost nothing: a bind that is one read of another tensor is composed into its readers.

A view stays as a copy where its name must exist (outputs, results of branches), where its coordinate is
computed from data (gather: recomputing the index is not free), and in front of a reduction when its linear
address is not affine (a nearest resize under a convolution: its loops want plain loads).
"""

from __future__ import annotations

from tang_edge.ir.scalar import Read
from tang_edge.ir.tensor import Bind, Program
from tang_edge.rewrite.address import is_affine, linear
from tang_edge.rewrite.cost import sites_of
from tang_edge.rewrite.graph import Graph
from tang_edge.rewrite.inline import is_gather, substitute


def compose_views(program: Program) -> Program:
    """Pure views substituted into their readers, in program order, so that chains collapse from the front."""
    graph = Graph(program)
    for slot in list(graph.binds):
        bind = graph.binds[slot]
        if isinstance(bind.expr, Read) and bind.store is None and not graph.is_pinned(bind.name):
            _compose(graph, slot)
    return graph.program()


def _compose(graph: Graph, slot: int) -> None:
    bind = graph.binds[slot]
    if not isinstance(bind.expr, Read) or is_gather(bind.expr):
        return
    readers = graph.readers(bind.name)
    if not all(graph.visible(slot, r) for r in readers):
        return
    for r in readers:
        if not _loops_suffer(graph, bind, graph.binds[r]):
            graph.replace(r, substitute(bind, graph.binds[r]))
    if not graph.readers(bind.name):
        graph.remove(slot)


def _loops_suffer(graph: Graph, view: Bind, reader: Bind) -> bool:
    """The view's address is not affine and the reader loops over it in a reduction."""
    assert isinstance(view.expr, Read)
    shape = graph.types[view.expr.tensor].shape
    if is_affine(linear(view.expr.view.coords, shape)):
        return False
    return any(s.bound for s in sites_of(reader.expr, view.name))
