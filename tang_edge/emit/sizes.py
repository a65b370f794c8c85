"""Integer expressions over dimensions in the two forms that leave the compiler: the plan's JSON and a C expression."""

from __future__ import annotations

from tang_edge.errors import CompilerBug
from tang_edge.ir.affine import Atom, Dim, Div, Expr, Max, Min, Mod, Opaque, Var

Json = int | str | list["Json"]


def to_json(e: Expr) -> Json:
    """The expression in the plan's size language."""
    terms: list[Json] = []
    for m, c in e.terms:
        if len(m) == 1 and isinstance(m[0], Dim) and c == m[0].multiple:
            terms.append(m[0].name)  # multiple * (n / multiple) = n
            continue
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
            return ["min", *_flat("min", a.a), *_flat("min", a.b)]
        case Max():
            return ["max", *_flat("max", a.a), *_flat("max", a.b)]
        case Var() | Opaque():
            raise CompilerBug(f"a size mentions {a}")


def _flat(name: str, e: Expr) -> list[Json]:
    """max(max(a, b), c) = max(a, b, c)."""
    j = to_json(e)
    return j[1:] if isinstance(j, list) and j[0] == name else [j]
