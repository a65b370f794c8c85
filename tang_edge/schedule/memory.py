"""The buffer plan: which tensor lives where in the arena, sizes as expressions over dimensions.

Two tensors share a slot when their lives do not overlap. A slot is as large as its largest tenant; offsets are the sums of
the slots before. The assignment itself does not depend on the sizes of a run (greedy, largest typical size first), so one
plan serves all sizes and an offset is an expression that every runtime evaluates alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tang_edge.ir.affine import Expr, maximum, nonneg
from tang_edge.schedule.addresses import Placed
from tang_edge.schedule.analysis import typical


@dataclass(frozen=True, slots=True)
class Life:
    """The steps from which a tensor is written to the last that reads it, inclusive."""

    tensor: str
    first: int
    last: int


def lifetimes(
    writes: Sequence[Sequence[str]],
    reads: Sequence[Sequence[str]],
    inputs: Sequence[str],
    outputs: Sequence[str],
    kept: Sequence[str] = (),
) -> list[Life]:
    """Lives of all tensors of a list of steps. Inputs live from before the first step, outputs to after the last.

    `kept` are inputs that hold a state between runs: they live all the time, so that nothing shares their slots.
    """
    first: dict[str, int] = dict.fromkeys(inputs, -1)
    last: dict[str, int] = dict.fromkeys(inputs, -1)
    for k, names in enumerate(writes):
        for n in names:
            first.setdefault(n, k)
            last[n] = max(last.get(n, k), k)
    for k, names in enumerate(reads):
        for n in names:
            if n in first:
                last[n] = max(last[n], k)
    for n in (*outputs, *kept):
        last[n] = len(writes)
    return [Life(n, first[n], last[n]) for n in first]


def assign_slots(lives: Sequence[Life], placed: Mapping[str, Placed]) -> tuple[dict[str, int], list[Expr]]:
    """The slot of each tensor and the size of each slot in bytes."""
    ranked = sorted(lives, key=lambda x: (-typical(placed[x.tensor].bytes()), x.first, x.tensor))
    tenants: list[list[Life]] = []
    slot_of: dict[str, int] = {}
    for life in ranked:
        free = [k for k, t in enumerate(tenants) if all(life.last < o.first or o.last < life.first for o in t)]
        k = free[0] if free else len(tenants)
        if not free:
            tenants.append([])
        tenants[k].append(life)
        slot_of[life.tensor] = k
    sizes: list[Expr] = []
    for group in tenants:
        sizes.append(greatest([placed[life.tensor].bytes() for life in group]))
    return slot_of, sizes


def greatest(es: Sequence[Expr]) -> Expr:
    """max of some expressions, without those that another one is proved to dominate."""
    kept: list[Expr] = []
    for e in dict.fromkeys(es):
        if not any(nonneg(f - e) for f in kept):
            kept = [f for f in kept if not nonneg(e - f)] + [e]
    size = kept[0]
    for e in kept[1:]:
        size = maximum(size, e)
    return size
