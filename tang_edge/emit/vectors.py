"""Memory that is addressed in whole vectors: which buffers of a kernel can be declared so, and the accesses rewritten.

A buffer qualifies when every access is a vector at a multiple of its lanes, or a scalar load whose place within a vector is
known (it becomes a component of a vector load, shared with its neighbours), and at least one access gains by it. Vector
accesses to the other buffers fall apart into scalars.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tang_edge.ir import affine
from tang_edge.ir.affine import Dim, Expr, Var
from tang_edge.ir.kernel import (
    Assign,
    Calc,
    Declare,
    Extract,
    For,
    Kernel,
    Lanes,
    Let,
    LetIndex,
    LetInt,
    Load,
    Ref,
    Row,
    Splat,
    Statement,
    Store,
    Value,
    When,
    operands,
    statements,
    values_of,
)


def align(k: Kernel) -> Kernel:
    """The kernel with buffers declared as vectors where that is exact, for targets that load aligned vectors only."""
    work = _Alignment(k)
    wide = work.choose()
    made = _Rewriter(work, wide).block(k.body)
    buffers = tuple(replace(b, lanes=wide.get(b.name, 1)) for b in k.buffers)
    shared = tuple(replace(s, lanes=wide.get(s.name, 1)) for s in k.shared)
    return replace(k, body=made, buffers=buffers, shared=shared)


@dataclass(frozen=True, slots=True)
class _Access:
    buffer: str
    index: Expr
    lanes: int
    store: bool


class _Alignment:
    """What is known of the divisors of integer locals, and every access of a kernel."""

    def __init__(self, k: Kernel) -> None:
        self.multiples: dict[Var, int] = {}
        self.rows: dict[str, Row] = {}
        self.accesses: list[_Access] = []
        self.bytes = {b.name: b.dtype.bytes for b in k.buffers} | {s.name: s.dtype.bytes for s in k.shared}
        self.lengths = {s.name: s.size for s in k.shared}
        for s in statements(k.body):
            self._visit(s)

    def _visit(self, s: Statement) -> None:
        if isinstance(s, LetInt):
            self.multiples[s.var] = self.multiple(s.e)
        elif isinstance(s, Row):
            self.rows[s.name] = s
        elif isinstance(s, Store):
            self.accesses.append(_Access(s.buffer, s.index, s.value.lanes if s.stride is None else 1, True))
        for v in values_of(s):
            self._loads(v)

    def _loads(self, v: Value) -> None:
        if isinstance(v, Load):
            self.accesses.append(_Access(v.buffer, self.whole(v), v.lanes, False))
        for o in operands(v):
            self._loads(o)

    def whole(self, v: Load) -> Expr:
        """The index of a load, the base of its row included."""
        return v.index if v.row is None else v.index + self.rows[v.row].base

    def multiple(self, e: Expr) -> int:
        """A number that divides e for all values of its variables (0 for e = 0)."""
        return math.gcd(*(c * math.prod(self._atom(a) for a in m) for m, c in e.terms)) if e.terms else 0

    def _atom(self, a: affine.Atom) -> int:
        match a:
            case Var():
                return self.multiples.get(a, 1)
            case affine.Min() | affine.Max():
                return math.gcd(self.multiple(a.a), self.multiple(a.b)) or 1
            case Dim():
                return 1
            case _:
                return affine.multiple_of(affine.as_expr(a)) or 1

    def residue(self, e: Expr, lanes: int) -> int | None:
        """e mod lanes where that is the same for all values of its variables."""
        c = dict(e.terms).get((), 0)
        return c % lanes if self.multiple(e - c) % lanes == 0 else None

    def choose(self) -> dict[str, int]:
        """Lanes of each buffer that qualifies."""
        found: dict[str, int] = {}
        for name in dict.fromkeys(a.buffer for a in self.accesses):
            mine = [a for a in self.accesses if a.buffer == name]
            lanes = max(a.lanes for a in mine)
            lanes = lanes if lanes > 1 else 4
            if self.bytes[name] == 4 and all(self._fits(a, lanes) for a in mine) and self._gains(mine, lanes):
                found[name] = lanes
        return found

    def _fits(self, a: _Access, lanes: int) -> bool:
        if self.lengths.get(a.buffer, lanes) % lanes:
            return False
        r = self.residue(a.index, lanes)
        return r == 0 if a.lanes == lanes else (a.lanes == 1 and not a.store and r is not None)

    def _gains(self, mine: Sequence[_Access], lanes: int) -> bool:
        if any(a.lanes > 1 for a in mine):
            return True
        starts = [a.index - (self.residue(a.index, lanes) or 0) for a in mine]
        return len(set(starts)) < len(set(a.index for a in mine))


class _Rewriter:
    """Rewrites accesses. Vector loads made for components are shared within a block."""

    def __init__(self, work: _Alignment, wide: dict[str, int]) -> None:
        self.work, self.wide = work, wide
        self.count = 0
        self.made: list[dict[tuple[str, Expr, str | None], Ref]] = []
        self.before: list[Statement] = []

    def block(self, body: Sequence[Statement]) -> tuple[Statement, ...]:
        """A block, with the statements that its accesses need put in front of each one."""
        self.made.append({})
        out: list[Statement] = []
        for s in body:
            outer, self.before = self.before, []
            new = self.statement(s)
            out += [*self.before, *new]
            self.before = outer
        self.made.pop()
        return tuple(out)

    def statement(self, s: Statement) -> list[Statement]:
        match s:
            case For():
                return [replace(s, body=self.block(s.body))]
            case When():
                return [replace(s, body=self.block(s.body), orelse=self.block(s.orelse))]
            case Store():
                return self._store(s)
            case Declare():
                return [replace(s, init=self.value(s.init))]
            case Let() | LetIndex() | Assign():
                return [replace(s, value=self.value(s.value))]
            case _:
                return [s]

    def _store(self, s: Store) -> list[Statement]:
        v = self.value(s.value)
        if v.lanes == 1 or (s.buffer in self.wide and s.stride is None and s.count is None):
            return [replace(s, value=v)]
        ref = self._named(v)
        step = s.stride if s.stride is not None else affine.const(1)
        out: list[Statement] = []
        for k in range(v.lanes):
            one = Store(s.buffer, s.index + step * k, Extract(ref, k, v.dtype))
            out.append(one if s.count is None else When((s.count - (k + 1),), (one,)))
        return out

    def _named(self, v: Value) -> Value:
        if isinstance(v, Ref):
            return v
        self.count += 1
        self.before.append(Let(f"x{self.count}", v))
        return Ref(f"x{self.count}", v.dtype, v.lanes)

    def value(self, v: Value) -> Value:
        match v:
            case Load():
                return self._load(v)
            case Calc():
                return replace(v, args=tuple(map(self.value, v.args)))
            case Splat() | Extract():
                return replace(v, value=self.value(v.value))
            case Lanes():
                return replace(v, values=tuple(map(self.value, v.values)))
            case _:
                return v

    def _load(self, v: Load) -> Value:
        lanes = self.wide.get(v.buffer)
        if lanes is None:
            if v.lanes == 1:
                return v
            return Lanes(tuple(replace(v, index=v.index + k, lanes=1) for k in range(v.lanes)), v.dtype, v.lanes)
        if v.lanes > 1:
            return v
        k = self.work.residue(self.work.whole(v), lanes) or 0
        start = v.index - k
        key = (v.buffer, start, v.row)
        for table in self.made:
            if key in table:
                return Extract(table[key], k, v.dtype)
        ref = self._named(Load(v.buffer, start, v.dtype, lanes, v.row))
        assert isinstance(ref, Ref)
        self.made[-1][key] = ref
        return Extract(ref, k, v.dtype)
