"""Canonical names: result axes are i0, i1, ... in every bind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tang_edge.ir import affine, scalar
from tang_edge.ir.tensor import Bind, Item, Program, Store, map_items, out_axes


def canonical_axes(program: Program) -> Program:
    """Every bind's axes renamed to i0, i1, ... (its store coordinates with them)."""

    def one(item: Item) -> Sequence[Item]:
        return (rename(item),) if isinstance(item, Bind) else (item,)

    return program.with_items(map_items(program.items, one))


def rename(bind: Bind) -> Bind:
    """One bind with canonical axes; an axis of extent 1 is 0 wherever it is used."""
    axes = out_axes([a.extent for a in bind.axes])
    mapping = {
        a: affine.const(0) if a.extent.constant == 1 else affine.as_expr(b) for a, b in zip(bind.axes, axes, strict=True)
    }
    store = bind.store and Store(bind.store.tensor, tuple(affine.substitute(c, mapping) for c in bind.store.coords))
    return replace(bind, axes=axes, expr=scalar.substitute(bind.expr, mapping), store=store)
