"""Tensor programs: named dimensions, inputs, constants, and a list of items (Bind, Alloc, If, Loop) that make the outputs.

Bind(name, axes, expr)      name[axes] = expr, for all points of the axes i0, i1, ...
Alloc(name, type)           a tensor that several binds write, each a region of its own (concatenation in place)
If(cond, then, orelse)      structured control: both branches bind the same result names
Loop(trip, cond, carried, body)   the body runs again and again; carried tensors go from one turn to the next
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from tang_edge.ir import affine, dtype, scalar
from tang_edge.ir.affine import Dim, Expr, Var
from tang_edge.ir.dtype import DType
from tang_edge.ir.scalar import Scalar

Array = npt.NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class TensorType:
    """A dtype and a shape; extents are expressions over named dimensions."""

    dtype: DType
    shape: tuple[Expr, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class Input:
    """A tensor the caller gives."""

    name: str
    type: TensorType


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A tensor of the model (a weight). Its shape is static."""

    name: str
    data: Array

    @property
    def type(self) -> TensorType:
        return TensorType(dtype.from_numpy(self.data.dtype), tuple(affine.const(n) for n in self.data.shape))


@dataclass(frozen=True, slots=True)
class Store:
    """Where a bind's element goes when it is not a tensor of its own: `tensor[coords]`, coords over the bind's axes."""

    tensor: str
    coords: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Origin:
    """The model node that a bind came from, for errors, `explain` and profiles."""

    op: str
    node: str

    def __str__(self) -> str:
        return f"{self.op} '{self.node}'"


@dataclass(frozen=True, slots=True)
class Bind:
    """name[axes] = expr. Axes are called i0, i1, ...; the element type is the expression's."""

    name: str
    axes: tuple[Var, ...]
    expr: Scalar
    store: Store | None = None
    origin: tuple[Origin, ...] = ()

    @property
    def type(self) -> TensorType:
        return TensorType(self.expr.dtype, tuple(a.extent for a in self.axes))


@dataclass(frozen=True, slots=True)
class Alloc:
    """A tensor without an expression: binds with a `Store` fill it."""

    name: str
    type: TensorType


@dataclass(frozen=True, slots=True)
class If:
    """When the one element of `cond` is true the binds of `then` run, else those of `orelse`; both bind `results`."""

    cond: str
    then: tuple[Item, ...]
    orelse: tuple[Item, ...]
    results: tuple[str, ...]
    origin: tuple[Origin, ...] = ()


@dataclass(frozen=True, slots=True)
class Carry:
    """A tensor that a loop carries: it begins as `initial`; after each turn it is the body's `next`."""

    name: str
    initial: str
    next: str


@dataclass(frozen=True, slots=True)
class Loop:
    """The body runs `trip` times (a size, or a tensor of one i64 element), as long as the one element of `cond` is true.

    `cond` is carried, or None: it is looked at before each turn. The carried tensors are visible in the body and after it
    (with their last values), the other tensors of the body in the body only.
    """

    trip: Expr | str
    cond: str | None
    carried: tuple[Carry, ...]
    body: tuple[Item, ...]
    origin: tuple[Origin, ...] = ()

    @property
    def results(self) -> tuple[str, ...]:
        """The tensors that are visible after the loop."""
        return tuple(c.name for c in self.carried)

    @property
    def given(self) -> tuple[str, ...]:
        """Tensors from outside that the loop itself mentions: trip count and initial values."""
        return (*((self.trip,) if isinstance(self.trip, str) else ()), *(c.initial for c in self.carried))


Item = Bind | Alloc | If | Loop


@dataclass(frozen=True, slots=True)
class Constraint:
    """left = right must hold for the sizes of a run: an equality that the graph implies."""

    left: Expr
    right: Expr
    why: str


@dataclass(frozen=True, slots=True)
class State:
    """A tensor kept between runs: the output becomes the input of the next run; `reset` fills it at the start."""

    input: str
    output: str


