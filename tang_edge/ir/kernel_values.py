"""The part of `kernel_verify` that looks at names, integer expressions and values; the invariants are listed there."""

from __future__ import annotations

from dataclasses import dataclass, field

from tang_edge.errors import CompilerBug
from tang_edge.ir import affine
from tang_edge.ir.affine import Expr, Opaque, Var
from tang_edge.ir.dtype import DType, Kind, boolean
from tang_edge.ir.kernel import (
    Calc,
    Extract,
    Holds,
    Int,
    Kernel,
    Lanes,
    Lit,
    Load,
    Ref,
    Row,
    Splat,
    Value,
    operands,
)
from tang_edge.ir.ops import ARITH, CAST, COMPARE, FLOATS, LOGIC, OPS, SELECT, TEST
from tang_edge.ir.prove import implied

Interval = tuple[int, int]
_ALL: Interval = (-affine.UNBOUNDED, affine.UNBOUNDED)


@dataclass(frozen=True, slots=True)
class Name:
    """What a name stands for: a local value, an integer variable, a row; `uniform` over the lanes of a workgroup."""

    dtype: DType | None = None
    lanes: int = 1
    var: Var | None = None
    row: Row | None = None
    mutable: bool = False
    uniform: bool = True
    value: Value | None = None


@dataclass(slots=True)
class Touched:
    """Workgroup arrays stored to, and loaded from, since the last barrier."""

    stored: set[str] = field(default_factory=set)
    loaded: set[str] = field(default_factory=set)


