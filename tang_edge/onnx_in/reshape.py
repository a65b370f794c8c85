"""Reshapes: the common refinement of two symbolic shapes.

Both shapes are lists of extents with the same product. Walking both from the right, an extent that divides
the other is split off, so that in the end each axis of either shape is a product of consecutive *refined*
axes. Coordinates are then affine in the refined ones: splitting an axis reads at q * n + r, and merging axes
needs floor division by the inner extents where these are constants, or a store map where they are not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tang_edge.ir import affine
from tang_edge.ir.affine import Expr

Same = Callable[[Expr, Expr], Expr]


def product(extents: Sequence[Expr]) -> Expr:
    """The product of extents."""
    out = affine.const(1)
    for e in extents:
        out = out * e
    return out


def exact_quotient(e: Expr, d: Expr) -> Expr | None:
    """q with e = q * d, by polynomial long division; None when there is no such polynomial."""
    if not d.terms:
        return None
    quotient, rest = affine.const(0), e
    lead, lead_count = max(d.terms, key=_degree)
    for _ in range(64):
        if not rest.terms:
            return quotient
        m, count = max(rest.terms, key=_degree)
        left = list(m)
        for a in lead:
            if a not in left:
                return None
            left.remove(a)
        if count % lead_count:
            return None
        term = Expr(((tuple(left), count // lead_count),))
        quotient, rest = quotient + term, rest - term * d
    return None


def _degree(term: tuple[affine.Monomial, int]) -> tuple[int, list[str]]:
    return len(term[0]), [a.key for a in term[0]]


@dataclass(frozen=True)
class Refined:
    """Refined axes: their extents, and for each axis of the two shapes which of them (in order) it is made
    of.

    `sources` and `targets` hold index lists into `extents`; an axis of extent 1 has an empty list.
    """

    extents: tuple[Expr, ...]
    sources: tuple[tuple[int, ...], ...]
    targets: tuple[tuple[int, ...], ...]


def refine(source: Sequence[Expr], target: Sequence[Expr], same: Same) -> Refined | None:
    """The common refinement, or None when the shapes have none. `same` is told of extents that must be equal."""
    a = [k for k, e in enumerate(source) if e.constant != 1]
    b = [k for k, e in enumerate(target) if e.constant != 1]
    src: list[list[int]] = [[] for _ in source]
    dst: list[list[int]] = [[] for _ in target]
    extents: list[Expr] = []

    def put(e: Expr, i: int, j: int) -> None:
        extents.append(e)
        src[i].insert(0, len(extents) - 1)
        dst[j].insert(0, len(extents) - 1)

    while a and b and source[a[0]] is target[b[0]]:
        put(source[a[0]], a.pop(0), b.pop(0))
    left = [source[k] for k in a], [target[k] for k in b]
    while a and b:
        x, y = left[0][-1], left[1][-1]
        done_x = done_y = True
        if x is not y:
            if len(a) == len(b) == 1:
                x = y = same(x, y)
            elif (q := exact_quotient(y, x)) is not None and affine.bounds(q)[0] >= 0:
                left[1][-1], y, done_y = q, x, False
            elif (q := exact_quotient(x, y)) is not None and affine.bounds(q)[0] >= 0:
                left[0][-1], done_x = q, False
            else:
                return None
        put(y, a[-1], b[-1])
        _drop(a, left[0], done_x)
        _drop(b, left[1], done_y)
    for rest in (*left[0], *left[1]):
        same(rest, affine.const(1))
    return Refined(tuple(extents), tuple(map(tuple, src)), tuple(map(tuple, dst)))


def _drop(axes: list[int], extents: list[Expr], done: bool) -> None:
    if done:
        axes.pop()
        extents.pop()


def merged(parts: Sequence[int], coords: Sequence[Expr], extents: Sequence[Expr]) -> Expr:
    """The coordinate of an axis made of refined axes."""
    out = affine.const(0)
    for k in parts:
        out = out * extents[k] + coords[k]
    return out


def split(parts: Sequence[int], coord: Expr, extents: Sequence[Expr]) -> dict[int, Expr] | None:
    """The refined coordinates of an axis's coordinate; None when an inner extent is symbolic."""
    out: dict[int, Expr] = {}
    inner = 1
    for place, k in reversed(list(enumerate(parts))):
        size = extents[k].constant
        if place and size is None:
            return None
        q = affine.floordiv(coord, inner)
        out[k] = affine.mod(q, size) if place and size is not None else q
        inner *= size or 1
    return out


def linear(source: Sequence[Expr], target: Sequence[Expr], coords: Sequence[Expr]) -> list[Expr] | None:
    """Source coordinates through the linear address; None when a stride of the source is symbolic."""
    address = affine.const(0)
    for c, n in zip(coords, target, strict=True):
        address = address * n + c
    out: list[Expr] = []
    stride = 1
    for place, n in reversed(list(enumerate(source))):
        size = n.constant
        if place and size is None:
            return None
        q = affine.floordiv(address, stride)
        out.insert(0, affine.mod(q, size) if place and size is not None else q)
        stride *= size or 1
    return out
