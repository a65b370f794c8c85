"""Integer expressions: polynomials over axis variables and named dimensions, with floor division and modulo by constants.

    Expr = Σ coefficient · Π atom         (canonical: sorted, merged, no zero coefficient; equal expressions are one object)
    atom = Var | Dim | Div(e, k) | Mod(e, k) | Min(a, b) | Max(a, b) | Opaque(scalar)

A view is *affine* when each monomial holds at most one Var and that Var stands under no Div or Mod; the rest (symbolic
strides, merged axes) is quasi-affine. Every Var knows its extent and every Dim its range, so `bounds` and `nonneg` need no
environment. `Opaque` lets an integer scalar computed from data stand as a coordinate: that is gather.

Floor semantics everywhere: (-1) // 2 = -1 and (-1) % 2 = 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from tang_edge.ir.intern import Interned

if TYPE_CHECKING:
    from tang_edge.ir.scalar import Scalar

UNBOUNDED = 1 << 62  # "no known limit": far beyond any address, yet products of two of them stay Python integers


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Var(metaclass=Interned):
    """An axis variable: an integer in [0, extent). The name alone does not identify it, the pair does."""

    name: str
    extent: Expr

    @property
    def key(self) -> str:
        return f"v{self.name}:{self.extent}"

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Dim(metaclass=Interned):
    """A named dimension, known when a program runs: an integer in [lo, hi] that `multiple` divides.

    As an atom it stands for the quotient size / multiple, so that n = multiple * atom and divisions of n by divisors of the
    multiple cancel exactly: with n a multiple of 32, (n - 1) // 2 + 1 is 16 * (n/32).
    """

    name: str
    lo: int
    hi: int
    multiple: int

    @property
    def key(self) -> str:
        return f"d{self.name}"

    def __str__(self) -> str:
        return self.name if self.multiple == 1 else f"({self.name}/{self.multiple})"


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Div(metaclass=Interned):
    """floor(e / k) for a constant k > 1 that could not be simplified away."""

    e: Expr
    k: int

    @property
    def key(self) -> str:
        return f"q{self.e}//{self.k}"

    def __str__(self) -> str:
        return f"({self.e}) // {self.k}"


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Mod(metaclass=Interned):
    """e - k * floor(e / k) for a constant k > 1."""

    e: Expr
    k: int

    @property
    def key(self) -> str:
        return f"r{self.e}%{self.k}"

    def __str__(self) -> str:
        return f"({self.e}) % {self.k}"


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Min(metaclass=Interned):
    """The smaller of two expressions."""

    a: Expr
    b: Expr

    @property
    def key(self) -> str:
        return f"m{self}"

    def __str__(self) -> str:
        return f"min({self.a}, {self.b})"


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Max(metaclass=Interned):
    """The greater of two expressions."""

    a: Expr
    b: Expr

    @property
    def key(self) -> str:
        return f"x{self}"

    def __str__(self) -> str:
        return f"max({self.a}, {self.b})"


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Opaque(metaclass=Interned):
    """An integer scalar, computed from data, in [lo, hi] (it is clamped to that range wherever it addresses memory)."""

    value: Scalar
    lo: int
    hi: int

    @property
    def key(self) -> str:
        return f"o{self}"

    def __str__(self) -> str:
        return f"[{self.value}]"


Atom = Var | Dim | Div | Mod | Min | Max | Opaque
Monomial = tuple[Atom, ...]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Expr(metaclass=Interned):
    """A polynomial: ((monomial, coefficient), ...) in canonical order. Build with `const`, `var`, `dim` and operators."""

    terms: tuple[tuple[Monomial, int], ...]

    def __add__(self, other: Expr | int) -> Expr:
        o = as_expr(other)
        return merge(self.terms + o.terms) if self.terms and o.terms else self if self.terms else o

    def __sub__(self, other: Expr | int) -> Expr:
        return self + as_expr(other) * -1

    def __mul__(self, other: Expr | int) -> Expr:
        if isinstance(other, int):
            return self if other == 1 else Expr(tuple((m, c * other) for m, c in self.terms)) if other else Expr(())
        o = other
        return merge((_product(m, n), a * b) for m, a in self.terms for n, b in o.terms)

    def __neg__(self) -> Expr:
        return self * -1

    def __radd__(self, other: int) -> Expr:
        return self + other

    def __rsub__(self, other: int) -> Expr:
        return as_expr(other) - self

    def __rmul__(self, other: int) -> Expr:
        return self * other

    def __floordiv__(self, k: int) -> Expr:
        return floordiv(self, k)

    def __mod__(self, k: int) -> Expr:
        return mod(self, k)

    @property
    def constant(self) -> int | None:
        """The value of a constant expression, else None."""
        if not self.terms:
            return 0
        if len(self.terms) == 1 and not self.terms[0][0]:
            return self.terms[0][1]
        return None

    def __str__(self) -> str:
        return text_of(self)

    __repr__ = __str__


@lru_cache(maxsize=1 << 16)
def text_of(e: Expr) -> str:
    """The text form, e.g. `2*i0 + n*i1 + (h) // 2 - 1`."""
    parts: list[str] = []
    for m, c in sorted(e.terms, key=lambda t: (not t[0],)):
        name = "*".join(f"({a})" if isinstance(a, (Div, Mod)) and (len(m) > 1 or c != 1) else str(a) for a in m)
        size = str(abs(c)) if not m else name if abs(c) == 1 else f"{abs(c)}*{name}"
        parts.append(("- " if c < 0 else "+ ") + size)
    if not parts:
        return "0"
    head = parts[0]
    return " ".join([head[2:] if head[0] == "+" else "-" + head[2:], *parts[1:]])


def _product(m: Monomial, n: Monomial) -> Monomial:
    return n if not m else m if not n else tuple(sorted(m + n, key=lambda a: a.key))


@lru_cache(maxsize=1 << 16)
def _rank(m: Monomial) -> tuple[str, ...]:
    """What the canonical order goes by."""
    return tuple([a.key for a in m])


def merge(terms: Iterable[tuple[Monomial, int]]) -> Expr:
    """The canonical sum of (monomial, coefficient) pairs."""
    acc: dict[Monomial, int] = {}
    for m, c in terms:
        acc[m] = acc.get(m, 0) + c
    kept = [(m, c) for m, c in acc.items() if c]
    if len(kept) > 1:
        kept.sort(key=lambda t: _rank(t[0]))
    return Expr(tuple(kept))


def const(value: int) -> Expr:
    """The constant expression."""
    return Expr((((), int(value)),)) if value else Expr(())


def as_expr(e: Expr | Atom | int) -> Expr:
    """An expression from an int, an atom or an expression."""
    if isinstance(e, Expr):
        return e
    return const(e) if isinstance(e, int) else Expr((((e,), 1),))


def var(name: str, extent: Expr | int) -> Var:
    """The axis variable of that name and extent."""
    return Var(name, as_expr(extent))


def dim(name: str, lo: int = 1, hi: int = 4096, multiple: int = 1) -> Expr:
    """The size of a named dimension in [lo, hi] (rounded inward to multiples of `multiple`); a constant when lo = hi."""
    lo, hi = -(-lo // multiple) * multiple, hi // multiple * multiple
    if lo > hi:
        raise ValueError(f"dimension {name}: no multiple of {multiple} in the range")
    return const(lo) if lo == hi else as_expr(Dim(name, lo, hi, multiple)) * multiple


def _split(e: Expr, k: int) -> tuple[Expr, Expr]:
    """e = k * q + r, moving into q every term whose coefficient k divides."""
    q: list[tuple[Monomial, int]] = []
    r: list[tuple[Monomial, int]] = []
    for m, c in e.terms:
        if not m:
            q.append((m, c // k))
            r.append((m, c % k))
        elif c % k == 0:
            q.append((m, c // k))
        else:
            r.append((m, c))
    return merge(q), merge(r)


def floordiv(e: Expr, k: int) -> Expr:
    """floor(e / k), k > 0.   (k·q + r) // k = q + r // k ;  r // k = 0 when 0 <= r < k ;  (a // m) // k = a // (m·k)"""
    if k <= 0:
        raise ValueError(f"floor division by {k}")
    if k == 1:
        return e
    q, r = _split(e, k)
    c = r.constant
    if c is not None:
        return q + c // k
    lo, hi = bounds(r)
    if lo >= 0 and hi < k:
        return q
    if len(r.terms) == 1 and r.terms[0][1] == 1 and len(r.terms[0][0]) == 1 and isinstance(r.terms[0][0][0], Div):
        inner = r.terms[0][0][0]
        return q + floordiv(inner.e, inner.k * k)
    return q + as_expr(Div(r, k))