@dataclass(frozen=True, slots=True)
class Program:
    """A tensor program. Items are in an order in which every tensor is bound before it is read.

    `finite_math` lets a schedule leave out points where 0 is multiplied: 0 * y = 0. It is set where every constant is finite;
    an activation that is not is then the caller's matter (docs/float-semantics.md).
    """

    name: str
    dims: tuple[Dim, ...]
    inputs: tuple[Input, ...]
    constants: tuple[Constant, ...]
    items: tuple[Item, ...]
    outputs: tuple[tuple[str, str], ...]  # (name for the caller, tensor)
    states: tuple[State, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    finite_math: bool = True

    def types(self) -> dict[str, TensorType]:
        """The type of every tensor of the program, those bound in branches included."""
        out = {i.name: i.type for i in self.inputs} | {c.name: c.type for c in self.constants}
        for item in walk(self.items):
            if isinstance(item, Loop):
                out.update({c.name: out[c.initial] for c in item.carried})
            elif not isinstance(item, If):
                out[item.name] = item.type
        return out

    def binds(self) -> tuple[Bind, ...]:
        """All binds, in order, those in branches included."""
        return tuple(i for i in walk(self.items) if isinstance(i, Bind))

    def with_items(self, items: Sequence[Item]) -> Program:
        """The program with other items."""
        return replace(self, items=tuple(items))


def walk(items: Sequence[Item]) -> Iterator[Item]:
    """Items in order; the items of branches after their If, those of a body after their Loop."""
    for item in items:
        yield item
        if isinstance(item, If):
            yield from walk(item.then)
            yield from walk(item.orelse)
        elif isinstance(item, Loop):
            yield from walk(item.body)


def map_items(items: Sequence[Item], fn: Callable[[Item], Sequence[Item]]) -> tuple[Item, ...]:
    """Items with each Bind and Alloc replaced by fn(item), in branches and bodies too (If and Loop keep their place)."""
    out: list[Item] = []
    for item in items:
        if isinstance(item, If):
            out.append(replace(item, then=map_items(item.then, fn), orelse=map_items(item.orelse, fn)))
        elif isinstance(item, Loop):
            out.append(replace(item, body=map_items(item.body, fn)))
        else:
            out.extend(fn(item))
    return tuple(out)


def out_axes(shape: Sequence[Expr | int]) -> tuple[Var, ...]:
    """The axes i0, i1, ... of a bind of that shape."""
    return tuple(affine.var(f"i{k}", n) for k, n in enumerate(shape))


def bind(name: str, shape: Sequence[Expr | int], body: Callable[..., Scalar], origin: tuple[Origin, ...] = ()) -> Bind:
    """name[i0, i1, ...] = body(i0, i1, ...), the axes given to body as Var (use `affine.as_expr` to compute with them)."""
    axes = out_axes(shape)
    return Bind(name, axes, body(*axes), None, origin)


@dataclass
class Builder:
    """Builds a Program from Python, with or without ONNX. Tensors are handled by name; `types` knows their types.

    `finite_math` may be refused here; it does not hold for a program with a constant that is not finite.
    """

    name: str
    dims: list[Dim] = field(default_factory=list)
    inputs: list[Input] = field(default_factory=list)
    constants: list[Constant] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    outputs: list[tuple[str, str]] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    constraints: list[Constraint] = field(default_factory=list)
    types: dict[str, TensorType] = field(default_factory=dict)
    origin: tuple[Origin, ...] = ()
    finite_math: bool = True

    def dim(self, name: str, lo: int = 1, hi: int = 4096, multiple: int = 1) -> Expr:
        """The size of a named dimension (the same one when asked again by name); a constant when lo = hi."""
        for d in self.dims:
            if d.name == name:
                return affine.as_expr(d) * d.multiple
        size = affine.dim(name, lo, hi, multiple)
        self.dims.extend(affine.dims(size))
        return size

    def input(self, name: str, dt: DType, shape: Sequence[Expr | int]) -> str:
        """An input tensor."""
        t = TensorType(dt, tuple(map(affine.as_expr, shape)))
        self.inputs.append(Input(name, t))
        self.types[name] = t
        return name

    def constant(self, name: str, data: Array) -> str:
        """A constant tensor."""
        c = Constant(name, np.ascontiguousarray(data) if np.ndim(data) else np.asarray(data))
        self.constants.append(c)
        self.types[name] = c.type
        return name

    def bind(self, name: str, shape: Sequence[Expr | int], body: Callable[..., Scalar]) -> str:
        """name[i...] = body(i...)."""
        b = bind(name, shape, body, self.origin)
        self.items.append(b)
        self.types[name] = b.type
        return name

    def read(self, tensor: str, coords: Sequence[Expr | Var | int], guard: Sequence[Expr] = (), fill: float = 0) -> Scalar:
        """An element of a tensor; outside the guard it is `fill`."""
        dt = self.types[tensor].dtype
        return scalar.read(tensor, coords, dt, guard, scalar.const(fill, dt) if guard else None)

    def output(self, name: str, tensor: str | None = None) -> None:
        """An output tensor, under its own name or another."""
        self.outputs.append((name, tensor or name))

    def build(self) -> Program:
        """The finished program."""
        parts = (
            self.dims,
            self.inputs,
            self.constants,
            self.items,
            self.outputs,
            self.states,
            self.constraints,
        )
        finite = self.finite_math and not not_finite(self.constants)
        made = Program(self.name, *(tuple(p) for p in parts))  # type: ignore[arg-type]
        return replace(made, finite_math=finite)


def not_finite(constants: Sequence[Constant]) -> tuple[str, ...]:
    """The names of the constants that hold NaN or an infinity."""
    floats = (c for c in constants if c.data.dtype.kind == "f")
    return tuple(c.name for c in floats if not np.isfinite(c.data).all())
