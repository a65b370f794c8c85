"""The invariants of scalar expressions (8 to 12 and 19 to 21 of `verify`), and walks over their nodes."""

from __future__ import annotations

from functools import lru_cache

from tang_edge.errors import CompilerBug
from tang_edge.ir import affine
from tang_edge.ir.affine import Div, Expr, Max, Min, Mod, Opaque, Var
from tang_edge.ir.dtype import DType, Kind, boolean, i32, i64
from tang_edge.ir.ops import ARITH, CAST, COMPARE, FLOATS, LOGIC, OPS, SELECT
from tang_edge.ir.scalar import (
    Comprehension,
    Const,
    Get,
    Idx,
    Monoid,
    Op,
    Read,
    Scalar,
    St,
    children,
    height,
)
from tang_edge.ir.scalar import const as literal


def bug(number: int, message: str, where: str = "") -> CompilerBug:
    """The error for a violated invariant."""
    return CompilerBug(f"invariant {number}: {message}", where=where)


@lru_cache(maxsize=1 << 14)
def nodes(x: Scalar) -> tuple[Scalar, ...]:
    """Every node of x once, operands before users; lifts and computed coordinates included."""
    seen: dict[Scalar, None] = {}

    def visit(y: Scalar) -> None:
        if y not in seen:
            for z in children(y):
                visit(z)
            seen[y] = None

    visit(x)
    return tuple(seen)


def expressions(x: Scalar) -> tuple[Expr, ...]:
    """The integer expressions that a node itself holds: coordinates, guards, extents of reduced axes."""
    match x:
        case Idx():
            return (x.e,)
        case Read():
            return x.view.coords + x.view.guard
        case Get():
            return tuple(a.extent for a in x.of.axes)
        case _:
            return ()


def check_scalar(x: Scalar) -> None:
    """Raises CompilerBug when a node of x violates an invariant that needs no tensor types."""
    for y in nodes(x):
        _check_node(y)


@lru_cache(maxsize=1 << 16)
def _check_node(x: Scalar) -> None:
    for e in expressions(x):
        for a in affine.atoms(e):
            if isinstance(a, Opaque) and (not a.value.dtype.is_int or a.lo > a.hi):
                raise bug(21, f"computed coordinate {a} of {a.value.dtype} in {a.lo}..{a.hi}")
    match x:
        case Const():
            _check_const(x)
        case Idx():
            if x.dtype not in (i32, i64):
                raise bug(21, f"{x} of {x.dtype}")
        case Op():
            _check_op(x)
        case Read():
            _check_read(x)
        case Get():
            if not 0 <= x.k < len(x.of.monoid.identity):
                raise bug(11, f"component {x.k} of {x.of.monoid.name}")
            _check_comprehension(x.of)
        case St():
            raise bug(10, f"{x} outside a monoid")


def _check_const(x: Const) -> None:
    kind = float if x.dtype.is_float else bool if x.dtype.kind is Kind.BOOL else int
    if type(x.value) is not kind:
        raise bug(21, f"literal {x.value!r} of {x.dtype}")
    if kind is int and not x.dtype.limits()[0] <= x.value <= x.dtype.limits()[1]:
        raise bug(21, f"literal {x.value} does not fit {x.dtype}")
    if kind is float and literal(x.value, x.dtype) is not x and x.value == x.value:
        raise bug(21, f"literal {x.value!r} is not a value of {x.dtype}")


def _check_op(x: Op) -> None:
    info = OPS.get(x.name)
    if info is None or len(x.args) != info.arity:
        raise bug(12, f"{x.name} with {len(x.args)} operands")
    types = [a.dtype for a in x.args]
    if info.family is CAST:
        return
    if info.family is SELECT:
        ok = types[0] is boolean and types[1] is types[2] is x.dtype
    else:
        result = x.dtype if info.family in (ARITH, FLOATS, LOGIC) else types[0]
        ok = all(t is result for t in types) and _family_takes(info.family, types[0])
        ok = ok and (info.family in (ARITH, FLOATS, LOGIC) or x.dtype is boolean)
    if not ok:
        raise bug(12, f"{x.name} of {', '.join(map(str, types))} gives {x.dtype}")


def _family_takes(family: str, dt: DType) -> bool:
    if family == FLOATS:
        return dt.is_float
    if family == LOGIC:
        return not dt.is_float
    return dt is not boolean or family == COMPARE


def _check_read(x: Read) -> None:
    v = x.view
    if bool(v.guard) != (v.fill is not None):
        raise bug(8, f"{x}: guard and fill go together")
    if v.fill is not None and v.fill.dtype is not x.dtype:
        raise bug(8, f"{x}: fill of {v.fill.dtype} for a read of {x.dtype}")
    if v.fill is not None:
        _check_const(v.fill)
    for e in v.coords + v.guard:
        for m, _ in e.terms:
            if sum(isinstance(a, Var) for a in m) > 1:
                raise bug(20, f"{x}: two axes are multiplied in {e}")


@lru_cache(maxsize=1 << 14)
def _check_comprehension(c: Comprehension) -> None:
    _check_monoid(c.monoid)
    if [y.dtype for y in c.lifts] != [i.dtype for i in c.monoid.identity]:
        raise bug(9, f"lifts {[y.dtype for y in c.lifts]} for {c.monoid.name}")
    h = max((height(y) for y in c.lifts), default=0)
    if [a.name for a in c.axes] != [f"r{h}_{k}" for k in range(len(c.axes))]:
        raise bug(19, f"axes {', '.join(map(str, c.axes))} of a comprehension of height {h}")
    names = {a.name for a in c.axes}
    for a in c.axes:
        if any(v.name in names for v in affine.variables(a.extent)):
            raise bug(19, f"the extent {a.extent} of {a} mentions an axis beside it")


@lru_cache(maxsize=1 << 10)
def _check_monoid(m: Monoid) -> None:
    if not m.identity or len(m.identity) != len(m.combine):
        raise bug(9, f"{m.name}: {len(m.identity)} identities, {len(m.combine)} combines")
    if [i.dtype for i in m.identity] != [c.dtype for c in m.combine]:
        raise bug(9, f"{m.name}: identities and combines differ in dtype")
    for c in (*m.identity, *m.combine):
        for y in nodes(c):
            match y:
                case St():
                    known = y.side in ("l", "r") and 0 <= y.k < len(m.identity)
                    if not known or y.dtype is not m.identity[y.k].dtype:
                        raise bug(10, f"{m.name}: {y} of {y.dtype}")
                case Const() | Op():
                    _check_node(y)
                case _:
                    raise bug(10, f"{m.name}: combine holds {y}")


@lru_cache(maxsize=1 << 15)
def dims_of(x: Scalar) -> frozenset[affine.Dim]:
    """The named dimensions that x mentions."""
    return frozenset[affine.Dim]().union(*(all_dims(e) for y in nodes(x) for e in expressions(y)))


@lru_cache(maxsize=1 << 15)
def all_dims(e: Expr) -> frozenset[affine.Dim]:
    """The named dimensions of e, those in the extents of its variables included."""
    found = set[affine.Dim](affine.dims(e))
    for v in affine.variables(e):
        found |= all_dims(v.extent)
    return frozenset(found)


def is_sizes_only(e: Expr) -> bool:
    """True when e mentions dimensions and constants only."""
    return all(isinstance(a, (affine.Dim, Div, Mod, Min, Max)) for a in affine.atoms(e))
