"""Scalar expressions: what one point of an iteration space computes. Seven node kinds, hash-consed.

    Const   a literal                                  Idx   an integer expression over axes, as a value
    Op      an operator of `ops.OPS`                   Read  an element of a tensor through a View
    Comprehension / Get   a reduction and a component of its final state (a comprehension is read through Get only)
    St      a component of the left or right state; it occurs in `Monoid.combine` and nowhere else

The expression around a `Get` is what other systems call the epilogue: there is no field for it.

Binders are closed to canonical names: the axes of a comprehension are called r{height}_{position}, so alpha-equal
comprehensions are one object. `substitute` opens every binder with fresh names before it descends, so nothing is captured.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tang_edge.ir import affine
from tang_edge.ir.affine import Expr, Var
from tang_edge.ir.dtype import DType, Kind, boolean, i32, i64
from tang_edge.ir.intern import Interned
from tang_edge.ir.ops import CAST, COMPARE, OPS, SELECT, TEST

Number = int | float | bool


class _Arithmetic:
    """Python operators on scalars; a number takes the dtype of the scalar beside it."""

    __slots__ = ()

    def __add__(self, o: Scalar | Number) -> Scalar:
        return binary("add", self, o)  # type: ignore[arg-type]

    def __radd__(self, o: Number) -> Scalar:
        return binary("add", o, self)  # type: ignore[arg-type]

    def __sub__(self, o: Scalar | Number) -> Scalar:
        return binary("sub", self, o)  # type: ignore[arg-type]

    def __rsub__(self, o: Number) -> Scalar:
        return binary("sub", o, self)  # type: ignore[arg-type]

    def __mul__(self, o: Scalar | Number) -> Scalar:
        return binary("mul", self, o)  # type: ignore[arg-type]

    def __rmul__(self, o: Number) -> Scalar:
        return binary("mul", o, self)  # type: ignore[arg-type]

    def __truediv__(self, o: Scalar | Number) -> Scalar:
        return binary("div", self, o)  # type: ignore[arg-type]

    def __rtruediv__(self, o: Number) -> Scalar:
        return binary("div", o, self)  # type: ignore[arg-type]

    def __neg__(self) -> Scalar:
        return op("neg", self)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Const(_Arithmetic, metaclass=Interned):
    """A literal of a dtype. -0.0, NaN and infinities are kept apart from each other."""

    value: Number
    dtype: DType

    @staticmethod
    def _intern_key(value: Number, dtype: DType) -> object:
        if value != value:
            return "nan", dtype  # one NaN, whatever its sign and payload
        return (struct.pack("<d", value) if isinstance(value, float) else (type(value), value), dtype)

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Idx(_Arithmetic, metaclass=Interned):
    """The value of an integer expression over axes and dimensions, as i32 or i64."""

    e: Expr
    dtype: DType

    def __str__(self) -> str:
        return f"idx({self.e})"


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Op(_Arithmetic, metaclass=Interned):
    """An operator applied to scalars. Build with `op`, `cast`, `select`: they check the types."""

    name: str
    args: tuple[Scalar, ...]
    dtype: DType

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.args))})"


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class View(metaclass=Interned):
    """An affine map from an iteration space to tensor coordinates, a guard and a fill value.

    coords  one expression for each axis of the tensor
    guard   expressions that must all be >= 0 for the element to be read; elsewhere the view is `fill`
    fill    a constant, or None where there is no guard
    """

    coords: tuple[Expr, ...]
    guard: tuple[Expr, ...] = ()
    fill: Const | None = None

    @staticmethod
    def _intern_key(coords: tuple[Expr, ...], guard: tuple[Expr, ...] = (), fill: Const | None = None) -> object:
        return coords, guard, fill


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Read(_Arithmetic, metaclass=Interned):
    """The element of a tensor that a view names."""

    tensor: str
    view: View
    dtype: DType

    def __str__(self) -> str:
        guard = f" if {', '.join(f'{g} >= 0' for g in self.view.guard)} else {self.view.fill}" if self.view.guard else ""
        return f"{self.tensor}[{', '.join(map(str, self.view.coords))}{guard}]"


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class St(_Arithmetic, metaclass=Interned):
    """Component k of the left ("l") or right ("r") state inside a monoid's combine."""

    side: str
    k: int
    dtype: DType

    def __str__(self) -> str:
        return f"{self.side}{self.k}"


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Monoid(metaclass=Interned):
    """An associative combine with an identity, as data.

    identity     one constant a component
    combine      one expression over St a component
    commutative  the order of the elements does not matter
    exact        the order of combining does not matter bit for bit (max, integer sums)
    """

    name: str
    identity: tuple[Const, ...]
    combine: tuple[Scalar, ...]
    commutative: bool
    exact: bool


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Comprehension(metaclass=Interned):
    """The reduction of `lifts` over `axes` under a monoid. Build with `comprehension`, which closes the binder.

    An axis extent may mention free axes (a prefix reduction) but not the axes beside it.
    """

    axes: tuple[Var, ...]
    monoid: Monoid
    lifts: tuple[Scalar, ...]

    def __str__(self) -> str:
        ranges = ", ".join(f"{a} < {a.extent}" for a in self.axes)
        return f"{self.monoid.name}({ranges}: {', '.join(map(str, self.lifts))})"


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Get(_Arithmetic, metaclass=Interned):
    """Component k of a comprehension's final state."""

    of: Comprehension
    k: int

    @property
    def dtype(self) -> DType:
        return self.of.monoid.identity[self.k].dtype

    def __str__(self) -> str:
        return str(self.of) if len(self.of.lifts) == 1 else f"{self.of}.{self.k}"