def mod(e: Expr, k: int) -> Expr:
    """e - k * (e // k), k > 0.   (k·q + r) % k = r % k ;  r % k = r when 0 <= r < k ."""
    if k <= 0:
        raise ValueError(f"modulo {k}")
    if k == 1 or multiple_of(e) % k == 0:
        return const(0)
    r = _split(e, k)[1]
    c = r.constant
    if c is not None:
        return const(c % k)
    lo, hi = bounds(r)
    return r if lo >= 0 and hi < k else as_expr(Mod(r, k))


def multiple_of(e: Expr) -> int:
    """The greatest integer known to divide every value of e (0 divides only 0: returned for the constant 0)."""
    return math.gcd(*(c * math.prod(_atom_multiple(a) for a in m) for m, c in e.terms)) if e.terms else 0


def _atom_multiple(a: Atom) -> int:
    match a:
        case Min() | Max():
            return math.gcd(multiple_of(a.a), multiple_of(a.b)) or 1
        case Mod(e=e, k=k):
            return math.gcd(multiple_of(e), k)
        case Div(e=e, k=k):
            m = multiple_of(e)
            return m // k if m % k == 0 and m else 1
        case _:
            return 1


@lru_cache(maxsize=1 << 16)
def bounds(e: Expr) -> tuple[int, int]:
    """An interval that holds every value of e, by interval arithmetic; ±UNBOUNDED where nothing is known."""
    lo = hi = 0
    for m, c in e.terms:
        tlo = thi = c
        for a in m:
            alo, ahi = _atom_bounds(a)
            corners = (tlo * alo, tlo * ahi, thi * alo, thi * ahi)
            tlo, thi = min(corners), max(corners)
        lo, hi = lo + tlo, hi + thi
    return max(lo, -UNBOUNDED), min(hi, UNBOUNDED)


def _atom_bounds(a: Atom) -> tuple[int, int]:
    match a:
        case Var():
            return 0, max(0, bounds(a.extent)[1] - 1)
        case Dim():
            return a.lo // a.multiple, a.hi // a.multiple
        case Div():
            lo, hi = bounds(a.e)
            return lo // a.k, hi // a.k
        case Mod():
            return 0, a.k - 1
        case Min():
            (alo, ahi), (blo, bhi) = bounds(a.a), bounds(a.b)
            return min(alo, blo), min(ahi, bhi)
        case Max():
            (alo, ahi), (blo, bhi) = bounds(a.a), bounds(a.b)
            return max(alo, blo), max(ahi, bhi)
        case Opaque():
            return a.lo, a.hi