class Values:
    """Names in scope, and the checks of what statements evaluate."""

    def __init__(self, k: Kernel, legal: bool, prove: bool, where: str = "") -> None:
        self.k, self.legal, self.prove = k, legal, prove
        self.where = where or f"kernel {k.key or k.tag}"
        self.buffers = {b.name: b for b in k.buffers}
        self.shared = {s.name: s for s in k.shared}
        self.names: list[dict[str, Name]] = [{}]
        self.touched = Touched()
        self.uniform = True
        self.facts: tuple[Expr, ...] = ()
        self.warnings: list[str] = []

    def bug(self, number: int, message: str) -> CompilerBug:
        return CompilerBug(f"kernel invariant {number}: {message}", where=self.where)

    # ------------------------------------------------------------ names

    def define(self, name: str, what: Name) -> None:
        if self.find(name) is not None or name in self.buffers or name in self.shared:
            raise self.bug(1, f"{name} is defined twice")
        self.names[-1][name] = what

    def find(self, name: str) -> Name | None:
        for scope in reversed(self.names):
            if name in scope:
                return scope[name]
        return None

    def held(self, stored: DType, value: DType, name: str) -> None:
        if self.legal and stored is not value:
            raise self.bug(7, f"{value} in {name}, which holds {stored}")

    def inside(self, index: Expr, lanes: int, size: int, name: str) -> None:
        """Index into workgroup memory."""
        if affine.nonneg(-1 - index) or affine.nonneg(index - size):
            raise self.bug(13, f"{name}[{index}] is outside of its {size} elements")
        if not self.proved(index, size - lanes - index):
            self.warnings.append(f"{name}[{index}] is not proved to be inside {size}")

    def proved(self, *es: Expr) -> bool:
        """True when all are >= 0 under the guards around (not tried where nobody asks)."""
        return not self.prove or all(implied(e, self.facts) for e in es)

    # ------------------------------------------------------------ uniformity

    def steady_expr(self, e: Expr) -> bool:
        """True when all lanes of a workgroup see one value."""
        found = [self.find(v.name) for v in affine.variables(e)]
        return all(n is not None and n.uniform for n in found)

    def steady(self, v: Value) -> bool:
        """The same for a value; whatever is loaded counts as different."""
        match v:
            case Load():
                return False
            case Ref():
                n = self.find(v.name)
                return n is not None and n.uniform and not n.mutable
            case Int():
                return self.steady_expr(v.e)
            case Holds():
                return all(map(self.steady_expr, v.guard))
            case _:
                return all(map(self.steady, operands(v)))

    # ------------------------------------------------------------ expressions and values

    def expr(self, e: Expr) -> None:
        for a in affine.atoms(e):
            if isinstance(a, Opaque):
                raise self.bug(2, f"{a} was not lowered")
            if isinstance(a, Var):
                n = self.find(a.name)
                if n is None or n.var is None:
                    raise self.bug(2, f"variable {a} of {e} is not known here")
                if n.var is not a:
                    raise self.bug(2, f"variable {a} < {a.extent} is used, but defined as {a} < {n.var.extent}")

    def value(self, v: Value) -> None:
        if v.lanes < 1 or v.lanes & (v.lanes - 1):
            raise self.bug(4, f"{v.lanes} lanes")
        for o in operands(v):
            self.value(o)
        match v:
            case Ref():
                self.reference(v)
            case Calc():
                self.calc(v)
            case Load():
                self.load(v)
            case Splat():
                self.need(4, v.value.lanes == 1 and v.value.dtype is v.dtype, "a splat of a vector or another type", v)
            case Lanes():
                good = all(x.lanes == 1 and x.dtype is v.dtype for x in v.values)
                self.need(4, good and len(v.values) == v.lanes, "lanes of other types or in another number", v)
            case Extract():
                good = 0 <= v.lane < v.value.lanes and v.lanes == 1 and v.value.dtype is v.dtype
                self.need(4, good, "a lane that does not exist", v)
            case Lit():
                self.literal(v)
            case Int():
                self.need(3, v.dtype.is_int and v.lanes == 1, "an index as another type", v)
            case Holds():
                self.need(3, v.dtype is boolean and v.lanes == 1, "a test that is not bool", v)

    def need(self, number: int, holds: bool, message: str, v: Value) -> None:
        if not holds:
            raise self.bug(number, f"{message}: {v}")

    def literal(self, v: Lit) -> None:
        if v.dtype.is_float:
            good = isinstance(v.value, (int, float))
        elif v.dtype.kind is Kind.BOOL:
            good = v.value in (0, 1)
        else:
            lo, hi = v.dtype.limits()
            good = not isinstance(v.value, float) and lo <= v.value <= hi
        self.need(3, good, "a literal that does not fit its type", v)

    def reference(self, v: Ref) -> None:
        n = self.find(v.name)
        if n is None or n.dtype is None or n.row is not None:
            raise self.bug(2, f"{v.name} is not known here")
        if (n.dtype, n.lanes) != (v.dtype, v.lanes):
            raise self.bug(5, f"{v.name} is {n.dtype} x {n.lanes}, used as {v.dtype} x {v.lanes}")

    def calc(self, v: Calc) -> None:
        info = OPS.get(v.op)
        if info is None or len(v.args) != info.arity:
            raise self.bug(3, f"{v.op} of {len(v.args)} operands")
        self.need(4, all(a.lanes == v.lanes for a in v.args), f"{v.op} of unequal lanes", v)
        types = [a.dtype for a in v.args]
        first = types[0]
        same = all(t is first for t in types)
        match info.family:
            case family if family is ARITH:
                good = same and v.dtype is first
            case family if family is COMPARE:
                good = same and v.dtype is boolean
            case family if family is LOGIC:
                good = same and v.dtype is first and not first.is_float
            case family if family is TEST:
                good = first.is_float and v.dtype is boolean
            case family if family is FLOATS:
                good = first.is_float and v.dtype is first
            case family if family is SELECT:
                good = first is boolean and types[1] is types[2] and v.dtype is types[1]
            case family:
                good = family is CAST
        self.need(3, good, f"{v.op} of {', '.join(map(str, types))} as {v.dtype}", v)

    def load(self, v: Load) -> None:
        if v.row is not None:
            n = self.find(v.row)
            if n is None or n.row is None:
                raise self.bug(8, f"row {v.row} is not known here")
            if n.row.buffer != v.buffer or n.row.dtype is not v.dtype:
                raise self.bug(8, f"load of {v.dtype} from {v.buffer} through a row of {n.row.buffer}, {n.row.dtype}")
            lo, hi = affine.bounds(v.index)
            if lo < 0 or hi + v.lanes > n.row.span:
                raise self.bug(8, f"{v.row}[{v.index}], {v.lanes} lanes, leaves the span {n.row.span}")
        elif v.buffer in self.shared:
            self.held(self.shared[v.buffer].dtype, v.dtype, v.buffer)
            self.inside(v.index, v.lanes, self.shared[v.buffer].size, v.buffer)
            if v.buffer in self.touched.stored:
                raise self.bug(11, f"{v.buffer} is loaded before a barrier after it was stored to")
            self.touched.loaded.add(v.buffer)
            return
        b = self.buffers.get(v.buffer)
        if b is None:
            raise self.bug(7, f"load of {v.buffer}, which is no buffer")
        self.held(b.dtype, v.dtype, v.buffer)

    # ------------------------------------------------------------ ranges of index values

    def range(self, v: Value) -> Interval:
        """An interval that holds an integer value."""
        match v:
            case Lit():
                return int(v.value), int(v.value)
            case Int():
                return affine.bounds(v.e)
            case Ref():
                n = self.find(v.name)
                return self.range(n.value) if n is not None and n.value is not None else _of_type(v.dtype)
            case Calc(op="max"):
                (a, b), (c, d) = map(self.range, v.args)
                return max(a, c), max(b, d)
            case Calc(op="min"):
                (a, b), (c, d) = map(self.range, v.args)
                return min(a, c), min(b, d)
            case Calc(op="select"):
                (a, b), (c, d) = map(self.range, v.args[1:])
                return min(a, c), max(b, d)
            case Calc(op="cast") if v.args[0].dtype.is_int or v.args[0].dtype is boolean:
                a, b = self.range(v.args[0])
                lo, hi = _of_type(v.dtype)
                return (a, b) if lo <= a and b <= hi else (lo, hi)
            case Calc(op="add"):
                (a, b), (c, d) = map(self.range, v.args)
                return _within(a + c, b + d, v.dtype)
            case Calc(op="sub"):
                (a, b), (c, d) = map(self.range, v.args)
                return _within(a - d, b - c, v.dtype)
            case _:
                return _of_type(v.dtype)


def _of_type(d: DType) -> Interval:
    return _ALL if d.is_float else d.limits()


def _within(lo: int, hi: int, d: DType) -> Interval:
    least, most = _of_type(d)
    return (lo, hi) if least <= lo and hi <= most else (least, most)
