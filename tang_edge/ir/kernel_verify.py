"""The invariants of kernels, checked after lowering and after legalizing. A violated one raises CompilerBug, numbered.

 1  Buffers, workgroup arrays, grid and lane variables and locals have names of their own: no name hides a visible one.
 2  A name is defined before it is used, in a block that is open at the use; a variable is used with its own extent.
 3  Operators have the arity and the types of `ops.OPS`; a Holds and a comparison give bool.
 4  Operands of an operator have equal lanes; a Splat repeats a scalar, Lanes holds that many scalars, an Extract takes
    an existing lane of a vector. Every number of lanes is a power of two.
 5  A Ref has the dtype and the lanes of its definition.
 6  An Assign goes to a declared local, with its dtype and lanes.
 7  Loads and stores name a known buffer or workgroup array. Stores go to workgroup memory or to the one writable buffer
    (loads of it are of regions that other binds have filled). In a legalized kernel, dtypes are those of the buffer.
 8  A load of a row names the row's buffer and stays within [0, span); the row is defined; the fill fits its dtype.
 9  Extents of lanes and sizes of workgroup arrays are positive constants; steps of loops are positive.
10  Barriers are reached by all lanes of a workgroup or by none: no When or For around one has a guard or bounds that
    depend on a lane or on data.
11  Between a store to workgroup memory and a load of the same array by another lane there is a barrier, and between a
    load and the next store too; both also around the back edge of a loop.
12  A value computed for a LetIndex is proved to lie in [0, extent) of its variable: it was clamped. (`unproved` lists those
    that are loaded as they are, clamped where constants were folded, and LetInts: the extent of a base is only a hint.)
13  Indices into workgroup memory are in [0, size) (those not proved are listed by `unproved`).
14  A store of a vector with `count` or `stride` stores a vector; both are integers known there.
15  A kernel writes something.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tang_edge.errors import CompilerBug
from tang_edge.ir import affine
from tang_edge.ir.affine import Expr, Opaque, Var
from tang_edge.ir.dtype import DType, Kind, boolean
from tang_edge.ir.kernel import (
    Assign,
    Barrier,
    Calc,
    Declare,
    Extract,
    For,
    Holds,
    Int,
    Kernel,
    Lanes,
    Let,
    LetIndex,
    LetInt,
    Lit,
    Load,
    Ref,
    Row,
    Splat,
    Statement,
    Store,
    Value,
    When,
    exprs_of,
    operands,
    statements,
    values_of,
)
from tang_edge.ir.ops import ARITH, CAST, COMPARE, FLOATS, LOGIC, OPS, SELECT, TEST
from tang_edge.ir.prove import implied

Interval = tuple[int, int]
_ALL: Interval = (-affine.UNBOUNDED, affine.UNBOUNDED)


def verify(kernel: Kernel, legal: bool = False, where: str = "") -> None:
    """Check all invariants; `legal` also those that hold only after `emit.legalize` (7: dtypes of buffers).

    Raises CompilerBug at `where` (a model node or a bind; the kernel's own key when it is empty).
    """
    _Checker(kernel, legal, False, where).run()


def unproved(kernel: Kernel) -> tuple[str, ...]:
    """Indices and integer locals that could not be proved to lie in their range: worth a look, not an error."""
    checker = _Checker(kernel, False, True)
    checker.run()
    return tuple(dict.fromkeys(checker.warnings))


@dataclass(frozen=True, slots=True)
class _Name:
    """What a name stands for: a local value, an integer variable, a row; `uniform` over the lanes of a workgroup."""

    dtype: DType | None = None
    lanes: int = 1
    var: Var | None = None
    row: Row | None = None
    mutable: bool = False
    uniform: bool = True
    value: Value | None = None


@dataclass(slots=True)
class _Shared:
    """Workgroup arrays stored to, and loaded from, since the last barrier."""

    stored: set[str] = field(default_factory=set)
    loaded: set[str] = field(default_factory=set)


class _Checker:
    def __init__(self, k: Kernel, legal: bool, prove: bool, where: str = "") -> None:
        self.k, self.legal, self.prove = k, legal, prove
        self.where = where or f"kernel {k.key or k.tag}"
        self.buffers = {b.name: b for b in k.buffers}
        self.shared = {s.name: s for s in k.shared}
        self.names: list[dict[str, _Name]] = [{}]
        self.touched = _Shared()
        self.uniform = True
        self.facts: tuple[Expr, ...] = ()
        self.warnings: list[str] = []

    def bug(self, number: int, message: str) -> CompilerBug:
        return CompilerBug(f"kernel invariant {number}: {message}", where=self.where)

    # ------------------------------------------------------------ names

    def define(self, name: str, what: _Name) -> None:
        if self.find(name) is not None or name in self.buffers or name in self.shared:
            raise self.bug(1, f"{name} is defined twice")
        self.names[-1][name] = what

    def find(self, name: str) -> _Name | None:
        for scope in reversed(self.names):
            if name in scope:
                return scope[name]
        return None

    def run(self) -> None:
        k = self.k
        names = [*(b.name for b in k.buffers), *(s.name for s in k.shared)]
        if len(set(names)) != len(names):
            raise self.bug(1, f"buffers {names} are not unique")
        if sum(b.writable for b in k.buffers) > 1:
            raise self.bug(7, "more than one buffer is writable")
        for s in k.shared:
            if s.size <= 0:
                raise self.bug(9, f"workgroup array {s.name} has {s.size} elements")
        for v in k.grid:
            self.expr(v.extent)
        for v in (*k.grid, *k.lanes):
            self.define(v.name, _Name(var=v, uniform=v in k.grid))
        for v in k.lanes:
            if (v.extent.constant or 0) <= 0:
                raise self.bug(9, f"lanes {v.name} have extent {v.extent}")
        self.block(k.body)
        if not any(isinstance(s, Store) and s.buffer in self.buffers for s in statements(k.body)):
            raise self.bug(15, "nothing is stored")

    # ------------------------------------------------------------ statements

    def block(self, body: Sequence[Statement]) -> None:
        """A block with a scope of its own."""
        self.names.append({})
        for s in body:
            self.statement(s)
        self.names.pop()

    def statement(self, s: Statement) -> None:
        for e in exprs_of(s):
            self.expr(e)
        for v in values_of(s):
            self.value(v)
        match s:
            case Let():
                v = s.value
                self.define(s.name, _Name(v.dtype, v.lanes, uniform=self.steady(v), value=v))
            case Declare():
                self.define(s.name, _Name(s.init.dtype, s.init.lanes, mutable=True, uniform=False))
            case Assign():
                self.assign(s)
            case LetInt() | LetIndex():
                self.integer(s)
            case Row():
                self.row(s)
            case Store():
                self.store(s)
            case For():
                self.loop(s)
            case When():
                self.when(s)
            case Barrier():
                if not self.uniform:
                    raise self.bug(10, "a barrier under control flow that differs between lanes")
                self.touched = _Shared()

    def assign(self, s: Assign) -> None:
        n = self.find(s.name)
        if n is None or not n.mutable:
            raise self.bug(6, f"{s.name} is not declared")
        if (n.dtype, n.lanes) != (s.value.dtype, s.value.lanes):
            raise self.bug(6, f"{s.name} is {n.dtype} x {n.lanes}, assigned {s.value.dtype} x {s.value.lanes}")

    def integer(self, s: LetInt | LetIndex) -> None:
        extent = s.var.extent
        if isinstance(s, LetInt):
            self.define(s.var.name, _Name(var=s.var, uniform=self.steady_expr(s.e)))
            if not self.proved(s.e, extent - 1 - s.e):
                self.warnings.append(f"{s.var} = {s.e} is not proved to be in [0, {extent})")
            return
        if s.value.lanes != 1 or not s.value.dtype.is_int:
            raise self.bug(12, f"index {s.var} from {s.value.dtype} x {s.value.lanes}")
        lo, hi = self.range(s.value)
        if lo < 0 or hi >= affine.bounds(extent)[1] + (0 if extent.constant is not None else 1):
            text = f"{s.var} in [{lo}, {hi}] is not clamped to [0, {extent})"
            if not self.loaded(s.value):
                raise self.bug(12, text)
            self.warnings.append(text)
        self.define(s.var.name, _Name(var=s.var, uniform=self.steady(s.value)))

    def loaded(self, v: Value) -> bool:
        """True for an element of a buffer as it is: indices that were clamped when constants were folded."""
        match v:
            case Load():
                return True
            case Ref():
                n = self.find(v.name)
                return n is not None and n.value is not None and self.loaded(n.value)
            case Calc(op="cast"):
                return self.loaded(v.args[0])
            case Extract():
                return self.loaded(v.value)
            case _:
                return False

    def row(self, s: Row) -> None:
        b = self.buffers.get(s.buffer)
        if b is None:
            raise self.bug(8, f"row {s.name} of {s.buffer}, which is no buffer")
        if s.span <= 0:
            raise self.bug(8, f"row {s.name} spans {s.span}")
        if isinstance(s.fill, float) and not s.dtype.is_float:
            raise self.bug(8, f"row {s.name} of {s.dtype} is filled with {s.fill!r}")
        if self.legal and s.dtype is not b.dtype:
            raise self.bug(7, f"row {s.name} of {s.dtype} in a buffer of {b.dtype}")
        even = all(map(self.steady_expr, (s.base, *s.guard)))
        self.define(s.name, _Name(s.dtype, row=s, uniform=even))

    def store(self, s: Store) -> None:
        v = s.value
        if s.buffer in self.shared:
            array = self.shared[s.buffer]
            self.held(array.dtype, v.dtype, s.buffer)
            self.inside(s.index, v.lanes, array.size, s.buffer)
            if s.buffer in self.touched.loaded:
                raise self.bug(11, f"{s.buffer} is stored to while lanes may still load from it")
            self.touched.stored.add(s.buffer)
        else:
            b = self.buffers.get(s.buffer)
            if b is None or not b.writable:
                raise self.bug(7, f"store to {s.buffer}, which is not writable")
            self.held(b.dtype, v.dtype, s.buffer)
        if v.lanes == 1 and (s.count is not None or s.stride is not None):
            raise self.bug(14, f"store of a scalar to {s.buffer} with a count or a stride")

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

    def loop(self, s: For) -> None:
        if s.step <= 0:
            raise self.bug(9, f"loop {s.var} by {s.step}")
        even = self.steady_expr(s.start) and self.steady_expr(s.stop)
        before, self.uniform = self.uniform, self.uniform and even
        for _ in range(2 if self.shared else 1):  # the second time with what the first left: the back edge (11)
            self.names.append({})
            self.define(s.var.name, _Name(var=s.var, uniform=even))
            self.block(s.body)
            self.names.pop()
        self.uniform = before

    def when(self, s: When) -> None:
        even = all(map(self.steady_expr, s.guard))
        before, self.uniform = self.uniform, self.uniform and even
        entry = (set(self.touched.stored), set(self.touched.loaded))
        facts, self.facts = self.facts, (*self.facts, *s.guard)
        self.block(s.body)
        self.facts = facts
        after = self.touched
        self.touched = _Shared(*entry)
        self.block(s.orelse)
        self.touched = _Shared(self.touched.stored | after.stored, self.touched.loaded | after.loaded)
        self.uniform = before

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
