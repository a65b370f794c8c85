"""Structured control: Loop. What it carries keeps its type; scan outputs need a trip count that is known."""

from __future__ import annotations

from tang_edge.ir import affine, dtype, scalar, tensor
from tang_edge.ir.affine import Expr
from tang_edge.ir.scalar import Scalar, op
from tang_edge.ir.tensor import Bind, Carry, Item, Origin, TensorType
from tang_edge.onnx_in.node import Node
from tang_edge.onnx_in.ops.control import one_element, result_of, scope_of
from tang_edge.onnx_in.proto import GraphProto
from tang_edge.onnx_in.table import operator
from tang_edge.onnx_in.values import Value, expr_of

ENDLESS = 2**31 - 2  # turns of a loop without a trip count; it also keeps the number of the turn in 32 bits


@operator("Loop")
def _loop(n: Node) -> None:
    body = n.graph("body")
    initial = [n.x(k) for k in range(2, len(n.proto.input))]
    if len(body.input) != len(initial) + 2 or len(body.output) <= len(initial):
        n.fail(f"it carries {len(initial)} tensors, its body has {len(body.input)} inputs and {len(body.output)} outputs")
    work = _Loop(n, body, initial)
    items = work.body()
    made = tensor.Loop(work.trip, work.cond, tuple(work.carries), items, (Origin(n.op, n.title),))
    n.importer.builder.items.append(made)


class _Loop:
    """One Loop while it is imported: `carries` collects what it carries, first the tensors of the node."""

    def __init__(self, n: Node, graph: GraphProto, initial: list[Value]) -> None:
        self.n, self.graph, self.initial = n, graph, initial
        self.names = [n.scope.ir_name(o) if o else n.importer.unique(f"{n.title}.{k}") for k, o in enumerate(n.proto.output)]
        n.importer.results.update(self.names)
        self.carries: list[Carry] = []
        self.cond: str | None = None
        given = n.opt(1)
        self.starts: bool | None = True if given is None else None
        if given is not None and given.data is not None:
            self.starts = bool(given.data.ravel()[0])
        self.trip = affine.const(0) if self.starts is False else self._trip()
        first = scalar.const(True, dtype.boolean) if given is None else n.single(one_element(n, given))
        self.turn = self._scalar("turn", scalar.const(0, dtype.i64))
        self.on = self._scalar("on", first)
        self.inner = [self._value(name, v.dtype, v.shape) for name, v in zip(self.names, initial, strict=False)]

    def _trip(self) -> Expr | str:
        v = self.n.opt(0)
        if v is None:
            return affine.const(ENDLESS)
        one_element(self.n, v)
        if v.known is None:
            return self.n.importer.tensor(v)
        count = affine.maximum(expr_of(v.known.ravel()[0]), affine.const(0))
        return count if count.constant is None else affine.const(min(count.constant, ENDLESS))

    def _value(self, name: str, dt: dtype.DType, shape: tuple[Expr, ...]) -> Value:
        self.n.importer.builder.types[name] = TensorType(dt, shape)
        return Value(name, dt, shape, None, name)

    def _scalar(self, what: str, start: Scalar) -> tuple[str, Value]:
        """What the loop counts or asks for itself: its initial tensor, and its value in the body."""
        made = self.n.importer.bind(self.n.importer.unique(f"{self.n.title}.{what}0"), (), lambda c: start, self.n)
        return made.name, self._value(self.n.importer.unique(f"{self.n.title}.{what}"), start.dtype, ())

    def body(self) -> tuple[Item, ...]:
        """The items of the body; the values of the node's outputs are set."""
        builder = self.n.importer.builder
        outside, builder.items = builder.items, []
        try:
            scope = scope_of(self.n, self.graph)
            ports = (self.turn[1], self.on[1], *self.inner)
            scope.values.update({p.name: v for p, v in zip(self.graph.input, ports, strict=True)})
            self.n.importer.run(self.graph, scope)
            cond, *results = [result_of(self.n, scope, o.name) for o in self.graph.output]
            for k, v in enumerate(results):
                start, value = self._next(k, v) if k < len(self.inner) else self._scan(k, v, cond, outside)
                if k < len(self.n.proto.output):
                    self.n.alias(value, k)
                self.carries.append(Carry(value.name, start, self._bound(f"{value.name}.next", value.shape, v, k)))
            self._controls(cond)
            return tuple(builder.items)
        finally:
            builder.items = outside

    def _next(self, k: int, v: Value) -> tuple[str, Value]:
        """A carried tensor: its initial one, and its value after the loop."""
        carried = self.inner[k]
        if v.dtype is not carried.dtype or v.rank != carried.rank:
            self.n.fail(f"it carries {carried}, which becomes {v}", "A loop can carry tensors of one shape only")
        for a, b in zip(v.shape, carried.shape, strict=True):
            self.n.same(a, b)
        return self.n.importer.tensor(self.initial[k]), carried

    def _scan(self, k: int, v: Value, cond: Value, outside: list[Item]) -> tuple[str, Value]:
        """A scan output: a tensor of zeros, into which each turn puts its slice."""
        if isinstance(self.trip, str) or self.trip.constant == ENDLESS or not self._endless(cond):
            self.n.fail("its scan outputs have as many slices as it makes turns, which is not known", "Give it a trip count")
        value = self._value(self.names[k], v.dtype, (self.trip, *v.shape))
        name = self.n.importer.unique(f"{value.name}.zeros")
        axes = tensor.out_axes(value.shape)
        outside.append(Bind(name, axes, scalar.const(0, v.dtype), None, (Origin(self.n.op, self.n.title),)))
        self.n.importer.builder.types[name] = TensorType(v.dtype, value.shape)
        return name, value

    def _bound(self, name: str, shape: tuple[Expr, ...], v: Value, k: int) -> str:
        """A bind of the body that holds the next value of what is carried."""

        def put(c: list[Expr]) -> Scalar:
            if k < len(self.inner):
                return self.n.at(v, c)
            here = op("eq", scalar.idx(c[0]), self.n.single(self.turn[1]))
            return scalar.select(here, self.n.at(v, c[1:]), scalar.read(self.names[k], c, v.dtype))

        made = self.n.importer.bind(self.n.importer.unique(name), shape, put, self.n)
        return made.name

    def _endless(self, cond: Value) -> bool:
        """True when the condition never ends the loop (one that does not start makes no turn already)."""
        always = cond.tensor == self.on[1].tensor or (cond.data is not None and bool(cond.data.ravel()[0]))
        return self.starts is False or (self.starts is True and always)

    def _controls(self, cond: Value) -> None:
        """Carry the number of the turn and the condition, where something looks at them."""
        items = self.n.importer.builder.items
        read = {r.tensor for i in tensor.walk(items) if isinstance(i, Bind) for r in scalar.reads(i.expr)}
        read |= {i.cond for i in tensor.walk(items) if isinstance(i, tensor.If)}
        if not self._endless(cond):
            self.cond = self.on[1].name
        for (start, v), wanted in ((self.turn, False), (self.on, self.cond is not None)):
            if not wanted and v.name not in read:
                continue
            once_more = op("min", self.n.single(v), scalar.const(ENDLESS, dtype.i64)) + 1 if v.dtype is dtype.i64 else None
            body = once_more if once_more is not None else self.n.single(one_element(self.n, cond))
            made = self.n.importer.bind(self.n.importer.unique(f"{v.name}.next"), (), lambda c, b=body: b, self.n)  # type: ignore[misc]
            self.carries.append(Carry(v.name, start, made.name))