Scalar = Const | Idx | Op | Read | St | Get


# ---------------------------------------------------------------- construction


def const(value: Number, dtype: DType) -> Const:
    """A literal; the value is converted to the dtype's family (and, for floats, rounded to it)."""
    if dtype.is_float:
        with np.errstate(over="ignore"):  # too great for the dtype: infinity
            return Const(float(np.asarray(value, dtype=dtype.numpy)), dtype)
    return Const(bool(value) if dtype.kind is Kind.BOOL else int(value), dtype)


def _result(name: str, args: Sequence[Scalar]) -> DType:
    info = OPS[name]
    if len(args) != info.arity:
        raise TypeError(f"{name} takes {info.arity} operands, not {len(args)}")
    types = [a.dtype for a in args]
    if info.family is SELECT:
        if types[0] is not boolean or types[1] is not types[2]:
            raise TypeError(f"select of {types}")
        return types[1]
    if any(t is not types[0] for t in types):
        raise TypeError(f"{name} of {types}: cast first")
    return boolean if info.family in (COMPARE, TEST) else types[0]


def op(name: str, *args: Scalar) -> Scalar:
    """An operator applied to scalars of equal dtype. Raises TypeError for a wrong arity or mixed dtypes."""
    if OPS[name].family is CAST:
        raise TypeError("use cast()")
    return Op(name, tuple(args), _result(name, args))


def binary(name: str, a: Scalar | Number, b: Scalar | Number) -> Scalar:
    """A binary operator; a Python number takes the dtype of the other operand."""
    x = const(a, b.dtype) if isinstance(a, (int, float)) else a  # type: ignore[union-attr]
    y = const(b, x.dtype) if isinstance(b, (int, float)) else b
    return op(name, x, y)


def cast(x: Scalar, dtype: DType) -> Scalar:
    """x converted to a dtype (x itself when it has it)."""
    return x if x.dtype is dtype else Op("cast", (x,), dtype)


def select(cond: Scalar, a: Scalar, b: Scalar) -> Scalar:
    """a where cond holds, else b."""
    return op("select", cond, a, b)


def idx(e: Expr | Var | int, dtype: DType = i64) -> Scalar:
    """An integer expression as a value (i32 or i64)."""
    if dtype not in (i32, i64):
        raise TypeError(f"idx of {dtype}")
    return Idx(affine.as_expr(e), dtype)
