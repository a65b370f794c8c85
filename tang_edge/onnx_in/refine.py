"""What the constraints of an import imply about dimensions: multiples, ranges, extents that are equal."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

from tang_edge.errors import UnsupportedModel
from tang_edge.ir import affine
from tang_edge.ir.affine import Dim, Expr
from tang_edge.ir.tensor import Constraint
from tang_edge.onnx_in.dims import DimRange, dim_of

MULTIPLES: Final = (2, 4, 8, 16, 32, 64)
SCAN_LIMIT: Final = 1 << 13  # sizes tried one by one where bisection cannot narrow a range
PROBES: Final = 64  # places where an extent is looked at to see whether it grows with the size


@dataclass(frozen=True)
class Refinement:
    """Knowledge for the next import. `notes` say in words what was implied by which node."""

    ranges: Mapping[str, DimRange] = field(default_factory=dict)
    facts: Mapping[Expr, Expr] = field(default_factory=dict)
    kept: tuple[Constraint, ...] = ()
    notes: tuple[str, ...] = ()


def infer_multiples(
    constraints: Sequence[Constraint], ranges: Mapping[str, DimRange], fixed: Mapping[str, bool]
) -> dict[str, tuple[DimRange, str]]:
    """For each dimension without a range of the user's: the smallest multiple that settles most constraints,
    and why.
    """
    found: dict[str, tuple[DimRange, str]] = {}
    for name, r in ranges.items():
        mine = [c for c in constraints if any(d.name == name for d in affine.dims(c.left - c.right))]
        if fixed[name] or not mine:
            continue
        best, settled = 1, [c for c in mine if _settled(c, name, 1)]
        for m in MULTIPLES:
            now = [c for c in mine if _settled(c, name, m)] if r.hi >= m else []
            if len(now) > len(settled):
                best, settled = m, now
        if best > 1:
            lo, hi = -(-max(r.lo, 1) // best) * best, r.hi // best * best
            found[name] = DimRange(lo, hi, best), settled[0].why
    return found


def _settled(c: Constraint, name: str, m: int) -> bool:
    """True when the constraint holds for all sizes of the dimension that m divides."""

    def leaf(a: affine.Atom) -> Expr | None:
        if isinstance(a, Dim) and a.name == name and a.multiple == 1:
            return affine.as_expr(Dim(name, -(-max(a.lo, 1) // m) * m, a.hi // m * m, m)) * m
        return None

    return affine.rebuild(c.left, leaf) is affine.rebuild(c.right, leaf)


def narrow(
    constraints: Sequence[Constraint],
    short: Sequence[tuple[Expr, str]],
    ranges: Mapping[str, DimRange],
    fixed: Mapping[str, bool],
) -> dict[str, tuple[DimRange, str]]:
    """Ranges without the sizes for which a constraint over that dimension alone fails or a tensor would be
    empty.

    The user's ranges keep their upper end and lose only sizes for which an extent would be negative.
    """
    found: dict[str, tuple[DimRange, str]] = {}
    tests: dict[tuple[Expr, bool], str] = {}  # (expression, whether it must be 0 rather than >= 1) -> node
    for c in constraints:
        tests.setdefault((c.left - c.right, True), c.why)
    for e, why in short:
        tests.setdefault((e, False), why)
    for (e, zero), why in tests.items():
        d = dim_of(e)
        if d is None:
            continue
        r = found[d.name][0] if d.name in found else ranges[d.name]
        if fixed[d.name] and (r.lo == 0 or zero):
            continue
        new = _fitting(e, d, zero, r)
        if new is None:
            raise UnsupportedModel(
                f"no size of {d.name} in {r} makes the shapes fit", where=why, remedy="Give it another range"
            )
        if new != r:
            found[d.name] = new, why
    return found


def _fitting(e: Expr, d: Dim, zero: bool, r: DimRange) -> DimRange | None:
    """The range without the sizes at its ends where e is not 0 (or, without `zero`, is below 1); None when none is left.

    Extents grow with sizes, so bisection finds the ends. Where e does not, a short range is tried size by size and a
    long one is left as it is.
    """

    def value(n: int) -> int:
        return affine.evaluate(e, {d.name: n})

    sizes = range(-(-r.lo // r.multiple) * r.multiple, r.hi + 1, r.multiple)
    probes = [value(n) for n in sizes[:: max(1, len(sizes) // PROBES)]]
    if probes in (sorted(probes), sorted(probes, reverse=True)):
        sign = 1 if probes[0] <= probes[-1] else -1
        low, high = (0.0, 0.0) if zero else (1.0, inf) if sign > 0 else (-inf, -1.0)
        first = bisect_left(sizes, low, key=lambda n: sign * value(n))
        good = sizes[first : bisect_right(sizes, high, key=lambda n: sign * value(n))]
    elif len(sizes) <= SCAN_LIMIT:
        fits = [n for n in sizes if (value(n) == 0 if zero else value(n) >= 1)]
        good = range(fits[0], fits[-1] + 1, r.multiple) if fits else range(0)
    else:
        return r
    return DimRange(good[0], good[-1], r.multiple) if good else None


def facts_of(constraints: Sequence[Constraint]) -> dict[Expr, Expr]:
    """Extents that a constraint makes equal to a simpler one (the left side of a constraint is the more
    complex).
    """
    facts: dict[Expr, Expr] = {}
    for c in constraints:
        right = facts.get(c.right, c.right)
        if c.left not in facts and c.left is not right:
            facts[c.left] = right
    return facts


def simplified(constraints: Sequence[Constraint]) -> tuple[Constraint, ...]:
    """Constraints without repeats and without those that another one, which pins an extent, makes trivial."""
    pinned = {c.left: c.right for c in constraints if c.right.constant is not None}

    def leaf(a: affine.Atom) -> Expr | None:
        return pinned.get(affine.as_expr(a))

    kept: dict[tuple[Expr, Expr], Constraint] = {}
    for c in constraints:
        implied = affine.rebuild(c.left, leaf) is affine.rebuild(c.right, leaf)
        if c.left in pinned or not implied:
            kept.setdefault((c.left, c.right), c)
    return tuple(kept.values())


def refined(
    before: Refinement,
    constraints: Sequence[Constraint],
    short: Sequence[tuple[Expr, str]],
    ranges: Mapping[str, DimRange],
    fixed: Mapping[str, bool],
) -> Refinement:
    """What the constraints of an import imply beyond what was known before it; `before` itself when nothing."""
    multiples = infer_multiples(constraints, ranges, fixed)
    if multiples:
        return _with_ranges(before, multiples, "multiple of {0.multiple}")
    narrowed = narrow(constraints, short, ranges, fixed)
    if narrowed:
        return _with_ranges(before, narrowed, "sizes {0}")
    facts = facts_of(constraints)
    if facts and not before.facts:
        return replace(before, facts=facts, kept=tuple(constraints))
    return before


def _with_ranges(before: Refinement, new: Mapping[str, tuple[DimRange, str]], form: str) -> Refinement:
    notes = tuple(f"{name}: {form.format(r)} (implied by {why})" for name, (r, why) in new.items())
    ranges = {**before.ranges, **{name: r for name, (r, _) in new.items()}}
    return replace(before, ranges=ranges, notes=before.notes + notes)
