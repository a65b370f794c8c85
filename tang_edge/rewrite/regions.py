"""Concatenation in place: the pieces are written where they belong, nothing is copied that was just computed.

    cat = select(i < 4, A[i], B[i - 4])
    ->   alloc cat ; A writes cat[i] ; B writes cat[4 + i] ; other readers of A read cat[i]

A piece that is a bind of its own stores into its region; any other piece (an input, an output, a view,
arithmetic) gets a bind that computes it into its region. Outer concatenations are taken first, so that nested
ones compose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tang_edge.ir import affine, scalar
from tang_edge.ir.affine import Var
from tang_edge.ir.scalar import Read
from tang_edge.ir.tensor import Alloc, Bind, If, Item, Loop, Program, Store
from tang_edge.rewrite.address import invert
from tang_edge.rewrite.concat import Concat, concat_of
from tang_edge.rewrite.constants import is_prologue
from tang_edge.rewrite.cost import COST, size
from tang_edge.rewrite.decide import FusionLimits
from tang_edge.rewrite.graph import Graph, merged_origins, tensors_read
from tang_edge.rewrite.inline import replace_reads
from tang_edge.rewrite.simplify import simplify, simplify_bind


def store_in_place(program: Program) -> Program:
    """Every concatenation worth it written region by region."""
    graph = Graph(program)
    prologue = is_prologue(program)
    for slot in sorted(graph.binds, reverse=True):
        bind = graph.binds[slot]
        found = concat_of(bind.expr)
        if found is not None and bind.name not in prologue and not _branch_result(graph, slot):
            _Concatenation(graph, slot, found, prologue).rewrite()
    changed = graph.program()
    return changed.with_items(sink_allocations(changed.items))


def sink_allocations(items: Sequence[Item]) -> tuple[Item, ...]:
    """Every allocation moved to just before the first item that mentions it: its life starts there."""
    waiting: dict[str, Alloc] = {}
    out: list[Item] = []
    for item in items:
        if isinstance(item, Alloc):
            waiting[item.name] = item
            continue
        out.extend(waiting.pop(name) for name in mentioned(item) if name in waiting)
        if isinstance(item, If):
            then, orelse = sink_allocations(item.then), sink_allocations(item.orelse)
            item = replace(item, then=then, orelse=orelse)
        elif isinstance(item, Loop):
            item = replace(item, body=sink_allocations(item.body))
        out.append(item)
    return (*out, *waiting.values())


def mentioned(item: Item) -> tuple[str, ...]:
    """Tensors that an item reads or stores into, branches included."""
    if isinstance(item, If):
        return (item.cond, *(n for i in (*item.then, *item.orelse) for n in mentioned(i)))
    if isinstance(item, Loop):
        return (*item.given, *(n for i in item.body for n in mentioned(i)))
    if isinstance(item, Bind):
        return (*tensors_read(item.expr), *((item.store.tensor,) if item.store else ()))
    return ()


def _branch_result(graph: Graph, slot: int) -> bool:
    """Inside a branch a pinned name must stay a bind of that branch."""
    return bool(graph.scopes[slot]) and graph.is_pinned(graph.binds[slot].name)


class _Concatenation:
    def __init__(self, graph: Graph, slot: int, concat: Concat, prologue: frozenset[str]) -> None:
        self.graph, self.slot, self.prologue = graph, slot, prologue
        self.bind = graph.binds[slot]
        self.target = self.bind.store.tensor if self.bind.store else self.bind.name
        self.at = concat.axis
        self.parts = [self.part(k, concat) for k in range(len(concat.pieces))]

    def part(self, k: int, concat: Concat) -> Bind:
        """Piece k as a bind over its own region, with the store that puts it there."""
        piece = concat.pieces[k]
        axis = Var(concat.axis.name, piece.end - piece.start)
        shift = {concat.axis: affine.as_expr(axis) + piece.start}
        axes = tuple(axis if a is concat.axis else a for a in self.bind.axes)
        own = self.bind.store.coords if self.bind.store else tuple(map(affine.as_expr, self.bind.axes))
        store = Store(self.target, tuple(affine.substitute(c, shift) for c in own))
        expr = simplify(scalar.substitute(piece.value, shift))
        return simplify_bind(Bind(f"{self.bind.name}.{k}", axes, expr, store, self.bind.origin))

    def rewrite(self) -> None:
        """Replace the concatenation by its parts, if some part is in place or selecting costs more."""
        places = [self.place(p) for p in self.parts]
        taken: dict[int, int] = {}
        for k, s in enumerate(places):
            if s is not None and s not in taken.values():
                taken[k] = s
        if not taken and not self.chain_is_dear() and len(tensors_read(self.bind.expr)) <= FusionLimits().tensors_read:
            return
        if self.bind.store is None:
            scope = self.graph.scopes[self.slot]
            first = min(s for s, place in self.graph.scopes.items() if place == scope)
            self.graph.insert_before(first, Alloc(self.bind.name, self.bind.type))
        for k, p in enumerate(self.parts):
            if k not in taken:
                self.graph.insert_before(self.slot, p)
        self.graph.remove(self.slot)
        for k, s in taken.items():
            self.move(s, self.parts[k])

    def place(self, part: Bind) -> int | None:
        """The slot of the bind whose whole tensor this part is, when it may write elsewhere."""
        r = part.expr
        if not isinstance(r, Read) or r.view.guard or r.tensor in self.prologue or self.graph.is_pinned(r.tensor):
            return None
        slot = self.graph.producer(r.tensor)
        if slot is None or self.graph.scopes[slot] != self.graph.scopes[self.slot]:
            return None
        if invert(r.view.coords, part.axes, self.graph.binds[slot].axes) is None:
            return None
        return slot if all(self.graph.visible(slot, x) for x in self.graph.readers(r.tensor)) else None

    def move(self, slot: int, part: Bind) -> None:
        """The producer stores into the region, and whoever else reads it reads the region."""
        old = self.graph.binds[slot]
        assert part.store is not None and isinstance(part.expr, Read)
        where = invert(part.expr.view.coords, part.axes, old.axes)
        assert where is not None, "place() checked that the view can be inverted"
        store = Store(part.store.tensor, tuple(affine.substitute(c, where) for c in part.store.coords))
        view = replace(old, expr=scalar.read(store.tensor, store.coords, old.expr.dtype))
        for r in self.graph.readers(old.name):
            reader = self.graph.binds[r]
            expr = replace_reads(reader.expr, {old.name: view})
            self.graph.replace(r, simplify_bind(replace(reader, expr=expr)))
        origin = merged_origins(old.origin, self.bind.origin)
        self.graph.replace(slot, replace(old, store=store, origin=origin))

    def chain_is_dear(self) -> bool:
        """One bind that selects among n pieces costs more than n binds without a test."""
        n = len(self.parts)
        return size(self.bind.axes) * 2 * n > COST.launch * (n - 1)
