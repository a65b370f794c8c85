"""The nodes of a graph in dependency order, without those that no output needs."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from tang_edge.errors import UnsupportedModel
from tang_edge.onnx_in.proto import AttributeProto, GraphProto, NodeProto


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs in a node's attributes."""
    for a in node.attribute:
        if a.type == AttributeProto.GRAPH:
            yield a.g
        elif a.type == AttributeProto.GRAPHS:
            yield from a.graphs


def names_read(node: NodeProto) -> list[str]:
    """The names a node reads, those that its subgraphs capture included."""
    out = [name for name in node.input if name]
    for g in subgraphs(node):
        inner = {i.name for i in g.initializer} | {i.name for i in g.input}
        inner |= {o for n in g.node for o in n.output}
        wanted = [o.name for o in g.output] + [r for n in g.node for r in names_read(n)]
        out.extend(name for name in wanted if name not in inner)
    return out


def sorted_nodes(graph: GraphProto) -> list[NodeProto]:
    """The nodes that the outputs need: in the model's order where it is legal, else in the nearest legal one."""
    producer = {o: k for k, n in enumerate(graph.node) for o in n.output if o}
    needs = [sorted({producer[r] for r in names_read(n) if r in producer}) for n in graph.node]
    live = _reachable([producer[o.name] for o in graph.output if o.name in producer], needs)
    waiting = {k: len(needs[k]) for k in live}
    users: dict[int, list[int]] = {k: [] for k in live}
    for k in live:
        for d in needs[k]:
            users[d].append(k)
    ready = [k for k in live if not waiting[k]]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        k = heapq.heappop(ready)
        order.append(k)
        for u in users[k]:
            waiting[u] -= 1
            if not waiting[u]:
                heapq.heappush(ready, u)
    if len(order) < len(live):
        stuck = next(k for k in live if waiting[k])
        node = graph.node[stuck]
        raise UnsupportedModel(
            "the graph has a cycle",
            where=f"{node.op_type} '{node.name or node.output[0]}'",
            remedy="The model is malformed: run onnx.checker on it",
        )
    return [graph.node[k] for k in order]


def _reachable(roots: list[int], needs: list[list[int]]) -> list[int]:
    seen: set[int] = set()
    stack = list(roots)
    while stack:
        k = stack.pop()
        if k not in seen:
            seen.add(k)
            stack.extend(needs[k])
    return sorted(seen)
