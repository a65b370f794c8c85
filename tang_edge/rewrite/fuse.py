"""Fusion by worklists: what is always a gain first, to exhaustion, then recomputation where it pays.

    always   element-wise producers into their only reader; reductions take their only reader as epilogue
    again    cheap producers into several readers, broadcasts, reductions that use each element once

Producers are taken from the end of the program, so that when two reductions meet (a residual sum) the later
one takes the sum as its epilogue and reads the other.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from tang_edge.ir.tensor import Program
from tang_edge.rewrite.concat import is_concat
from tang_edge.rewrite.constants import is_prologue
from tang_edge.rewrite.decide import Decision, FusionLimits, can_fuse, has_reduction, no
from tang_edge.rewrite.graph import Graph, tensors_read
from tang_edge.rewrite.inline import reaxis, substitute


def fuse(program: Program, limits: FusionLimits | None = None) -> Program:
    """The program with producers substituted into readers where `can_fuse` says so."""
    work = _Fusion(Graph(program), limits or FusionLimits())
    work.run(list(work.graph.binds))
    return work.graph.program()


def reasons(program: Program, limits: FusionLimits | None = None) -> dict[str, Decision]:
    """Why each bind of an optimised program is not inside its readers (for `explain`), by bind name."""
    work = _Fusion(Graph(program), limits or FusionLimits())
    return {b.name: work.decide(slot, again=True) for slot, b in work.graph.binds.items()}


class _Fusion:
    def __init__(self, graph: Graph, limits: FusionLimits) -> None:
        self.graph = graph
        self.limits = limits
        self.prologue = is_prologue(graph.source)

    def run(self, slots: Iterable[int]) -> None:
        self.always(slots)
        queue = [-s for s in self.graph.binds]
        heapq.heapify(queue)
        while queue:
            slot = -heapq.heappop(queue)
            if slot in self.graph.binds and self.try_fuse(slot, again=True):
                touched = self.touched(slot)
                self.graph.remove(slot)
                self.always(touched)
                for t in touched:
                    heapq.heappush(queue, -t)

    def always(self, slots: Iterable[int]) -> None:
        """Element-wise producers first: x * sigmoid(x) must be one reader of x before x can take it."""
        for reductions in (False, True):
            slots = self.sweep(slots, reductions)

    def sweep(self, slots: Iterable[int], reductions: bool) -> set[int]:
        queue = [-s for s in slots]
        seen = set(-s for s in queue)
        heapq.heapify(queue)
        while queue:
            slot = -heapq.heappop(queue)
            if slot not in self.graph.binds or has_reduction(self.graph.binds[slot]) != reductions:
                continue
            if self.try_fuse(slot, again=False):
                touched = self.touched(slot)
                self.graph.remove(slot)
                seen |= touched
                for t in touched:
                    heapq.heappush(queue, -t)
        return seen

    def touched(self, slot: int) -> set[int]:
        """Slots whose decision may change now that `slot` is in its readers: what it read, and they."""
        bind = self.graph.binds[slot]
        made = (self.graph.producer(t) for t in tensors_read(bind.expr))
        return {s for s in made if s is not None} | set(self.homes)

    def try_fuse(self, slot: int, *, again: bool) -> bool:
        graph, bind = self.graph, self.graph.binds[slot]
        decision = self.decide(slot, again=again)
        if not decision:
            return False
        self.homes = graph.readers(bind.name)
        if decision.reaxis:
            alloc, fused = reaxis(bind, graph.binds[self.homes[0]])
            graph.insert_before(self.homes[0], alloc)
            graph.replace(self.homes[0], fused)
            return True
        for r in self.homes:
            graph.replace(r, substitute(bind, graph.binds[r]))
        return True

    def decide(self, slot: int, *, again: bool) -> Decision:
        graph, bind = self.graph, self.graph.binds[slot]
        if bind.store is not None or graph.is_pinned(bind.name):
            return no("its tensor must exist")
        readers = graph.readers(bind.name)
        if not all(graph.visible(slot, r) for r in readers):
            return no("read outside its branch")
        if has_reduction(bind) and any(graph.enters_loop(slot, r) for r in readers):
            return no("a loop would repeat its reduction")
        if bind.name in self.prologue and any(graph.binds[r].name not in self.prologue for r in readers):
            return no("runs once, when the bundle is loaded")
        if is_concat(bind.expr) and self.stored_in_place(slot):
            return no("a concatenation whose pieces are written in place")
        decision = can_fuse(bind, [graph.binds[r] for r in readers], self.limits, again=again)
        if decision.reaxis and (graph.scopes[readers[0]] or graph.scopes[slot]):
            return no("only outside branches: the results of a branch are binds")
        return decision

    def stored_in_place(self, slot: int) -> bool:
        """A piece is made by a reduction, or the concatenation is read by a reduction or several binds."""
        graph, bind = self.graph, self.graph.binds[slot]
        readers = graph.readers(bind.name)
        if len(readers) != 1 or has_reduction(graph.binds[readers[0]]):
            return True
        made = (graph.producer(t) for t in tensors_read(bind.expr))
        return any(s is not None and has_reduction(graph.binds[s]) for s in made)
