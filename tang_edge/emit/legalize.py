"""A kernel that a class of devices can express: storage dtypes widened, wide integers narrowed where that is proved exact.

A tensor may be stored in another dtype than its elements have (`Limits.widen`): loads convert to the element's arithmetic
type, stores convert back. Where the class has no i64, an i64 value becomes i32 only when interval analysis shows that it fits
(indices by their bounds; elements of i64 inputs because the host checks them when it copies them); else TargetLimit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeGuard

from tang_edge.emit.ranges import I32, Ranges
from tang_edge.errors import TargetLimit
from tang_edge.ir import dtype, kernel_verify
from tang_edge.ir.dtype import DType, Kind
from tang_edge.ir.kernel import (
    Assign,
    Calc,
    Declare,
    Extract,
    For,
    Int,
    Kernel,
    Lanes,
    Let,
    LetIndex,
    Lit,
    Load,
    Ref,
    Row,
    Splat,
    Statement,
    Store,
    Value,
    When,
)
from tang_edge.schedule.limits import Limits


def legalize(k: Kernel, limits: Limits, where: str = "") -> Kernel:
    """The kernel for a class. Raises TargetLimit, with `where`, for what the class cannot compute."""
    widen = {dtype.BY_NAME[a]: dtype.BY_NAME[b] for a, b in limits.widen}
    work = _Legalizer({b.name: b.dtype for b in k.buffers}, widen, limits.lacks, where)
    for b in k.buffers:
        work.check(b.dtype)
    body = work.block(k.body)
    shared = tuple(replace(s, dtype=work.type(s.dtype)) for s in k.shared)
    made = replace(k, body=body, shared=shared)
    kernel_verify.verify(made, legal=True, where=where)
    return made


class _Legalizer:
    def __init__(self, stored: Mapping[str, DType], widen: Mapping[DType, DType], lacks: Sequence[str], where: str) -> None:
        self.stored, self.widen, self.lacks, self.where = stored, widen, lacks, where
        self.ranges = Ranges()

    def type(self, d: DType) -> DType:
        """The arithmetic type: as stored, except that bool stays bool in registers."""
        self.check(d)
        return d if d.kind is Kind.BOOL else self.widen.get(d, d)

    def check(self, d: DType) -> None:
        if d.name in self.lacks:
            raise TargetLimit(f"{d} cannot be computed on this class of devices", where=self.where)

    # ------------------------------------------------------------ statements

    def block(self, body: Sequence[Statement]) -> tuple[Statement, ...]:
        return tuple(self.statement(s, body[k + 1 :]) for k, s in enumerate(body))

    def statement(self, s: Statement, rest: Sequence[Statement]) -> Statement:
        match s:
            case Let() | LetIndex():
                if isinstance(s, Let):
                    self.ranges.let(s.name, s.value)
                    if self._may_wrap(s.value):
                        return replace(s, value=self._calc(s.value, unchecked=True))
                return replace(s, value=self.value(s.value))
            case Declare():
                s = self._identity(s)
                self.ranges.declare(s, rest)
                return replace(s, init=self.value(s.init))
            case Assign():
                return replace(s, value=self.value(s.value))
            case Store():
                return self._store(s)
            case For():
                return replace(s, body=self.block(s.body))
            case When():
                return replace(s, body=self.block(s.body), orelse=self.block(s.orelse))
            case Row():
                return replace(s, dtype=self.stored.get(s.buffer, s.dtype))
            case _:
                return s

    def _identity(self, s: Declare) -> Declare:
        """The end of i64 that starts a minimum or maximum is the end of i32 where i64 values are held in i32."""
        ends = dict(zip(dtype.i64.limits(), dtype.i32.limits(), strict=True))
        v = s.init
        if isinstance(v, Lit) and v.dtype is dtype.i64 and dtype.i64 in self.widen and v.value in ends:
            return replace(s, init=replace(v, value=ends[int(v.value)]))
        return s

    def _store(self, s: Store) -> Statement:
        v = self.value(s.value)
        d = self.stored.get(s.buffer, v.dtype)
        return replace(s, value=v if v.dtype is d else Calc("cast", (v,), d, v.lanes))

    # ------------------------------------------------------------ values

    def value(self, v: Value) -> Value:
        match v:
            case Load():
                held = self.stored.get(v.buffer, self.type(v.dtype))
                raw = replace(v, dtype=held)
                want = self.type(v.dtype)
                return raw if held is want else Calc("cast", (raw,), want, v.lanes)
            case Calc():
                return self._calc(v)
            case Lit() | Ref() | Int():
                self._fits(v)
                return replace(v, dtype=self.type(v.dtype))
            case Splat() | Extract():
                return replace(v, value=self.value(v.value), dtype=self.type(v.dtype))
            case Lanes():
                return replace(v, values=tuple(map(self.value, v.values)), dtype=self.type(v.dtype))
            case _:
                return v

    def _calc(self, v: Calc, unchecked: bool = False) -> Value:
        args = tuple(map(self.value, v.args)) if self.ranges.wrapped(v) is None else self._untaken(v.args)
        d = self.type(v.dtype)
        if d is v.dtype:
            return replace(v, args=args, dtype=d)
        if not unchecked:
            self._fits(v)
        if v.op == "cast" and v.dtype.is_int and v.dtype.bits < 32:
            return self._narrow(v, args[0], d)
        made = replace(v, args=args, dtype=d)
        if not v.dtype.is_int or v.dtype.bits >= 32:
            return made
        lo, hi = self.ranges.unwrapped(v)
        if v.dtype.limits()[0] <= lo and hi <= v.dtype.limits()[1]:
            return made
        return _clamped(made, v.dtype) if v.op == "pow" else _wrapped(made, v.dtype)

    def _untaken(self, args: Sequence[Value]) -> tuple[Value, ...]:
        """Operands of select(x < 0, x + n, x): the sum may wrap where it is not taken."""
        test, then, x = args
        kept = replace(then, dtype=self.type(then.dtype)) if isinstance(then, Ref) else self.value(then)
        return self.value(test), kept, self.value(x)

    def _narrow(self, v: Calc, x: Value, d: DType) -> Value:
        """A cast to fewer bits: from float it saturates, from integers it wraps."""
        if x.dtype.is_float:
            return _clamped(Calc("cast", (x,), d, x.lanes), v.dtype)  # saturates to d first: NaN is 0 then
        if x.dtype.kind is Kind.BOOL:
            return Calc("cast", (x,), d, x.lanes)
        return _wrapped(x if x.dtype is d else Calc("cast", (x,), d, x.lanes), v.dtype)

    # ------------------------------------------------------------ ranges

    def _may_wrap(self, v: Value) -> TypeGuard[Calc]:
        """An i64 addition beyond 32 bits: an error only where it is used outside of `Ranges.wrapped`."""
        if not (isinstance(v, Calc) and v.op == "add" and v.dtype is dtype.i64 and dtype.i64 in self.widen):
            return False
        lo, hi = self.ranges.of(v)
        return lo < I32[0] or hi > I32[1]

    def _fits(self, v: Value) -> None:
        if v.dtype is not dtype.i64 or dtype.i64 not in self.widen:
            return
        lo, hi = self.ranges.of(v)
        if lo < I32[0] or hi > I32[1]:
            what = v.op if isinstance(v, Calc) else type(v).__name__
            raise TargetLimit(
                f"64-bit integers may exceed 32 bits in '{what}', and the device class has no 64-bit integers",
                where=self.where,
                remedy="Pack it for C only (--target cpu-generic), or narrow the range of the inputs' dimensions.",
            )


def _clamped(x: Calc, to: DType) -> Value:
    """The value of `to` nearest to x, which is wider."""
    low, high = (Lit(n, x.dtype, x.lanes) for n in to.limits())
    return Calc("min", (Calc("max", (x, low), x.dtype, x.lanes), high), x.dtype, x.lanes)


def _wrapped(x: Value, to: DType) -> Value:
    """The value of `to` with the low bits of x, which is wider."""
    masked = Calc("and", (x, Lit((1 << to.bits) - 1, x.dtype, x.lanes)), x.dtype, x.lanes)
    if to.kind is Kind.UNSIGNED:
        return masked
    sign = Lit(1 << (to.bits - 1), x.dtype, x.lanes)
    return Calc("sub", (Calc("xor", (masked, sign), x.dtype, x.lanes), sign), x.dtype, x.lanes)
