"""What a schedule needs to know of a bind: its main reduction, how its reads move along axes, which axis suits vectors."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tang_edge.ir import affine, scalar
from tang_edge.ir.affine import Expr, Opaque, Var
from tang_edge.ir.dtype import Kind
from tang_edge.ir.scalar import Comprehension, Get, Read, Scalar
from tang_edge.ir.tensor import Bind
from tang_edge.schedule.addresses import Placed
from tang_edge.schedule.indices import on_32_bits

TYPICAL = 64  # what the extent of a prefix reduction is taken to be


def outer_folds(x: Scalar) -> tuple[Comprehension, ...]:
    """The comprehensions of x that are not inside another one, in a fixed order."""
    found: dict[Comprehension, None] = {}
    seen: set[Scalar] = set()

    def go(y: Scalar) -> None:
        if y in seen:
            return
        seen.add(y)
        if isinstance(y, Get):
            found[y.of] = None
            return
        for z in scalar.children(y):
            go(z)

    go(x)
    return tuple(found)


def typical(e: Expr) -> int:
    """A size to reckon with when a default is picked: every dimension at the geometric mean of its range; at least 1."""
    if e.constant is not None:
        return max(1, e.constant)
    sizes = {d.name: max(d.lo, round(math.sqrt(d.lo * d.hi)) // d.multiple * d.multiple) for d in affine.dims(e)}
    lo, hi = affine.bounds(e)
    guess = TYPICAL if affine.variables(e) else affine.evaluate(e, sizes)
    return max(1, lo, min(hi, guess))


def main_fold(bind: Bind) -> Comprehension | None:
    """The comprehension whose loops are tiled together with the outputs: the one that does the most work per output."""

    def work(c: Comprehension) -> int:
        n = 1
        for a in c.axes:
            n *= typical(a.extent)
        return n * len(bind.axes) if scalar.free(Get(c, 0)) else 0

    folds = [c for c in outer_folds(bind.expr) if not any(affine.variables(a.extent) for a in c.axes)]
    return max(folds, key=lambda c: (work(c), str(c))) if folds else None


@dataclass(frozen=True, slots=True)
class Access:
    """A read, its address, and whether its tensor is a constant of the model."""

    read: Read
    address: Expr
    constant: bool

    def step(self, v: Var) -> int | None:
        """Elements between neighbours along v: 0, 1, ... ; None when it varies or is symbolic."""
        if v in scalar.free(self.read) and v not in affine.variables(self.address):
            return None
        c = affine.linear_coefficient(self.address, v)
        return None if c is None else c.constant

    def moves(self, v: Var) -> bool:
        """True when the read differs along v."""
        return v in scalar.free(self.read)

    def guarded_by(self, v: Var) -> bool:
        """True when the guard mentions v."""
        return any(v in affine.variables(g) for g in self.read.view.guard)


def accesses(x: Scalar, placed: Mapping[str, Placed], constants: Collection[str]) -> tuple[Access, ...]:
    """The reads of x, in a fixed order (those under nested comprehensions included)."""
    found = sorted(scalar.reads(x), key=str)
    return tuple(Access(r, placed[r.tensor].address(r.view.coords), r.tensor in constants) for r in found)


def vector_dtypes_ok(bind: Bind) -> bool:
    """True when every value of the bind fits lanes of 32 bits: f32, 32-bit integers, narrower ones cast at once."""

    def bad(x: Scalar) -> bool:
        d = x.dtype
        narrow = d.is_int and d.bits < 32
        if isinstance(x, Read):
            return not (d.bits == 32 or narrow)
        return d.bits > 32 or d.name == "f16" or (narrow and not (isinstance(x, scalar.Op) and x.name == "cast"))

    seen: set[Scalar] = set()

    def any_bad(x: Scalar) -> bool:
        x = on_32_bits(x)
        if x in seen:
            return False
        seen.add(x)
        return bad(x) or any(any_bad(y) for y in scalar.children(x))

    stored = bind.expr.dtype
    return stored.kind is not Kind.BOOL and stored.bits <= 32 and stored.name != "f16" and not any_bad(bind.expr)


def four_bytes(bind: Bind, placed: Mapping[str, Placed]) -> bool:
    """True when every tensor that the bind touches is stored in 4-byte elements that are not bool."""
    names = {r.tensor for r in scalar.reads(bind.expr)} | {bind.store.tensor if bind.store else bind.name}
    return all(placed[n].dtype.bits == 32 for n in names)


def vector_score(bind: Bind, v: Var, reads: Collection[Access], lanes: int, store_step: int | None, fold: bool) -> float:
    """How well axis v suits a vector of `lanes`: 0 (useless) to about 1.4.

    utilisation n / (lanes·⌈n/lanes⌉), halved or worse for strided stores, near nothing when a read must gather its lanes;
    a bonus when the tensors that are not constants do not move along v, so that one element serves all lanes.
    """
    n = v.extent.constant
    if n == 0:
        return 0.0
    score = 0.9 if n is None else n / (-(-n // lanes) * lanes)
    if any(isinstance(a, Opaque) and v in scalar.free(a.value) for r in reads for a in affine.atoms(r.address)):
        return 0.0
    for r in reads:
        if r.constant or not r.moves(v):
            continue
        if r.step(v) != 1 or r.guarded_by(v):
            score *= 0.08
    if store_step != 1:
        score *= 0.6 if fold else 0.25
    if fold and any(not r.moves(v) for r in reads if not r.constant):
        score *= 1.4
    return score
