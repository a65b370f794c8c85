"""Binds that read more tensors than a kernel can bind, divided.

    C = f(g(A, B, ...), Z)   ->   t = g(A, B, ...) ;  C = f(t, Z)

Fusion stays below the limit by itself; concatenations and sums of many tensors come from the model as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tang_edge.ir import affine, scalar
from tang_edge.ir.affine import Var
from tang_edge.ir.scalar import Get, Scalar
from tang_edge.ir.tensor import Bind, Item, Program, map_items
from tang_edge.rewrite.cost import nodes, op_count
from tang_edge.rewrite.decide import FusionLimits
from tang_edge.rewrite.graph import tensors_read


def divide(program: Program, limits: FusionLimits | None = None) -> Program:
    """No bind of the result reads more than `limits.tensors_read` tensors, wherever a part of it can stand alone."""
    most = (limits or FusionLimits()).tensors_read
    return program.with_items(map_items(program.items, lambda item: _divided(item, most)))


def _divided(item: Item, most: int) -> Sequence[Item]:
    if not isinstance(item, Bind):
        return (item,)
    made: list[Item] = []
    while len(tensors_read(item.expr)) > most:
        name = f"{item.name}|{len(made)}"
        found = _take(item.expr, item.axes, name, most)
        if found is None:
            break  # nothing of it stands alone: packing for a class that cannot bind so many says so
        expr, part = found
        made.append(replace(part, origin=item.origin))
        item = replace(item, expr=expr)
    return (*made, item)


def _take(x: Scalar, axes: Sequence[Var], name: str, most: int) -> tuple[Scalar, Bind] | None:
    """x with its best part replaced by a read of `name`, and the bind that makes that."""
    able = [n for n in nodes(x) if 1 < len(tensors_read(n)) <= most]
    if able:
        best = max(able, key=lambda n: (len(tensors_read(n)), -op_count(n), str(n)))
        used = tuple(a for a in axes if a in scalar.free(best))
        own = {a: Var(f"i{k}", a.extent) for k, a in enumerate(used)}
        body = scalar.substitute(best, {a: affine.as_expr(v) for a, v in own.items()})
        part = Bind(name, tuple(own.values()), body)
        return _replaced(x, best, scalar.read(name, used, best.dtype)), part
    for n in sorted((n for n in nodes(x) if isinstance(n, Get)), key=str):
        inner, lifts = scalar.opened(n.of)
        for k, lift in enumerate(lifts):
            found = _take(lift, (*axes, *inner), name, most)
            if found is not None:
                changed = (*lifts[:k], found[0], *lifts[k + 1 :])
                whole = Get(scalar.comprehension(inner, n.of.monoid, changed), n.k)
                return _replaced(x, n, whole), found[1]
    return None


def _replaced(x: Scalar, old: Scalar, new: Scalar) -> Scalar:
    """x with `new` for every occurrence of `old` outside comprehensions."""
    if x is old:
        return new
    return x if isinstance(x, Get) or old not in nodes(x) else scalar.rebuild(x, lambda y: _replaced(y, old, new))
