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
from collections.abc import Callable, Iterable, Mapping
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
        return _merge(self.terms + as_expr(other).terms)

    def __sub__(self, other: Expr | int) -> Expr:
        return self + as_expr(other) * -1

    def __mul__(self, other: Expr | int) -> Expr:
        if isinstance(other, int):
            return self if other == 1 else Expr(tuple((m, c * other) for m, c in self.terms)) if other else Expr(())
        o = other
        return _merge((_product(m, n), a * b) for m, a in self.terms for n, b in o.terms)

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


def _merge(terms: Iterable[tuple[Monomial, int]]) -> Expr:
    acc: dict[Monomial, int] = {}
    for m, c in terms:
        acc[m] = acc.get(m, 0) + c
    kept = [(m, c) for m, c in acc.items() if c]
    if len(kept) > 1:
        kept.sort(key=lambda t: [a.key for a in t[0]])
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


def minimum(a: Expr | int, b: Expr | int) -> Expr:
    """min(a, b), decided where the bounds tell."""
    x, y = as_expr(a), as_expr(b)
    if nonneg(y - x):
        return x
    if nonneg(x - y):
        return y
    return as_expr(Min(*sorted((x, y), key=str)))


def maximum(a: Expr | int, b: Expr | int) -> Expr:
    """max(a, b), decided where the bounds tell."""
    x, y = as_expr(a), as_expr(b)
    if nonneg(x - y):
        return x
    if nonneg(y - x):
        return y
    return as_expr(Max(*sorted((x, y), key=str)))


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
    return _merge(q), _merge(r)


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


@lru_cache(maxsize=1 << 16)
def nonneg(e: Expr) -> bool:
    """True when e >= 0 is proved for all values of its variables and dimensions; False means "not proved".

    A Var that occurs linearly is set to the end of its range that makes e least, symbolically, so that extents cancel:
    n - 1 - i >= 0 because i <= n - 1. Then k * (a // k) is relaxed to a or a - k + 1, and intervals decide.
    """
    for _ in range(16):
        if bounds(e)[0] >= 0:
            return True
        step = _lower_one(e)
        if step is None:
            return False
        e = step
    return bounds(e)[0] >= 0


def _lower_one(e: Expr) -> Expr | None:
    """An expression that is nowhere greater than e, with one Var or Div fewer; None when there is none to remove."""
    for v in sorted(variables(e), key=lambda v: v.key, reverse=True):
        c = linear_coefficient(e, v)
        if c is None:
            continue
        lo, hi = bounds(c)
        if lo >= 0:
            return substitute(e, {v: const(0)})
        if hi <= 0:
            return substitute(e, {v: v.extent - 1})
    for m, count in e.terms:
        if len(m) == 1 and isinstance(m[0], Div) and count % m[0].k == 0:
            d, scale = m[0], count // m[0].k
            rest = e - Expr(((m, count),))
            return rest + d.e * scale if scale < 0 else rest + (d.e - (d.k - 1)) * scale
    return None


@lru_cache(maxsize=1 << 16)
def atoms(e: Expr) -> frozenset[Atom]:
    """All atoms of e, those under Div, Mod, Min and Max included (not those inside Opaque scalars)."""
    found: set[Atom] = set()
    for m, _ in e.terms:
        for a in m:
            found.add(a)
            if isinstance(a, (Div, Mod)):
                found |= atoms(a.e)
            elif isinstance(a, (Min, Max)):
                found |= atoms(a.a) | atoms(a.b)
    return frozenset(found)


def variables(e: Expr) -> frozenset[Var]:
    """The axis variables of e (not those inside Opaque scalars)."""
    return frozenset(a for a in atoms(e) if isinstance(a, Var))


def dims(e: Expr) -> frozenset[Dim]:
    """The named dimensions of e."""
    return frozenset(a for a in atoms(e) if isinstance(a, Dim))


def linear_coefficient(e: Expr, v: Var) -> Expr | None:
    """c with e = c·v + (terms without v), or None when v occurs otherwise (squared, or under Div, Mod, Min, Max)."""
    coefficient: list[tuple[Monomial, int]] = []
    for m, c in e.terms:
        n = m.count(v)
        inside = any(v in atoms(as_expr(a)) for a in m if a is not v)
        if n > 1 or inside:
            return None
        if n:
            coefficient.append((tuple(a for a in m if a is not v), c))
    return _merge(coefficient)


def rebuild(e: Expr, leaf: Callable[[Atom], Expr | None]) -> Expr:
    """e with each atom a replaced by leaf(a); where leaf gives None, Div, Mod, Min and Max are rebuilt from their parts."""
    terms: list[tuple[Monomial, int]] = []
    changed = False
    for m, c in e.terms:
        made = [_rebuild_atom(a, leaf) for a in m]
        if all(x is None for x in made):
            terms.append((m, c))
            continue
        changed = True
        product = const(c)
        for a, x in zip(m, made, strict=True):
            product = product * (as_expr(a) if x is None else x)
        terms.extend(product.terms)
    return _merge(terms) if changed else e


def _rebuild_atom(a: Atom, leaf: Callable[[Atom], Expr | None]) -> Expr | None:
    """What takes the place of an atom, None for the atom itself."""
    new = leaf(a)
    if new is not None:
        return new
    match a:
        case Div() | Mod():
            inner = rebuild(a.e, leaf)
            if inner is a.e:
                return None
            return floordiv(inner, a.k) if isinstance(a, Div) else mod(inner, a.k)
        case Min() | Max():
            x, y = rebuild(a.a, leaf), rebuild(a.b, leaf)
            if x is a.a and y is a.b:
                return None
            return minimum(x, y) if isinstance(a, Min) else maximum(x, y)
        case _:
            return None


def substitute(e: Expr, mapping: Mapping[Var, Expr]) -> Expr:
    """e with variables replaced (Opaque atoms are left: `scalar.substitute` handles expressions that hold scalars)."""
    if not mapping or not any(v in mapping for v in variables(e)):
        return e
    return rebuild(e, lambda a: mapping.get(a) if isinstance(a, Var) else None)


def evaluate(e: Expr, values: Mapping[str, int]) -> int:
    """The value of e where `values` gives each Var and Dim by name; raises KeyError for a missing one."""
    return sum(c * math.prod(_evaluate_atom(a, values) for a in m) for m, c in e.terms)


def _evaluate_atom(a: Atom, values: Mapping[str, int]) -> int:
    match a:
        case Var():
            return values[a.name]
        case Dim():
            return values[a.name] // a.multiple
        case Div():
            return evaluate(a.e, values) // a.k
        case Mod():
            return evaluate(a.e, values) % a.k
        case Min():
            return min(evaluate(a.a, values), evaluate(a.b, values))
        case Max():
            return max(evaluate(a.a, values), evaluate(a.b, values))
        case Opaque():
            raise TypeError(f"{a} is known only where its data is")
