"""Rules as equations: a function from pattern variables to (left, right); what matches left becomes right.

    @rule("x * 1 = x")
    def mul_one(x):
        return x * 1, x

Laws that every rule obeys
- right is never dearer than left; each rule lowers (nodes, weight of operators): rewriting ends;
- `exact` rules keep every bit (NaN and the sign of zero included); the others are within rounding and say so;
- commutative operators match in both orders, nothing is matched up to associativity.

A parameter's annotation restricts what it matches: Lit (a literal), Int, Float, Bool (by dtype); Term: any.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from tang_edge.ir import scalar
from tang_edge.ir.dtype import Kind
from tang_edge.ir.ops import OPS
from tang_edge.ir.scalar import Const, Number, Op, Scalar

Bindings = dict[str, Scalar]
Guard = Callable[[Mapping[str, Scalar]], bool]


@dataclass(frozen=True, slots=True)
class Term:
    """A pattern: a variable (`kind` restricts it), a literal, or an operator over terms."""

    head: str
    args: tuple[Term, ...] = ()
    kind: str = ""
    value: Number = 0

    def __add__(self, o: Term | Number) -> Term:
        return term("add", self, o)

    def __sub__(self, o: Term | Number) -> Term:
        return term("sub", self, o)

    def __mul__(self, o: Term | Number) -> Term:
        return term("mul", self, o)

    def __truediv__(self, o: Term | Number) -> Term:
        return term("div", self, o)

    def __pow__(self, o: Term | Number) -> Term:
        return term("pow", self, o)

    def __neg__(self) -> Term:
        return term("neg", self)


def term(name: str, *args: Term | Number) -> Term:
    """An operator pattern; numbers are literals."""
    return Term(name, tuple(a if isinstance(a, Term) else Term("lit", value=a) for a in args))


def lit(value: Number) -> Term:
    """A literal as a whole side of an equation."""
    return Term("lit", value=value)


class Lit(Term):
    """Annotation: matches literals only."""


class Int(Term):
    """Annotation: matches integers only."""


class Float(Term):
    """Annotation: matches floats only."""


class Bool(Term):
    """Annotation: matches booleans only."""


@dataclass(frozen=True, slots=True)
class Rule:
    """left = right where `guard` holds of what the variables matched."""

    equation: str
    left: Term
    right: Term
    exact: bool
    guard: Guard | None = field(default=None)

    def apply(self, x: Scalar) -> Scalar | None:
        """The right side for x, or None when x does not match."""
        for bound in matches(self.left, x, {}):
            if self.guard is None or self.guard(bound):
                return build(self.right, bound, x)
        return None


def recorder(table: list[Rule]) -> Callable[..., Callable[[Callable[..., tuple[Term, Term | Number]]], Rule]]:
    """The decorator `@rule(equation, exact=..., where=...)` that appends to a table."""

    def rule(
        equation: str, *, exact: bool = True, where: Guard | None = None
    ) -> Callable[[Callable[..., tuple[Term, Term | Number]]], Rule]:
        def wrap(fn: Callable[..., tuple[Term, Term | Number]]) -> Rule:
            parameters = inspect.signature(fn).parameters.values()
            variables = [
                Term("var", kind="" if p.annotation is p.empty else str(p.annotation), value=k)
                for k, p in enumerate(parameters)
            ]
            left, right = fn(*variables)
            made = Rule(equation, left, right if isinstance(right, Term) else lit(right), exact, where)
            table.append(made)
            return made

        return wrap

    return rule


def same_literal(value: Number, want: Number) -> bool:
    """Equal as numbers and, for floats, in the sign of zero."""
    if value != want:
        return False
    return not isinstance(value, float) or value != 0 or math.copysign(1, value) == math.copysign(1, want)


def _kind_fits(kind: str, x: Scalar) -> bool:
    match kind:
        case "Lit":
            return isinstance(x, Const)
        case "Int":
            return x.dtype.is_int
        case "Float":
            return x.dtype.is_float
        case "Bool":
            return x.dtype.kind is Kind.BOOL
        case _:
            return True


def matches(t: Term, x: Scalar, bound: Bindings) -> Iterable[Bindings]:
    """Every way in which pattern t matches x, extending `bound` (keys are parameter positions as text)."""
    if t.head == "var":
        name = str(t.value)
        old = bound.get(name)
        if old is None and _kind_fits(t.kind, x):
            yield bound | {name: x}
        elif old is x:
            yield bound
    elif t.head == "lit":
        if isinstance(x, Const) and same_literal(x.value, t.value):
            yield bound
    elif isinstance(x, Op) and x.name == t.head:
        yield from _match_all(t.args, x.args, bound)
        if OPS[t.head].commutes:
            yield from _match_all(t.args, x.args[::-1], bound)


def _match_all(ts: tuple[Term, ...], xs: tuple[Scalar, ...], bound: Bindings) -> Iterable[Bindings]:
    if not ts:
        yield bound
        return
    for b in matches(ts[0], xs[0], bound):
        yield from _match_all(ts[1:], xs[1:], b)


def build(t: Term, bound: Mapping[str, Scalar], like: Scalar) -> Scalar:
    """The scalar that a term stands for; literals take the dtype of `like`."""
    if t.head == "var":
        return bound[str(t.value)]
    if t.head == "lit":
        return scalar.const(t.value, like.dtype)
    return scalar.op(t.head, *(build(a, bound, like) for a in t.args))


def by_root(rules: Iterable[Rule]) -> dict[str, tuple[Rule, ...]]:
    """Rules grouped by the operator at the root of their left side."""
    table: dict[str, list[Rule]] = {}
    for r in rules:
        table.setdefault(r.left.head, []).append(r)
    return {k: tuple(v) for k, v in table.items()}
