"""Quantised products in integers: a sum of products of dequantised numbers is a scaled integer sum.

    sum( float(a - za)*sa * (float(w - zw)*sw) ) = float(sum_i32((a - za) * (w - zw))) * (sa*sw)

Distributivity: scales free of the reduced axes leave the sum; sums of products of integers below 2^24 are
integers, and i32 holds them while reduction length * greatest product < 2^31 (bounds from dtypes). While it is
at most 2^24 the sum is taken in f32, which is exact then and faster where vectors multiply and add floats. Against
the order of operations written in the model this rounds less; ONNX Runtime computes the right side too.

Dequantising binds are looked through: the sum then reads the stored integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tang_edge.ir import affine, scalar
from tang_edge.ir.affine import Var
from tang_edge.ir.dtype import Kind, f32, i32
from tang_edge.ir.scalar import Const, Get, Idx, Op, Read, Scalar
from tang_edge.ir.tensor import Bind, Program
from tang_edge.rewrite.graph import Graph, merged_origins
from tang_edge.rewrite.inline import body_at
from tang_edge.rewrite.simplify import simplify

EXACT = 1 << 24
"""Integers up to this magnitude are floats exactly."""


@dataclass(frozen=True, slots=True)
class Scaled:
    """value * scale with an integer value (i32) of magnitude at most `bound`; scale None is 1."""

    value: Scalar
    bound: int
    scale: Scalar | None


def integer_sums(program: Program) -> Program:
    """The rule applied to every float sum of products in the program."""
    graph = Graph(program)
    for slot in list(graph.binds):
        bind = graph.binds[slot]
        if any(c.monoid.name == "sum" for c in scalar.comprehensions(bind.expr)):
            work = _Integers(graph)
            expr = work.visit(bind.expr)
            if expr is not bind.expr:
                origin = merged_origins(*(b.origin for b in work.inlined.values()), bind.origin)
                graph.replace(slot, replace(bind, expr=simplify(expr), origin=origin))
    return graph.program()


class _Integers:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.memo: dict[Scalar, Scalar] = {}
        self.inlined: dict[str, Bind] = {}

    def visit(self, x: Scalar) -> Scalar:
        if x not in self.memo:
            new = self.integer_sum(x) if isinstance(x, Get) else None
            self.memo[x] = scalar.rebuild(x, self.visit) if new is None and not isinstance(x, Get) else new or x
        return self.memo[x]

    def integer_sum(self, x: Get) -> Scalar | None:
        c = x.of
        if not x.dtype.is_float or c.monoid is not scalar.sum_of(x.dtype):
            return None
        axes, lift = c.axes, c.lifts[0]
        if not isinstance(lift, Op) or lift.name != "mul":
            return None
        before = dict(self.inlined)
        a, b = (self.scaled(y, frozenset(axes)) for y in lift.args)
        greatest = self.greatest(a, b, axes) if a is not None and b is not None else 1 << 31
        if a is None or b is None or greatest >= 1 << 31:
            self.inlined = before
            return None
        kind = x.dtype if greatest <= EXACT and x.dtype is f32 else i32  # integers below 2^24 add exactly as floats too
        factors = (scalar.cast(a.value, kind), scalar.cast(b.value, kind))
        total = scalar.reduce(scalar.sum_of(kind), axes, scalar.op("mul", *factors))
        value = scalar.cast(total, x.dtype)
        scale = a.scale if b.scale is None else b.scale if a.scale is None else scalar.op("mul", a.scale, b.scale)
        return value if scale is None else scalar.op("mul", value, scale)

    def greatest(self, a: Scaled, b: Scaled, axes: Sequence[Var]) -> int:
        """A bound on the magnitude of every partial sum."""
        length = affine.const(1)
        for v in axes:
            length = length * v.extent
        return affine.bounds(length)[1] * a.bound * b.bound

    def scaled(self, x: Scalar, bound: frozenset[Var]) -> Scaled | None:
        """x (a float) as an integer times a scale free of the reduced axes, if it reads integers."""
        if isinstance(x, Read):
            return self.through(x, bound)
        if isinstance(x, Op) and x.name == "mul":
            for f, s in (x.args, x.args[::-1]):
                inner = self.scaled(f, bound)
                if inner is not None and scalar.free(s).isdisjoint(bound):
                    scale = s if inner.scale is None else scalar.op("mul", inner.scale, s)
                    return replace(inner, scale=scale)
            return None
        if isinstance(x, Op) and x.name == "select" and _is_zero(x.args[2]):
            inner = self.scaled(x.args[1], bound)
            if inner is None:
                return None
            return replace(inner, value=scalar.select(x.args[0], inner.value, scalar.const(0, i32)))
        found = integer_of(x)
        return Scaled(found[0], found[1], None) if found and scalar.reads(x) else None

    def through(self, x: Read, bound: frozenset[Var]) -> Scaled | None:
        """A read of a dequantising bind: looked through when that gives an integer."""
        slot = self.graph.producer(x.tensor)
        if slot is None:
            return None
        producer = self.graph.binds[slot]
        integral = any(r.dtype.is_int for r in scalar.reads(producer.expr))
        if not integral or scalar.comprehensions(producer.expr):
            return None
        found = self.scaled(simplify(body_at(x, producer)), bound)
        if found is not None:
            self.inlined[producer.name] = producer
        return found


def integer_of(x: Scalar) -> tuple[Scalar, int] | None:
    """(x as an i32, greatest magnitude) when the float x is an integer that both types hold exactly."""
    match x:
        case Op(name="cast"):
            y = x.args[0]
            if y.dtype.is_float:
                return None
            known = bounded(y)
            return known if known is not None and known[1] <= EXACT else None
        case Const() if abs(x.value) <= EXACT and x.value == int(x.value):
            return scalar.const(int(x.value), i32), abs(int(x.value))
        case Op(name="add" | "sub"):
            a, b = integer_of(x.args[0]), integer_of(x.args[1])
            if a is None or b is None or a[1] + b[1] > EXACT:
                return None
            return scalar.op(x.name, a[0], b[0]), a[1] + b[1]
    return None


def bounded(y: Scalar) -> tuple[Scalar, int] | None:
    """(integer y as i32, greatest magnitude), None when i32 may not hold it."""
    match y:
        case Const():
            size = abs(int(y.value))
            return (scalar.const(int(y.value), i32), size) if size < 1 << 31 else None
        case Idx():
            return None
        case Op(name="cast") if y.args[0].dtype.is_int:
            inner = bounded(y.args[0])
            lo, hi = y.dtype.limits()
            return inner if inner is not None and inner[1] <= hi and (lo < 0 or y.args[0].dtype.kind is Kind.UNSIGNED) else None
        case Op(name="add" | "sub") if y.dtype.bits >= 32:
            a, b = bounded(y.args[0]), bounded(y.args[1])
            if a is None or b is None or a[1] + b[1] >= 1 << 31:
                return None
            return scalar.op(y.name, a[0], b[0]), a[1] + b[1]
        case _:
            if y.dtype.is_int and y.dtype.bits <= 16:
                return scalar.cast(y, i32), max(abs(v) for v in y.dtype.limits())
            return None


def _is_zero(x: Scalar) -> bool:
    return isinstance(x, Const) and x.value == 0
