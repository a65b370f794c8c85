"""Linear addresses of reads, and whether a view visits each element of a tensor exactly once."""

from __future__ import annotations

from collections.abc import Sequence

from tang_edge.ir import affine
from tang_edge.ir.affine import Div, Expr, Mod, Monomial, Opaque, Var


def without_units(e: Expr) -> Expr:
    """e with axes of extent 1 replaced by 0."""
    return affine.substitute(e, {v: affine.const(0) for v in affine.variables(e) if v.extent.constant == 1})


def linear(coords: Sequence[Expr], shape: Sequence[Expr]) -> Expr:
    """The row-major element address, with quotients and remainders of one value joined again."""
    total = affine.const(0)
    for c, n in zip(coords, shape, strict=True):
        total = total * n + c
    return joined(without_units(total))


def joined(e: Expr) -> Expr:
    """k * (a // k) + a % k = a, until nothing joins."""
    for _ in range(8):
        step = _join_one(e)
        if step is None:
            return e
        e = step
    return e


def _join_one(e: Expr) -> Expr | None:
    terms = dict(e.terms)
    for m, c in e.terms:
        for n, atom in enumerate(m):
            if not isinstance(atom, Mod):
                continue
            rest = m[:n] + m[n + 1 :]
            quotient = affine.floordiv(atom.e, atom.k) * atom.k * Expr(((rest, c),))
            if all(terms.get(qm) == qc for qm, qc in quotient.terms):
                return e - Expr(((m, c),)) - quotient + atom.e * Expr(((rest, c),))
    return None


def is_affine(e: Expr) -> bool:
    """No floor division, remainder or computed coordinate, and at most one axis in each term."""
    return all(_affine_term(m) for m, _ in e.terms)


def _affine_term(m: Monomial) -> bool:
    if any(affine.variables(affine.as_expr(a)) for a in m if not isinstance(a, Var)):
        return False
    return not any(isinstance(a, Opaque) for a in m) and sum(isinstance(a, Var) for a in m) <= 1


def is_bijection(coords: Sequence[Expr], shape: Sequence[Expr], axes: Sequence[Var]) -> bool:
    """True when proved: the coords of all points of `axes` are the elements of that shape, each once.

    By the linear address: as many points as elements, and the address is a mixed-radix number in the axes: in
    order of their strides, each stride is the product of the extents before it.
    """
    live = [a for a in axes if a.extent.constant != 1]
    points, elements = affine.const(1), affine.const(1)
    for a in live:
        points = points * a.extent
    for n in shape:
        elements = elements * n
    address = linear(coords, shape)
    if points is not elements or affine.variables(address) != frozenset(live) or not is_affine(address):
        return False
    strides: dict[Var, Expr] = {}
    for a in live:
        stride = affine.linear_coefficient(address, a)
        if stride is None:
            return False
        strides[a] = stride
    rest = address
    for a in live:
        rest = rest - strides[a] * affine.as_expr(a)
    return rest.constant == 0 and _mixed_radix(strides)


def _mixed_radix(strides: dict[Var, Expr]) -> bool:
    """In some order of the axes each stride is the product of the extents before it."""
    expected, left = affine.const(1), dict(strides)
    while left:
        found = next((a for a, s in left.items() if s is expected), None)
        if found is None:
            return False
        expected = expected * found.extent
        del left[found]
    return True


def divides(e: Expr) -> bool:
    """True when e holds a floor division or a remainder."""
    return any(isinstance(a, (Div, Mod)) for a in affine.atoms(e))


# ---------------------------------------------------------------- inverse of a view that splits axes


def invert(coords: Sequence[Expr], axes: Sequence[Var], targets: Sequence[Var]) -> dict[Var, Expr] | None:
    """The axes as affine functions of the targets, where target k = coords[k](axes) is one digit of an axis.

    v = Σ a_i * t_i  when the targets are the digits (v // a_i) % n_i of v, a_0 = 1, a_(i+1) = a_i * n_i, and
    they use v up. None where the coords are anything else.
    """
    digits: dict[Var, list[tuple[int, Var]]] = {a: [] for a in axes}
    for e, t in zip(coords, targets, strict=True):
        if t.extent.constant == 1:
            continue
        found = _digit(e)
        if found is None or found[0] not in digits:
            return None
        digits[found[0]].append((found[1], t))
    out: dict[Var, Expr] = {}
    for v, parts in digits.items():
        total, weight = affine.const(0), affine.const(1)
        for a, t in sorted(parts, key=lambda p: p[0]):
            if weight is not affine.const(a):
                return None
            total, weight = total + affine.as_expr(t) * a, weight * t.extent
        if weight is not v.extent:
            return None
        out[v] = total
    return out


def _digit(e: Expr) -> tuple[Var, int] | None:
    """(v, a) when e is v, v // a, v % n or (v // a) % n."""
    if len(e.terms) != 1 or e.terms[0][1] != 1 or len(e.terms[0][0]) != 1:
        return None
    atom = e.terms[0][0][0]
    match atom:
        case Var():
            return atom, 1
        case Mod():
            return _digit(atom.e)
        case Div():
            inner = _digit(atom.e)
            return None if inner is None or isinstance(atom.e.terms[0][0][0], Mod) else (inner[0], inner[1] * atom.k)
        case _:
            return None
