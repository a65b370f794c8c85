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

import itertools
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tang_edge.ir import affine
from tang_edge.ir.affine import Expr, Opaque, Var
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

    identity     one constant a component (finite sentinels stand for infinities on devices: see `emit.legalize`)
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
        import numpy as np

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


def read(
    tensor: str,
    coords: Sequence[Expr | Var | int],
    dtype: DType,
    guard: Sequence[Expr] = (),
    fill: Const | None = None,
) -> Read:
    """An element of a tensor. Guards proved true are dropped."""
    kept = tuple(sorted({g for g in guard if not affine.nonneg(g)}, key=str))
    return Read(tensor, View(tuple(map(affine.as_expr, coords)), kept, fill if kept else None), dtype)


def gather_index(value: Scalar, extent: Expr) -> Expr:
    """An integer scalar as a coordinate in [0, extent): the value is clamped to it, so no read is ever out of bounds."""
    hi = affine.bounds(extent)[1] - 1
    top = Idx(extent - 1, value.dtype)
    clamped = op("max", op("min", value, top), const(0, value.dtype))
    return affine.as_expr(Opaque(clamped, 0, hi))


_fresh = itertools.count()


def fresh(extent: Expr | int, hint: str = "t") -> Var:
    """A variable that occurs nowhere else."""
    return Var(f"{hint}'{next(_fresh)}", affine.as_expr(extent))


def comprehension(axes: Sequence[Var], monoid: Monoid, lifts: Sequence[Scalar]) -> Comprehension:
    """The reduction of lifts over axes, closed: its axes are renamed r{height}_{position}, heights counted from the inside."""
    h = max((height(x) for x in lifts), default=0)
    # A canonical name may be free here while its own binder is open; it must not be captured. Closing that binder
    # substitutes it, which opens and closes this one again under its canonical name.
    inside = frozenset[Var]().union(*(free(x) for x in lifts)) - frozenset(axes)
    taken = {v.name for v in inside.union(*(affine.variables(a.extent) for a in axes))}
    while any(f"r{h}_{k}" in taken for k in range(len(axes))):
        h += 1
    closed = tuple(Var(f"r{h}_{k}", a.extent) for k, a in enumerate(axes))
    mapping = {a: affine.as_expr(c) for a, c in zip(axes, closed, strict=True) if a is not c}
    return Comprehension(closed, monoid, tuple(substitute(x, mapping) for x in lifts))


def opened(c: Comprehension) -> tuple[tuple[Var, ...], tuple[Scalar, ...]]:
    """The axes and lifts of a comprehension with fresh names in place of the canonical ones."""
    axes = tuple(fresh(a.extent, a.name) for a in c.axes)
    mapping = {a: affine.as_expr(b) for a, b in zip(c.axes, axes, strict=True)}
    return axes, tuple(substitute(x, mapping) for x in c.lifts)


# ---------------------------------------------------------------- traversal


@lru_cache(maxsize=1 << 17)
def height(x: Scalar) -> int:
    """How many comprehensions are nested in x: 0 for none."""
    match x:
        case Get():
            return 1 + max(height(y) for y in x.of.lifts)
        case _:
            return max((height(y) for y in children(x)), default=0)


def _in_exprs(es: Sequence[Expr]) -> tuple[Scalar, ...]:
    return tuple(a.value for e in es for a in sorted(affine.atoms(e), key=lambda a: a.key) if isinstance(a, Opaque))


def children(x: Scalar) -> tuple[Scalar, ...]:
    """The scalars directly under x: operands, lifts of a comprehension, computed coordinates."""
    match x:
        case Op():
            return x.args
        case Idx():
            return _in_exprs((x.e,))
        case Read():
            return _in_exprs(x.view.coords + x.view.guard)
        case Get():
            return x.of.lifts
        case Const() | St():
            return ()


@lru_cache(maxsize=1 << 17)
def free(x: Scalar) -> frozenset[Var]:
    """The axis variables free in x."""
    found: set[Var] = set()
    match x:
        case Idx():
            found |= affine.variables(x.e)
        case Read():
            for e in x.view.coords + x.view.guard:
                found |= affine.variables(e)
        case Get():
            inner = frozenset[Var]().union(*(free(y) for y in x.of.lifts)) - frozenset(x.of.axes)
            return inner.union(*(affine.variables(a.extent) for a in x.of.axes))
        case _:
            pass
    return frozenset(found).union(*(free(y) for y in children(x)))


@lru_cache(maxsize=1 << 17)
def reads(x: Scalar) -> frozenset[Read]:
    """Every Read in x, those in lifts and computed coordinates included (their views may mention bound axes)."""
    here = frozenset((x,)) if isinstance(x, Read) else frozenset[Read]()
    return here.union(*(reads(y) for y in children(x)))


@lru_cache(maxsize=1 << 17)
def comprehensions(x: Scalar) -> frozenset[Comprehension]:
    """Every comprehension in x, nested ones included."""
    here = frozenset((x.of,)) if isinstance(x, Get) else frozenset[Comprehension]()
    return here.union(*(comprehensions(y) for y in children(x)))


