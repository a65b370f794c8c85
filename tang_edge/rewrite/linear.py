"""Per-channel scales and offsets: merged, and scales taken into the weights of the sum they follow.

    (x * a + b) * c + d = x * (a * c) + (b * c + d)          for constant a, b, c, d
    sum(x * w) * g = sum(x * (w * g))                        for constant w and g, g free of the reduced axes

Not exact in floating point (each is one rounding fewer or moved); ONNX Runtime does the same. The constant
parts are hoisted after (`constants.hoist`), so a convolution with batch normalisation costs one addition an
element.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from tang_edge.ir import scalar
from tang_edge.ir.affine import Var
from tang_edge.ir.scalar import Get, Op, Read, Scalar
from tang_edge.ir.tensor import Bind, Item, Program, TensorType, map_items, out_axes
from tang_edge.rewrite.constants import constant_only, frame, is_prologue
from tang_edge.rewrite.cost import size
from tang_edge.rewrite.simplify import simplify

COPY_LIMIT = 1 << 22
"""Weights of at most so many elements are copied to absorb a scale that is one number."""


@dataclass(frozen=True, slots=True)
class Linear:
    """base * scale + shift, constant scale and shift (None: 1 and 0), written with `ops` operators."""

    base: Scalar
    scale: Scalar | None
    shift: Scalar | None
    ops: int

    def value(self) -> Scalar:
        """The expression."""
        x = self.base if self.scale is None else scalar.op("mul", self.base, self.scale)
        return x if self.shift is None else scalar.op("add", x, self.shift)


def merge_linear(program: Program) -> Program:
    """Chains of constant scales and offsets merged in every bind."""
    types = program.types()
    known = is_prologue(program) | {c.name for c in program.constants}

    def one(item: Item) -> Sequence[Item]:
        if not isinstance(item, Bind) or item.name in known:
            return (item,)
        expr = simplify(_Merge(item, known, types).visit(item.expr))
        return (item if expr is item.expr else replace(item, expr=expr),)

    return program.with_items(map_items(program.items, one))


class _Merge:
    def __init__(self, bind: Bind, known: Collection[str], types: Mapping[str, TensorType]) -> None:
        self.known = known
        self.types = types
        self.axes = bind.axes
        self.order: dict[Var, int] = {}
        self.uses = uses(bind.expr)
        self.memo: dict[Scalar, Scalar] = {}

    def visit(self, x: Scalar) -> Scalar:
        if x not in self.memo:
            self.memo[x] = self.step(x)
        return self.memo[x]

    def step(self, x: Scalar) -> Scalar:
        if isinstance(x, (Get, Read)) or not x.dtype.is_float:
            return x if isinstance(x, (Get, Read)) else scalar.rebuild(x, self.visit)
        if constant_only(x, self.known):
            return x
        form = self.linear(x)
        if not form.ops:
            return scalar.rebuild(x, self.visit)
        absorbed = self.absorb(form)
        merged = absorbed or replace(form, base=self.visit(form.base))
        left = (merged.scale is not None) + (merged.shift is not None)
        if absorbed or left < form.ops:
            return merged.value()
        return scalar.rebuild(x, self.visit)

    def linear(self, x: Scalar, root: bool = True) -> Linear:
        """x as base * scale + shift. A node with several users is a base: else it is computed twice."""
        if isinstance(x, Op) and (root or self.uses[x] == 1):
            a, c = (x.args[0], x.args[1]) if len(x.args) == 2 else (x, x)
            if x.name in ("add", "mul") and constant_only(a, self.known):
                a, c = c, a
            if x.name in ("add", "sub", "mul", "div") and constant_only(c, self.known):
                return _then(x.name, self.linear(a, False), c)
        return Linear(x, None, None, 0)

    def absorb(self, form: Linear) -> Linear | None:
        """sum(x * w) * g = sum(x * (w * g)) when g varies by channel and only this chain uses the sum."""
        g, total = form.scale, form.base
        if g is None or not isinstance(total, Get) or self.uses[total] != 1:
            return None
        c = total.of
        if c.monoid is not scalar.sum_of(total.dtype):
            return None
        axes, lifts = scalar.opened(c)
        self.order = {a: k for k, a in enumerate((*self.axes, *axes))}
        lift = self.scaled(lifts[0], g)
        if lift is None:
            return None
        return Linear(scalar.reduce(c.monoid, axes, lift), None, form.shift, form.ops)

    def scaled(self, lift: Scalar, g: Scalar) -> Scalar | None:
        """lift with its constant factor times g; None without one, or when g has axes that it lacks."""
        if not isinstance(lift, Op) or lift.name != "mul":
            return None
        for k, w in enumerate(lift.args):
            if scalar.reads(w) and constant_only(w, self.known) and scalar.free(g) <= scalar.free(w):
                product = scalar.op("mul", w, g)
                small = sum(size(out_axes(self.types[r.tensor].shape)) for r in scalar.reads(w)) <= COPY_LIMIT
                if (small or scalar.reads(g)) and frame(product, self.types, self.order) is not None:
                    return scalar.op("mul", *(product if n == k else a for n, a in enumerate(lift.args)))
        return None


def _then(name: str, f: Linear, c: Scalar) -> Linear:
    """The form of `f <name> c`."""
    ops = f.ops + 1
    if name in ("add", "sub"):
        shift = scalar.op(name, f.shift, c) if f.shift is not None else c if name == "add" else scalar.op("neg", c)
        return Linear(f.base, f.scale, shift, ops)
    one = scalar.const(1, c.dtype)
    scale = scalar.op(name, f.scale or one, c)
    return Linear(f.base, scale, None if f.shift is None else scalar.op(name, f.shift, c), ops)


def uses(root: Scalar) -> Counter[Scalar]:
    """How many nodes outside comprehensions use each node as an operand."""
    count: Counter[Scalar] = Counter()
    seen: set[Scalar] = set()
    todo = [root]
    while todo:
        x = todo.pop()
        if x in seen:
            continue
        seen.add(x)
        if isinstance(x, Op):
            count.update(x.args)
            todo.extend(x.args)
    return count
