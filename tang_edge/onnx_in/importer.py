"""Reads one graph into a tensor program: scopes, constraints, binds, and the loop over nodes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tang_edge.errors import UnsupportedModel
from tang_edge.ir import affine, dtype, scalar, tensor
from tang_edge.ir.affine import Expr
from tang_edge.ir.scalar import Scalar
from tang_edge.ir.tensor import Builder, Constraint, Item, Origin
from tang_edge.onnx_in import functions, table, weights
from tang_edge.onnx_in.dims import DimTable
from tang_edge.onnx_in.node import Body, Node, number
from tang_edge.onnx_in.order import sorted_nodes
from tang_edge.onnx_in.proto import GraphProto, NodeProto, ValueInfoProto
from tang_edge.onnx_in.values import FOLD_LIMIT, ONNX_DTYPES, Value, as_objects, expr_of, onnx_type_name
from tang_edge.onnx_in.values import constant as constant_value

Place = Callable[[list[Expr]], Sequence[Expr]]


@dataclass
class Scope:
    """The names of one graph; a branch sees the names of the graphs around it."""

    importer: Importer
    outer: Scope | None = None
    values: dict[str, Value] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)

    def find(self, name: str) -> Value | None:
        """The value of an ONNX name here or in a graph around."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.outer
        return None

    def ir_name(self, name: str) -> str:
        """The program's name for an ONNX name bound in this graph; the same one each time."""
        if name not in self.renamed:
            self.renamed[name] = self.importer.unique(name)
        return self.renamed[name]


