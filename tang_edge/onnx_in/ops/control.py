"""Structured control: If."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tang_edge.ir import tensor
from tang_edge.ir.tensor import Item, Origin
from tang_edge.onnx_in.node import Node
from tang_edge.onnx_in.proto import GraphProto
from tang_edge.onnx_in.table import operator
from tang_edge.onnx_in.values import Value

if TYPE_CHECKING:
    from tang_edge.onnx_in.importer import Scope


@operator("If")
def _if(n: Node) -> None:
    cond = n.x()
    branches = n.graph("then_branch"), n.graph("else_branch")
    if cond.data is not None:
        for k, v in enumerate(_inline(n, branches[0 if cond.data.ravel()[0] else 1])):
            n.alias(v, k)
        return
    name = n.importer.tensor(one_element(n, cond))
    results = [n.scope.ir_name(o) for o in n.proto.output if o]
    n.importer.results.update(results)
    (then, a), (orelse, b) = (_branch(n, g, results) for g in branches)
    for k, (x, y) in enumerate(zip(a, b, strict=True)):
        if x.dtype is not y.dtype or x.rank != y.rank:
            n.fail(f"its branches give {x} and {y}")
        shape = tuple(n.same(p, q) for p, q in zip(x.shape, y.shape, strict=True))
        n.importer.builder.types[results[k]] = tensor.TensorType(x.dtype, shape)
        n.alias(Value(results[k], x.dtype, shape, None, results[k]), k)
    origin = (Origin(n.op, n.title),)
    n.importer.builder.items.append(tensor.If(name, then, orelse, tuple(results), origin))


def one_element(n: Node, cond: Value) -> Value:
    """The value, which must have one element."""
    for e in cond.shape:
        if e.constant != 1:
            n.fail(f"{cond} is not one element")
    return cond


def scope_of(n: Node, graph: GraphProto) -> Scope:
    """The scope of a graph inside the node, its initialisers read."""
    from tang_edge.onnx_in.importer import Scope

    scope = Scope(n.importer, n.scope)
    n.importer.initialisers(graph, scope)
    return scope


def _inline(n: Node, graph: GraphProto) -> list[Value]:
    scope = scope_of(n, graph)
    n.importer.run(graph, scope)
    return [result_of(n, scope, o.name) for o in graph.output]


def result_of(n: Node, scope: Scope, name: str) -> Value:
    """The value of an output of a graph inside the node."""
    v = scope.find(name)
    if v is None:
        n.fail(f"nothing in its branch produces '{name}'")
    return v


def _branch(n: Node, graph: GraphProto, results: list[str]) -> tuple[tuple[Item, ...], list[Value]]:
    """The items of a branch that bind the result names, and the results' values."""
    builder = n.importer.builder
    outside, builder.items = builder.items, []
    try:
        scope = scope_of(n, graph)
        for o, name in zip(graph.output, results, strict=True):
            scope.renamed.setdefault(o.name, name)
        n.importer.run(graph, scope)
        values = [result_of(n, scope, o.name) for o in graph.output]
        bound = {i.name for i in builder.items if not isinstance(i, (tensor.If, tensor.Loop))}
        bound.update(r for i in builder.items if isinstance(i, (tensor.If, tensor.Loop)) for r in i.results)
        for v, name in zip(values, results, strict=True):
            if v.tensor != name or name not in bound:
                n.importer.bind(name, v.shape, lambda c, v=v: n.at(v, c), n)  # type: ignore[misc]
        return tuple(builder.items), values
    finally:
        builder.items = outside