def rebuild(x: Scalar, visit: Callable[[Scalar], Scalar]) -> Scalar:
    """x with each child y replaced by visit(y); binders are opened first and closed again after."""
    match x:
        case Op():
            args = tuple(visit(a) for a in x.args)
            return x if args == x.args else Op(x.name, args, x.dtype)
        case Idx():
            return Idx(_visit_expr(x.e, visit), x.dtype)
        case Read():
            v = x.view
            if not _in_exprs(v.coords + v.guard):
                return x
            coords = [_visit_expr(e, visit) for e in v.coords]
            return read(x.tensor, coords, x.dtype, [_visit_expr(g, visit) for g in v.guard], v.fill)
        case Get():
            axes, lifts = opened(x.of)
            return Get(comprehension(axes, x.of.monoid, tuple(visit(y) for y in lifts)), x.k)
        case Const() | St():
            return x


def _visit_expr(e: Expr, visit: Callable[[Scalar], Scalar]) -> Expr:
    def leaf(a: affine.Atom) -> Expr | None:
        return affine.as_expr(Opaque(visit(a.value), a.lo, a.hi)) if isinstance(a, Opaque) else None

    return affine.rebuild(e, leaf) if any(isinstance(a, Opaque) for a in affine.atoms(e)) else e


def substitute(x: Scalar, mapping: Mapping[Var, Expr]) -> Scalar:
    """x with free axis variables replaced by expressions. Capture-free: binders that could clash are opened first."""
    memo: dict[Scalar, Scalar] = {}

    def go(y: Scalar) -> Scalar:
        if not mapping or free(y).isdisjoint(mapping):
            return y
        if y not in memo:
            memo[y] = step(y)
        return memo[y]

    def expr(e: Expr) -> Expr:
        def leaf(a: affine.Atom) -> Expr | None:
            if isinstance(a, Var):
                return mapping.get(a)
            return affine.as_expr(Opaque(go(a.value), a.lo, a.hi)) if isinstance(a, Opaque) else None

        return affine.rebuild(e, leaf)

    def step(y: Scalar) -> Scalar:
        match y:
            case Idx():
                return Idx(expr(y.e), y.dtype)
            case Read():
                v = y.view
                return read(y.tensor, [expr(e) for e in v.coords], y.dtype, [expr(g) for g in v.guard], v.fill)
            case Get():
                axes, lifts = opened(y.of)
                axes_new = tuple(Var(a.name, expr(a.extent)) for a in axes)
                renamed = {a: affine.as_expr(b) for a, b in zip(axes, axes_new, strict=True) if a is not b}
                inner = [substitute(go(z), renamed) for z in lifts]
                return Get(comprehension(axes_new, y.of.monoid, inner), y.k)
            case _:
                return rebuild(y, go)

    return go(x)


# ---------------------------------------------------------------- monoids


def _simple(name: str, opname: str, identity: Number, dtype: DType, exact: bool) -> Monoid:
    return Monoid(name, (const(identity, dtype),), (op(opname, St("l", 0, dtype), St("r", 0, dtype)),), True, exact)


def sum_of(dtype: DType) -> Monoid:
    """(+, 0)."""
    return _simple("sum", "add", 0, dtype, not dtype.is_float)


def product_of(dtype: DType) -> Monoid:
    """(*, 1)."""
    return _simple("product", "mul", 1, dtype, not dtype.is_float)


def max_of(dtype: DType) -> Monoid:
    """(max, least value)."""
    low: Number = float("-inf") if dtype.is_float else dtype.limits()[0]
    return _simple("max", "max", low, dtype, True)


def min_of(dtype: DType) -> Monoid:
    """(min, greatest value)."""
    high: Number = float("inf") if dtype.is_float else dtype.limits()[1]
    return _simple("min", "min", high, dtype, True)


def any_of() -> Monoid:
    """(or, false)."""
    return _simple("any", "or", False, boolean, True)


def all_of() -> Monoid:
    """(and, true)."""
    return _simple("all", "and", True, boolean, True)


def argmax_of(dtype: DType, last: bool = False) -> Monoid:
    """(value, index): the greatest value and the first (or last) index that has it; empty: (least value, -1)."""
    low: Number = float("-inf") if dtype.is_float else dtype.limits()[0]
    lv, rv, li, ri = St("l", 0, dtype), St("r", 0, dtype), St("l", 1, i64), St("r", 1, i64)
    tie = op("le" if last else "lt", ri if not last else li, li if not last else ri)
    better = op("or", op("lt", lv, rv), op("and", op("eq", lv, rv), op("and", tie, op("le", const(0, i64), ri))))
    take = op("or", better, op("lt", li, const(0, i64)))
    name = "argmax_last" if last else "argmax"
    return Monoid(name, (const(low, dtype), const(-1, i64)), (select(take, rv, lv), select(take, ri, li)), True, True)


def reduce(monoid: Monoid, axes: Sequence[Var], *lifts: Scalar) -> Scalar:
    """Component 0 of the reduction of lifts over axes."""
    return Get(comprehension(axes, monoid, lifts), 0)