@dataclass
class Importer:
    """The state of one import.

    facts   extents known (from constraints of an earlier import) to equal simpler ones
    short   (extent, why): extents that some allowed sizes would make empty
    results names that both branches of an If bind, so that no constant may have them
    """

    builder: Builder
    opsets: Mapping[str, int]
    facts: Mapping[Expr, Expr] = field(default_factory=dict)
    folder: str | None = None
    allow_nan: bool = False
    prelude: list[Item] = field(default_factory=list)
    short: list[tuple[Expr, str]] = field(default_factory=list)
    constraints: dict[tuple[Expr, Expr], Constraint] = field(default_factory=dict)
    results: set[str] = field(default_factory=set)
    _names: set[str] = field(default_factory=set)

    # ------------------------------------------------------------ names and extents

    def unique(self, name: str) -> str:
        """The name itself when it is free, else the name with a number."""
        candidate, n = name, 1
        while candidate in self._names:
            n += 1
            candidate = f"{name}~{n}"
        self._names.add(candidate)
        return candidate

    def settle(self, e: Expr) -> Expr:
        """The simplest extent known to equal e."""
        return self.facts.get(e, e)

    def same(self, a: Expr, b: Expr, why: str) -> Expr:
        """The simpler of two extents that the graph needs to be equal."""
        a, b = self.settle(a), self.settle(b)
        if a is b:
            return a
        lo, hi = affine.bounds(a - b)
        if lo > 0 or hi < 0:
            raise UnsupportedModel(
                f"extents {a} and {b} must be equal and never are",
                where=why,
                remedy="Check the model's input shapes, or give the dimensions other ranges",
            )
        left, right = sorted((a, b), key=complexity, reverse=True)
        self.constraints.setdefault((left, right), Constraint(left, right, why))
        return right

    def require_zero(self, e: Expr, why: str) -> None:
        """Record that e must be 0 for the sizes of a run."""
        if e.constant != 0:
            self.same(e, affine.const(0), why)

    # ------------------------------------------------------------ tensors

    def bind(self, name: str, shape: Sequence[Expr | int], body: Body, node: Node) -> Value:
        """A bind and its value."""
        extents = [self.settle(affine.as_expr(n)) for n in shape]
        for n in extents:
            if affine.bounds(n)[0] < 1 and n.constant is None:
                self.short.append((n, node.label))
            elif n.constant is not None and n.constant < 0:
                node.fail(f"an output axis has the extent {n}", "The input is too small for this operator")
        expr = body(coordinates(extents))
        axes = tensor.out_axes(extents)
        origin = (Origin(node.op, node.title),)
        self.builder.items.append(tensor.Bind(name, axes, expr, None, origin))
        return self._typed(name, tensor.TensorType(expr.dtype, tuple(extents)))

    def store(self, name: str, shape: Sequence[Expr], axes: Sequence[Expr], body: Body, where: Place, node: Node) -> Value:
        """A tensor filled through a store map: name[where(c)] = body(c) for c over axes."""
        extents = [self.settle(affine.as_expr(n)) for n in axes]
        c = coordinates(extents)
        expr = body(c)
        t = tensor.TensorType(expr.dtype, tuple(self.settle(n) for n in shape))
        self.builder.items.append(tensor.Alloc(name, t))
        place = tensor.Store(name, tuple(where(c)))
        origin = (Origin(node.op, node.title),)
        part = self.unique(f"{name}.parts")
        self.builder.items.append(tensor.Bind(part, tensor.out_axes(extents), expr, place, origin))
        self.builder.types[part] = tensor.TensorType(expr.dtype, tuple(extents))
        return self._typed(name, t)

    def _typed(self, name: str, t: tensor.TensorType) -> Value:
        self.builder.types[name] = t
        return Value(name, t.dtype, t.shape, None, name)

    def tensor(self, v: Value) -> str:
        """The name of the program's tensor that holds v, made now if need be."""
        if v.tensor is None:
            taken = v.name in self.builder.types or v.name in self.results
            name = self.unique(v.name) if taken else v.name
            if v.data is not None:
                self._names.add(name)
                v.tensor = self.builder.constant(name, v.data)
            else:
                v.tensor = self._materialise(name, v)
        return v.tensor

    def _materialise(self, name: str, v: Value) -> str:
        """A tensor of shape arithmetic: each element an expression over dimensions. It depends on no tensor."""
        assert v.known is not None
        elements = [expr_of(e) for e in as_objects(v.known).ravel().tolist()]
        strides = [math.prod(int(n.constant or 0) for n in v.shape[k + 1 :]) for k in range(v.rank)]

        def body(c: list[Expr]) -> Scalar:
            flat = sum((i * s for i, s in zip(c, strides, strict=True)), affine.const(0))
            return sequence(elements, flat, v.dtype)

        axes = tensor.out_axes(v.shape)
        self.prelude.append(tensor.Bind(name, axes, body(coordinates(v.shape)), None, (Origin("Shape", v.name),)))
        self.builder.types[name] = tensor.TensorType(v.dtype, v.shape)
        return name

    # ------------------------------------------------------------ graphs

    def inputs(self, graph: GraphProto, dims: DimTable, scope: Scope) -> None:
        """Declare the graph's inputs (those that are not initialisers)."""
        initial = {i.name for i in graph.initializer} | {i.values.name for i in graph.sparse_initializer}
        _no_name_twice([i.name for i in graph.input if i.name not in initial], "input")
        _no_name_twice([o.name for o in graph.output], "output")
        for info in graph.input:
            if info.name in initial:
                continue
            shape = _input_shape(info, dims)
            elem = info.type.tensor_type.elem_type
            if elem not in ONNX_DTYPES:
                raise UnsupportedModel(
                    f"element type {onnx_type_name(elem)}",
                    where=f"input '{info.name}'",
                    remedy="Export with a float, integer or bool input",
                )
            self._names.add(info.name)
            self.builder.input(info.name, ONNX_DTYPES[elem], shape)
            settled = tuple(self.settle(n) for n in shape)
            scope.values[info.name] = Value(info.name, ONNX_DTYPES[elem], settled, None, info.name)

    def initialisers(self, graph: GraphProto, scope: Scope) -> None:
        """Bring the graph's weights into scope (they become constants of the program when something reads
        them).
        """
        if graph.sparse_initializer:
            name = graph.sparse_initializer[0].values.name
            raise UnsupportedModel("sparse initialisers", where=name, remedy="Export dense weights")
        for proto in graph.initializer:
            data = weights.array_of(proto, self.folder, self.allow_nan)
            v = constant_value(scope.ir_name(proto.name), data)
            scope.values[proto.name] = v

    def run(self, graph: GraphProto, scope: Scope) -> None:
        """Read the nodes of a graph, in dependency order."""
        for proto in sorted_nodes(graph):
            self.run_node(proto, scope)

    def run_node(self, proto: NodeProto, scope: Scope) -> None:
        """Read one node: fold it when its inputs are known, else bind its outputs."""
        node = self._node(proto, scope)
        if not self._fold(node):
            try:
                self._read(node)
            except (TypeError, IndexError, ValueError, ZeroDivisionError) as e:
                node.fail(
                    f"its inputs do not fit together: {e} (inputs {', '.join(map(str, node.inputs))})",
                    "Run onnx.checker on the model",
                )
        for k, name in enumerate(proto.output):
            if name and k in node.results:
                scope.values[name] = node.results[k]
            elif name:
                node.fail(f"its output {k} ('{name}') is not supported")

    def _read(self, node: Node) -> None:
        fn = table.find(node.op, node.proto.domain, node.opset)
        if fn is not None:
            fn(node)
            return
        body = functions.body_of(node)
        if body is None:
            remedy = "Export with other operators, or cut the model before it"
            node.fail(f"the operator is not supported at opset {node.opset}", remedy)
        functions.expand(node, body)

    def _node(self, proto: NodeProto, scope: Scope) -> Node:
        inputs: list[Value | None] = []
        for name in proto.input:
            v = scope.find(name) if name else None
            if name and v is None:
                title = proto.name or proto.output[0]
                raise UnsupportedModel(
                    f"reads '{name}', which nothing produces",
                    where=f"{proto.op_type} '{title}'",
                    remedy="The model is malformed: run onnx.checker on it",
                )
            inputs.append(v)
        return Node(proto, self, scope, inputs, self.opsets.get(proto.domain, self.opsets.get("", 1)))

    def _fold(self, node: Node) -> bool:
        fn = table.FOLDERS.get(node.op)
        given = [v for v in node.inputs if v is not None]
        if fn is None or not given or any(v.known is None for v in given):
            return False
        if any(v.known is not None and v.known.size > FOLD_LIMIT for v in given):
            return False
        arrays = [None if v is None else v.known for v in node.inputs]
        if any(a is not None and a.dtype == object for a in arrays):
            arrays = [None if a is None else as_objects(a) for a in arrays]
        try:
            with np.errstate(all="ignore"):
                results = fn(node, *arrays)
        except (table.NotFoldable, TypeError, ValueError):
            return False
        outs = results if isinstance(results, list) else [results]
        if any(a.size > FOLD_LIMIT for a, _ in outs):
            return False
        for k, (a, dt) in enumerate(outs):
            node.give(a, dt, k)
        return True

    def outputs(self, graph: GraphProto, scope: Scope) -> None:
        """Declare the graph's outputs."""
        for info in graph.output:
            v = scope.find(info.name)
            if v is None:
                raise UnsupportedModel(
                    "nothing produces it",
                    where=f"output '{info.name}'",
                    remedy="Run onnx.checker on the model",
                )
            self.output(info.name, v)

    def dims(self) -> list[affine.Dim]:
        """The dimensions that the inputs mention, in order."""
        found: dict[str, affine.Dim] = {}
        for i in self.builder.inputs:
            for n in i.type.shape:
                for d in sorted(affine.dims(n), key=lambda d: d.name):
                    found.setdefault(d.name, d)
        return list(found.values())

    def output(self, name: str, v: Value) -> None:
        """Make v an output of the program; one that is an input, a constant or already an output gets a copy."""
        t = self.tensor(v)
        taken = {tensor_name for _, tensor_name in self.builder.outputs}
        fixed = {i.name for i in self.builder.inputs} | {c.name for c in self.builder.constants}
        if t in fixed or t in taken:
            copy = self.unique(name)
            item = tensor.bind(copy, v.shape, lambda *c: self.builder.read(t, c), (Origin("Identity", name),))
            self.builder.items.append(item)
            self.builder.types[copy] = item.type
            t = copy
        self.builder.output(name, t)


