"""Dead code: binds, allocations and constants that no output depends on are dropped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tang_edge.ir.tensor import Bind, If, Item, Loop, Program
from tang_edge.rewrite.graph import tensors_read


def drop_dead(program: Program) -> Program:
    """The program without what its outputs and states do not need. Inputs stay: callers give them."""
    live = {t for _, t in program.outputs} | {s.output for s in program.states}
    items = _live_items(program.items, live)
    constants = tuple(c for c in program.constants if c.name in live)
    return replace(program, items=items, constants=constants)


def _live_items(items: Sequence[Item], live: set[str]) -> tuple[Item, ...]:
    """One sweep from the end: whatever a kept item reads becomes live."""
    kept: list[Item] = []
    for item in reversed(items):
        if isinstance(item, If):
            if live.isdisjoint(item.results):
                continue
            live.add(item.cond)
            kept.append(replace(item, then=_live_items(item.then, live), orelse=_live_items(item.orelse, live)))
        elif isinstance(item, Loop):
            if live.isdisjoint(item.results):
                continue
            live.update((*item.given, *(c.next for c in item.carried)))
            kept.append(replace(item, body=_live_items(item.body, live)))
        elif isinstance(item, Bind):
            if (item.store.tensor if item.store else item.name) in live or item.name in live:
                live.update(tensors_read(item.expr))
                kept.append(item)
        elif item.name in live:
            kept.append(item)
    return tuple(reversed(kept))
