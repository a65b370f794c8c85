"""`can_fuse`: is it legal, and worth it, to compute a producer inside its readers. `inline` substitutes.

Forms of a producer P and what is asked of its readers
  element-wise P   epilogue  one reader, read outside reductions, no element more often than P has elements
                   lift      read in a reduction: each element needed once in total, or P is a cast
                   again     several readers or a broadcast: when computing again beats storing and loading
  reduction P      epilogue  one reader without a reduction, each element read at one place by one point
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tang_edge.ir import scalar
from tang_edge.ir.scalar import Const, Op, Read
from tang_edge.ir.tensor import Bind
from tang_edge.rewrite.address import divides, invert, is_bijection
from tang_edge.rewrite.concat import is_concat
from tang_edge.rewrite.cost import COST, Site, nodes, op_count, point_cost, sites_of, size
from tang_edge.rewrite.graph import tensors_read
from tang_edge.rewrite.inline import is_gather


@dataclass(frozen=True, slots=True)
class FusionLimits:
    """What a bind may hold. Defaults: WebGPU guarantees 8 storage buffers a stage; one is written."""

    tensors_read: int = 7
    operators: int = 160


@dataclass(frozen=True, slots=True)
class Decision:
    """The verdict and its reason. `reaxis`: the reader must take the producer's axes (`inline.reaxis`)."""

    fuse: bool
    reason: str
    reaxis: bool = False

    def __bool__(self) -> bool:
        return self.fuse


def yes(reason: str) -> Decision:
    """Fuse, because."""
    return Decision(True, reason)


def no(reason: str) -> Decision:
    """Do not fuse, because."""
    return Decision(False, reason)


def has_reduction(bind: Bind) -> bool:
    """True when the bind holds a comprehension."""
    return bool(scalar.comprehensions(bind.expr))


def within_limits(producer: Bind, consumer: Bind, limits: FusionLimits) -> bool:
    """The bind that fusion would make reads few enough tensors and stays readable."""
    tensors = set(tensors_read(consumer.expr)) - {producer.name} | set(tensors_read(producer.expr))
    return len(tensors) <= limits.tensors_read and op_count(producer.expr) + op_count(consumer.expr) <= limits.operators


def can_fuse(producer: Bind, readers: Sequence[Bind], limits: FusionLimits, *, again: bool) -> Decision:
    """Whether the producer's expression may and should replace every read of it (all readers or none).

    `again` allows computing elements more than once; it is asked last, after fusion that is always a gain.
    """
    if not readers:
        return no("nothing reads it")
    if not all(within_limits(producer, r, limits) for r in readers):
        return no(f"more than {limits.tensors_read} tensors read")
    if has_reduction(producer):
        return _reduction(producer, readers)
    found = [(r, s) for r in readers for s in sites_of(r.expr, producer.name)]
    if any(is_concat(r.expr) for r in readers) and not again:
        return no("a piece of a concatenation: decided when it is known how that is stored")
    outside = len(readers) == 1 and all(not s.bound and not s.in_coordinate for _, s in found)
    if outside and sum(size(r.axes) for r, _ in found) <= size(producer.axes):
        return yes("element-wise, each element used once")
    return _again(producer, found) if again else no("would compute elements more than once")


def _reduction(producer: Bind, readers: Sequence[Bind]) -> Decision:
    if len(readers) > 1:
        return no("a reduction with several readers is never computed twice")
    consumer = readers[0]
    if has_reduction(consumer):
        return no("the reader holds a reduction")
    if is_concat(consumer.expr):
        return no("a piece of a concatenation is stored in place")
    found = sites_of(consumer.expr, producer.name)
    if len(found) != 1 or found[0].in_coordinate or found[0].read.view.guard:
        return no("read at more than one place, or under a guard")
    view = found[0].read.view
    if is_gather(found[0].read) or not is_bijection(view.coords, producer.type.shape, consumer.axes):
        return no("some elements would be computed more than once")
    if any(divides(e) for e in view.coords):
        if consumer.store is not None or invert(view.coords, consumer.axes, producer.axes) is None:
            return no("the reduction would run on axes that need division")
        return Decision(True, "epilogue of a reduction, stored through the inverse of the reader's view", True)
    return yes("epilogue of a reduction, each element used once")


def _again(producer: Bind, found: Sequence[tuple[Bind, Site]]) -> Decision:
    """Compare computing at every site with storing once and loading at every site.

    Inside a reduction the operand should be a plain load: only recomputation that is free is accepted there.
    """
    elements = size(producer.axes)
    in_lifts: dict[str, float] = {}
    for r, s in found:
        if s.bound:
            in_lifts[r.name] = in_lifts.get(r.name, 0) + size(r.axes) * size(s.bound)
    if max(in_lifts.values(), default=0) > elements * 1.001 and not _nearly_free(producer):
        return no("an operand of a reduction that uses each element many times is stored once")
    evaluations = sum(size(r.axes) * size(s.bound) for r, s in found)
    cost = point_cost(producer.expr)
    stored = elements * (cost + COST.store) + evaluations * COST.load + COST.launch
    if evaluations * cost <= stored:
        return yes(f"computing again ({evaluations * cost:.0f}) is cheaper than storing ({stored:.0f})")
    return no(f"computing again ({evaluations * cost:.0f}) is dearer than storing ({stored:.0f})")


def _nearly_free(producer: Bind) -> bool:
    """At most one read and one cast, or a select between a read and a literal."""
    inside = nodes(producer.expr)
    ops = [n for n in inside if isinstance(n, Op)]
    reads = [n for n in inside if isinstance(n, Read)]
    if len(reads) > 1 or any(is_gather(r) for r in reads):
        return False
    return all(n.name == "cast" for n in ops) and not any(isinstance(n, Const) for n in inside)