def coordinates(extents: Sequence[Expr]) -> list[Expr]:
    """The coordinates i0, i1, ... of a bind; 0 on axes of extent 1."""
    axes = tensor.out_axes(extents)
    return [affine.const(0) if a.extent.constant == 1 else affine.as_expr(a) for a in axes]


def complexity(e: Expr) -> tuple[bool, int, int, str]:
    """A key that orders expressions from simple to complex: constants first."""
    return e.constant is None, len(affine.atoms(e)), len(e.terms), str(e)


def sequence(elements: Sequence[Expr], k: Expr, dt: dtype.DType) -> Scalar:
    """The k-th of some expressions as a scalar: affine when they are an arithmetic progression, else a chain
    of selects.
    """
    if k.constant is not None:
        return number(elements[k.constant], dt)
    steps = [b - a for a, b in itertools.pairwise(elements)]
    if steps and all(s is steps[0] for s in steps):
        return number(elements[0] + k * steps[0], dt)
    out = number(elements[-1], dt)
    for j in range(len(elements) - 2, -1, -1):
        here = scalar.op("lt", scalar.idx(k, dtype.i32), scalar.const(j + 1, dtype.i32))
        out = scalar.select(here, number(elements[j], dt), out)
    return out


def _no_name_twice(names: Sequence[str], what: str) -> None:
    for k, name in enumerate(names):
        if name in names[:k]:
            raise UnsupportedModel(
                f"two {what}s have this name", where=f"{what} '{name}'", remedy="The model is malformed: run onnx.checker on it"
            )


def _input_shape(info: ValueInfoProto, dims: DimTable) -> list[Expr]:
    kind = info.type.WhichOneof("value")
    if kind != "tensor_type":
        raise UnsupportedModel(
            f"is a {kind or 'value without a type'}",
            where=f"input '{info.name}'",
            remedy="Only tensors are supported",
        )
    if not info.type.tensor_type.HasField("shape"):
        raise UnsupportedModel("has no shape", where=f"input '{info.name}'", remedy="Export with a fixed number of axes")
    shape: list[Expr] = []
    for axis, d in enumerate(info.type.tensor_type.shape.dim):
        if d.HasField("dim_value") and d.dim_value > 0:
            shape.append(affine.const(d.dim_value))
        else:
            shape.append(dims.size(d.dim_param, info.name, axis, len(info.type.tensor_type.shape.dim)))
    return shape
