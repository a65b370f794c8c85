"""Intervals that hold the integer values of a kernel, so that 64-bit ones can be kept in 32 bits where that is exact.

What is known: literals, index expressions by their bounds, narrow dtypes by their limits, elements of i64 tensors (the host
checks them when it copies them). An accumulator that only has values added to it stays within

    init + trips · [min(0, lo), max(0, hi)]        with trips the iterations of the loops around the addition

and `select(x < 0, x + n, x)` adds n to negative values only, so that its middle operand may wrap where it is not taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tang_edge.ir import affine, dtype
from tang_edge.ir.dtype import Kind
from tang_edge.ir.kernel import Assign, Calc, Declare, Extract, For, Int, Let, Lit, Ref, Splat, Statement, Value, When

Interval = tuple[float, float]
I32: Interval = (-(2.0**31), 2.0**31 - 1)


class Ranges:
    """Ranges and definitions of the locals met so far."""

    def __init__(self) -> None:
        self.known: dict[str, Interval] = {}
        self.defined: dict[str, Value] = {}

    def let(self, name: str, v: Value) -> None:
        """A local that holds v."""
        self.known[name], self.defined[name] = self.of(v), v

    def of(self, v: Value) -> Interval:
        """The interval of a value; all of i32 where nothing is known."""
        match v:
            case Lit():
                return (float(v.value), float(v.value))
            case Int():
                lo, hi = affine.bounds(v.e)
                return (float(lo), float(hi))
            case Ref():
                return self.known.get(v.name) or _of_type(v)
            case Splat() | Extract():
                return self.of(v.value)
            case Calc() if v.dtype.is_int:
                return self.wrapped(v) or self._calc(v)
            case _:
                return _of_type(v)

    def _calc(self, v: Calc) -> Interval:
        if v.op == "cast":
            lo, hi = self.of(v.args[0]) if not v.args[0].dtype.is_float else I32
            low, high = map(float, v.dtype.limits())
            return (lo, hi) if low <= lo and hi <= high else (low, high)
        lo, hi = self.unwrapped(v)
        low, high = map(float, v.dtype.limits())
        return (lo, hi) if v.dtype.bits > 32 or (low <= lo and hi <= high) else (low, high)

    def unwrapped(self, v: Calc) -> Interval:
        """The interval of an operator's result before it wraps around to the dtype."""
        return calc_range(v.op, [self.of(a) for a in v.args])

    def look(self, v: Value) -> Value:
        """The definition of a local."""
        return self.defined.get(v.name, v) if isinstance(v, Ref) else v

    def wrapped(self, v: Value) -> Interval | None:
        """The range of select(x < 0, x + n, x), whose operand x + n may be wrong where it is not taken; None for others."""
        if not (isinstance(v, Calc) and v.op == "select"):
            return None
        test, then, x = self.look(v.args[0]), self.look(v.args[1]), v.args[2]
        if not (isinstance(test, Calc) and test.op == "lt" and isinstance(then, Calc) and then.op == "add"):
            return None
        zero = self.look(test.args[1])
        if test.args[0] != x or x not in then.args or not (isinstance(zero, Lit) and zero.value == 0):
            return None
        n = self.of(then.args[1] if then.args[0] == x else then.args[0])
        lo, hi = self.of(x)
        return (min(0.0, lo + n[0]), max(hi, n[1] - 1))

    # ------------------------------------------------------------ accumulators

    def declare(self, s: Declare, rest: Sequence[Statement]) -> None:
        """An accumulator, whose assignments are in the statements behind its declaration."""
        self.known[s.name] = I32
        if s.init.dtype is dtype.i64:
            lo, hi = self.of(s.init)
            down, up = self._growth(s.name, rest, 1.0)
            self.known[s.name] = (lo + down, hi + up)

    def _growth(self, name: str, body: Sequence[Statement], trips: float) -> Interval:
        """How far additions may move it; where something else is assigned, all of i32 may be."""
        low = high = 0.0
        for s in body:
            change = (0.0, 0.0)
            match s:
                case Let():
                    self.let(s.name, s.value)
                case Assign() if s.name == name:
                    change = self._step(name, s.value, trips)
                case For():
                    turns = max(0.0, float(affine.bounds(s.stop - s.start)[1]))
                    change = self._growth(name, s.body, trips * turns)
                case When():
                    one, two = self._growth(name, s.body, trips), self._growth(name, s.orelse, trips)
                    change = (one[0] + two[0], one[1] + two[1])
                case _:
                    pass
            low, high = low + change[0], high + change[1]
        return low, high

    def _step(self, name: str, v: Value, trips: float) -> Interval:
        if isinstance(v, Calc) and v.op == "add" and isinstance(v.args[0], Ref) and v.args[0].name == name:
            lo, hi = self.of(v.args[1])
            return trips * min(0.0, lo), trips * max(0.0, hi)
        lo, hi = self.of(v)  # with the accumulator anywhere in i32: an index of a greatest element, say
        return (0.0, 0.0) if I32[0] <= lo and hi <= I32[1] else (lo, hi)


def _of_type(v: Value) -> Interval:
    d = v.dtype
    if d.kind is Kind.BOOL or (d.is_int and d.bits <= 32):
        lo, hi = d.limits()
        return (float(lo), float(hi))
    return I32


def calc_range(op: str, args: list[Interval]) -> Interval:
    """The interval of an operator's result."""
    match op, args:
        case "add", [(a, b), (c, d)]:
            return a + c, b + d
        case "sub", [(a, b), (c, d)]:
            return a - d, b - c
        case "mul", [(a, b), (c, d)]:
            corners = (a * c, a * d, b * c, b * d)
            return min(corners), max(corners)
        case "min", [(a, b), (c, d)]:
            return min(a, c), min(b, d)
        case "max", [(a, b), (c, d)]:
            return max(a, c), max(b, d)
        case "neg", [(a, b)]:
            return -b, -a
        case "select", [_, (a, b), (c, d)]:
            return min(a, c), max(b, d)
        case "shl" | "pow", _:
            return -math.inf, math.inf
        case _:
            return I32
