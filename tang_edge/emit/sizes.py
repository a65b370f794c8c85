"""Integer expressions over dimensions in the two forms that leave the compiler: the plan's JSON and a C expression."""

from __future__ import annotations

from tang_edge.errors import CompilerBug
from tang_edge.ir.affine import Atom, Dim, Div, Expr, Max, Min, Mod, Opaque, Var

Json = int | str | list["Json"]


def to_json(e: Expr) -> Json:
    """The expression in the plan's size language."""
    terms: list[Json] = []
    for m, c in e.terms:
        factors: list[Json] = [_atom(a) for a in m]
        if c != 1 or not factors:
            factors.insert(0, c)
        terms.append(factors[0] if len(factors) == 1 else ["*", *factors])
    return 0 if not terms else terms[0] if len(terms) == 1 else ["+", *terms]


def _atom(a: Atom) -> Json:
    match a:
        case Dim():
            return a.name if a.multiple == 1 else ["//", a.name, a.multiple]
        case Div():
            return ["//", to_json(a.e), a.k]
        case Mod():
            return ["%", to_json(a.e), a.k]
        case Min():
            return ["min", to_json(a.a), to_json(a.b)]
        case Max():
            return ["max", to_json(a.a), to_json(a.b)]
        case Var() | Opaque():
            raise CompilerBug(f"a size mentions {a}")
