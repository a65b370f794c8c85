"""What an operator's reader works with: the node's inputs and attributes, and functions that make binds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np

from tang_edge.errors import UnsupportedModel
from tang_edge.ir import affine, dtype, scalar
from tang_edge.ir.affine import Expr, Var
from tang_edge.ir.dtype import DType
from tang_edge.ir.scalar import Monoid, Scalar
from tang_edge.onnx_in.proto import AttributeProto, GraphProto, NodeProto, attribute_value
from tang_edge.onnx_in.values import Array, Value, as_objects, expr_of, known

if TYPE_CHECKING:
    from tang_edge.onnx_in.importer import Importer, Scope

Body = Callable[[list[Expr]], Scalar]
REMEDY: Final = "Change it in the export, or cut the model before this node"


@dataclass
class Node:
    """One node of a graph, with typed inputs and a way to emit binds for its outputs."""

    proto: NodeProto
    importer: Importer
    scope: Scope
    inputs: list[Value | None]
    opset: int
    results: dict[int, Value] = field(default_factory=dict)

    # ------------------------------------------------------------ what the node says

    @property
    def op(self) -> str:
        """The operator's name."""
        return self.proto.op_type

    @property
    def label(self) -> str:
        """`Conv 'name'`, for messages and origins."""
        return f"{self.op} '{self.title}'"

    @property
    def title(self) -> str:
        """The node's name, or its first output's."""
        return self.proto.name or next((o for o in self.proto.output if o), "")

    def fail(self, message: str, remedy: str = "") -> NoReturn:
        """Raise UnsupportedModel for this node."""
        raise UnsupportedModel(message, where=self.label, remedy=remedy or REMEDY)

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute as int, float, str, list, array or GraphProto."""
        for a in self.proto.attribute:
            if a.name == name:
                return _attribute(a)
        return default

    def graph(self, name: str) -> GraphProto:
        """A graph attribute."""
        g = self.attr(name)
        if not isinstance(g, GraphProto):
            self.fail(f"the attribute {name} is missing", "Export the model again")
        return g

    def x(self, k: int = 0) -> Value:
        """Input k, which must be there."""
        v = self.opt(k)
        if v is None:
            self.fail(f"input {k} is missing", "Export the model again")
        return v

    def opt(self, k: int) -> Value | None:
        """Input k or None."""
        return self.inputs[k] if k < len(self.inputs) else None

    def all_inputs(self) -> list[Value]:
        """All inputs of a variadic operator."""
        return [self.x(k) for k in range(len(self.inputs))]

    def wants(self, k: int) -> bool:
        """True when output k has a name, so that somebody may read it."""
        return k < len(self.proto.output) and bool(self.proto.output[k])

    def axis(self, name: str = "axis", default: int = 0, rank: int | None = None) -> int:
        """An axis attribute, counted from the front."""
        return self.norm_axis(int(self.attr(name, default)), self.x().rank if rank is None else rank)

    def norm_axis(self, axis: int, rank: int) -> int:
        """An axis counted from the front; UnsupportedModel when there is no such axis."""
        if not -rank <= axis < max(rank, 1):
            self.fail(f"axis {axis} of a tensor of rank {rank}")
        return axis + rank if axis < 0 else axis

    # ------------------------------------------------------------ known inputs

    def constant(self, k: int, what: str) -> Array | None:
        """Input k as a constant array, None when it is absent; UnsupportedModel when it is computed."""
        v = self.opt(k)
        if v is None:
            return None
        if v.data is None:
            self.fail(f"{what} ('{v.name}') is computed while the model runs", "Make it a constant in the export")
        return v.data

    def needed(self, k: int, what: str) -> Array:
        """Input k as a constant array; UnsupportedModel when it is absent or computed."""
        data = self.constant(k, what)
        if data is None:
            self.fail(f"{what} is missing", "Export the model again")
        return data

    def ints(self, k: int, what: str) -> list[Expr] | None:
        """Input k, a vector (or scalar) of integers, as expressions over dimensions; None when it is absent."""
        v = self.opt(k)
        if v is None:
            return None
        if v.known is None:
            self.fail(
                f"{what} ('{v.name}') is computed from data, so sizes would depend on data",
                "Make it a constant or derive it from shapes in the export",
            )
        return [expr_of(e) for e in as_objects(v.known).ravel().tolist()]

    def axes_list(self, k: int, name: str = "axes") -> list[int] | None:
        """Axes given as an attribute (older opsets) or as constant input k; None when neither is there."""
        attr = self.attr(name)
        if attr is not None:
            return [int(a) for a in attr]
        data = self.constant(k, name)
        return None if data is None else [int(a) for a in data.ravel()]

    # ------------------------------------------------------------ reading tensors

    def at(self, v: Value, coords: Sequence[Expr], guard: Sequence[Expr] = (), fill: float | int | bool = 0) -> Scalar:
        """The element of v at coords; outside the guard it is `fill`. Constants of one element become
        literals.
        """
        data = v.data
        if data is not None and data.size == 1 and all(affine.nonneg(g) for g in guard):
            return scalar.const(data.ravel()[0].item(), v.dtype)
        tensor = self.importer.tensor(v)
        return scalar.read(tensor, coords, v.dtype, guard, scalar.const(fill, v.dtype) if guard else None)

    def pick(self, v: Value, coords: Sequence[Expr]) -> Scalar:
        """The element of v that NumPy broadcasting puts at coords (v may have fewer axes, or axes of extent
        1).
        """
        own = coords[len(coords) - v.rank :] if v.rank else []
        return self.at(v, [affine.const(0) if n.constant == 1 else c for c, n in zip(own, v.shape, strict=True)])

    def single(self, v: Value) -> Scalar:
        """The one element of v."""
        return self.at(v, [affine.const(0)] * v.rank)

    def broadcast(self, *values: Value) -> list[Expr]:
        """The common shape of values under NumPy broadcasting."""
        return self.broadcast_shapes(*(v.shape for v in values))

    def broadcast_shapes(self, *shapes: Sequence[Expr]) -> list[Expr]:
        """The common shape under NumPy broadcasting; symbolic extents that must agree become constraints."""
        rank = max(map(len, shapes), default=0)
        out = [affine.const(1)] * rank
        for s in shapes:
            for k, n in enumerate(s, rank - len(s)):
                if n.constant != 1:
                    out[k] = n if out[k].constant == 1 else self.same(out[k], n)
        return out

    def same(self, a: Expr, b: Expr) -> Expr:
        """The simpler of two extents that must be equal; UnsupportedModel when they cannot be."""
        return self.importer.same(a, b, self.label)

    # ------------------------------------------------------------ making tensors

    def emit(self, shape: Sequence[Expr | int], body: Body, k: int = 0) -> Value:
        """Bind output k: its element at coords is body(coords)."""
        v = self.importer.bind(self.scope.ir_name(self.proto.output[k]), shape, body, self)
        self.results[k] = v
        return v

    def temp(self, hint: str, shape: Sequence[Expr | int], body: Body) -> Value:
        """A tensor between the node's inputs and outputs, named `<output>.<hint>`."""
        base = next((o for o in self.proto.output if o), self.op)
        return self.importer.bind(self.importer.unique(f"{base}.{hint}"), shape, body, self)

    def alias(self, v: Value, k: int = 0) -> None:
        """Output k is v itself."""
        self.results[k] = v

    def give(self, array: Array, dt: DType, k: int = 0) -> None:
        """Output k is known while the model is read."""
        self.results[k] = known(self.scope.ir_name(self.proto.output[k]), dt, array)

    def map(self, v: Value, fn: Callable[[Scalar], Scalar], k: int = 0) -> Value:
        """Bind output k to fn of each element of v."""
        return self.emit(v.shape, lambda c: fn(self.at(v, c)), k)

    # ------------------------------------------------------------ reductions

    def reduce(self, monoid: Monoid, extents: Sequence[Expr], lift: Body) -> Scalar:
        """The reduction of lift(coords) over coords in extents (axes of extent 1 are not axes)."""
        axes, coords = reduced_axes(extents)
        return scalar.reduce(monoid, axes, lift(coords)) if axes else lift(coords)

    def sum(self, extents: Sequence[Expr], lift: Body) -> Scalar:
        """The sum of lift(coords); f16 accumulates in f32."""
        _, coords = reduced_axes(extents)
        dt = lift(coords).dtype
        if dt is dtype.f16:
            total = self.reduce(scalar.sum_of(dtype.f32), extents, lambda c: scalar.cast(lift(c), dtype.f32))
            return scalar.cast(total, dt)
        return self.reduce(scalar.sum_of(dt), extents, lift)

    def index_of(self, monoid: Monoid, extents: Sequence[Expr], lifts: Callable[[list[Expr]], tuple[Scalar, Scalar]]) -> Scalar:
        """The index that an (argmax) monoid finds; lifts give a value and its index."""
        axes, coords = reduced_axes(extents)
        value, index = lifts(coords)
        return scalar.Get(scalar.comprehension(axes, monoid, (value, index)), 1) if axes else index


