"""Written-down costs that fusion decides by, and where a bind reads a tensor.

Units: one addition on one element. The numbers are round on purpose: they only have to rank "compute again"
against "store once, load again, one more dispatch"; schedules are measured elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from tang_edge.ir import affine, scalar
from tang_edge.ir.affine import Dim, Expr, Opaque, Var
from tang_edge.ir.ops import OPS
from tang_edge.ir.scalar import Get, Idx, Op, Read, Scalar


@dataclass(frozen=True, slots=True)
class CostModel:
    """Weights of a load, a store and operators on one element, and of a dispatch (3 microseconds or so)."""

    load: float = 4
    store: float = 4
    slow: float = 4  # division, square root, remainder
    transcendental: float = 12
    launch: float = 1 << 16


COST = CostModel()
_SLOW = frozenset({"div", "sqrt", "mod", "fmod"})
_TRANSCENDENTAL = frozenset(name for name, info in OPS.items() if not info.exact)


def op_weight(name: str) -> float:
    """The cost of one operator on one element."""
    return COST.slow if name in _SLOW else COST.transcendental if name in _TRANSCENDENTAL else 1


@lru_cache(maxsize=1 << 16)
def nodes(x: Scalar) -> frozenset[Scalar]:
    """Every node of x outside comprehensions (a Get counts as one node)."""
    if isinstance(x, Get):
        return frozenset((x,))
    return frozenset((x,)).union(*(nodes(y) for y in scalar.children(x)))


def point_cost(x: Scalar) -> float:
    """Operators and loads to compute x at one point, shared nodes once; comprehensions are left out."""
    weights = (op_weight(n.name) if isinstance(n, Op) else COST.load if isinstance(n, Read) else 0 for n in nodes(x))
    return float(sum(weights))


def op_count(x: Scalar) -> int:
    """Operators of x outside comprehensions."""
    return sum(isinstance(n, Op) for n in nodes(x))


# ---------------------------------------------------------------- sizes


@lru_cache(maxsize=1 << 16)
def typical(e: Expr) -> float:
    """A typical value: dimensions at the geometric mean of their range, axes in the middle of theirs."""
    return sum(c * math.prod(_typical_atom(a) for a in m) for m, c in e.terms)


def _typical_atom(a: affine.Atom) -> float:
    match a:
        case Var():
            return (typical(a.extent) - 1) / 2
        case Dim():
            return math.sqrt(max(1, a.lo) * a.hi) / a.multiple
        case affine.Div():
            return typical(a.e) // a.k
        case affine.Mod():
            return (a.k - 1) / 2
        case affine.Min():
            return min(typical(a.a), typical(a.b))
        case affine.Max():
            return max(typical(a.a), typical(a.b))
        case Opaque():
            return (a.lo + a.hi) / 2


def size(axes: Sequence[Var]) -> float:
    """The typical number of points of some axes."""
    return math.prod(typical(a.extent) for a in axes)


# ---------------------------------------------------------------- where a tensor is read


@dataclass(frozen=True, slots=True)
class Site:
    """A read, the axes of the comprehensions around it, and whether it helps to compute a coordinate."""

    read: Read
    bound: tuple[Var, ...]
    in_coordinate: bool


@lru_cache(maxsize=1 << 14)
def sites(x: Scalar) -> tuple[Site, ...]:
    """Every distinct read in x with its place, outermost first. Bound axes carry their canonical names."""
    found: dict[Site, None] = {}
    seen: set[tuple[Scalar, tuple[Var, ...], bool]] = set()

    def go(y: Scalar, bound: tuple[Var, ...], in_coordinate: bool) -> None:
        if (y, bound, in_coordinate) in seen or not scalar.reads(y):
            return
        seen.add((y, bound, in_coordinate))
        if isinstance(y, Read):
            found[Site(y, bound, in_coordinate)] = None
        inner = bound + y.of.axes if isinstance(y, Get) else bound
        for z in scalar.children(y):
            go(z, inner, in_coordinate or isinstance(y, (Read, Idx)))

    go(x, (), False)
    return tuple(found)


def sites_of(x: Scalar, tensor: str) -> tuple[Site, ...]:
    """The sites of one tensor."""
    return tuple(s for s in sites(x) if s.read.tensor == tensor)
