"""Removes binds and constants that no output needs (shape arithmetic leaves some behind)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tang_edge.ir import scalar
from tang_edge.ir.tensor import Alloc, Bind, If, Item, Loop, Program


def pruned(program: Program) -> Program:
    """The program with only the items and constants that its outputs need."""
    live = {tensor for _, tensor in program.outputs}
    items = _keep(program.items, live)
    constants = tuple(c for c in program.constants if c.name in live)
    return replace(program, items=items, constants=constants)


def _keep(items: Sequence[Item], live: set[str]) -> tuple[Item, ...]:
    kept: list[Item] = []
    for item in reversed(items):
        if isinstance(item, If):
            if live.isdisjoint(item.results):
                continue
            item = replace(item, then=_keep(item.then, live), orelse=_keep(item.orelse, live))
            live.add(item.cond)
        elif isinstance(item, Loop):
            if live.isdisjoint(item.results):
                continue
            live.update((*item.given, *(c.next for c in item.carried)))
            item = replace(item, body=_keep(item.body, live))
        elif isinstance(item, Bind):
            target = item.store.tensor if item.store else item.name
            if target not in live:
                continue
            live.update(r.tensor for r in scalar.reads(item.expr))
        elif isinstance(item, Alloc) and item.name not in live:
            continue
        kept.append(item)
    return tuple(reversed(kept))