def reduced_axes(extents: Sequence[Expr]) -> tuple[list[Var], list[Expr]]:
    """Fresh axes for a reduction and the coordinates they give; an extent of 1 gives the coordinate 0 and no
    axis.
    """
    axes: list[Var] = []
    coords: list[Expr] = []
    for n in extents:
        if n.constant == 1:
            coords.append(affine.const(0))
        else:
            axes.append(scalar.fresh(n, "r"))
            coords.append(affine.as_expr(axes[-1]))
    return axes, coords


def number(e: Expr, dt: DType) -> Scalar:
    """An integer expression as a number: a literal where it is constant, i32 arithmetic where that is enough."""
    if e.constant is not None:
        return scalar.const(e.constant, dt)
    lo, hi = affine.bounds(e)
    small = dtype.i32.limits()[0] <= lo and hi <= dtype.i32.limits()[1]
    wide = dt if dt in (dtype.i32, dtype.i64) else dtype.i32 if small else dtype.i64
    return scalar.cast(scalar.idx(e, wide), dt)


def _attribute(a: AttributeProto) -> Any:
    value = attribute_value(a)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if a.type == AttributeProto.STRINGS:
        return [s.decode("utf-8", "replace") for s in value]
    if a.type == AttributeProto.FLOAT:
        return float(np.float32(value))
    return list(value) if a.type in (AttributeProto.INTS, AttributeProto.FLOATS) else value
