"""Constants that hold one value everywhere become literals: bounds of Clip, scales of 1, zero points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tang_edge.ir import scalar
from tang_edge.ir.scalar import Const, Read, Scalar
from tang_edge.ir.tensor import Bind, Constant, Item, Program, map_items


def inline_literals(program: Program) -> Program:
    """Reads of one-valued constants replaced by the value (guarded reads too, when the fill is the same)."""
    values = {c.name: v for c in program.constants if (v := _value(c)) is not None}
    memo: dict[Scalar, Scalar] = {}

    def visit(x: Scalar) -> Scalar:
        if x not in memo:
            memo[x] = step(x)
        return memo[x]

    def step(x: Scalar) -> Scalar:
        if not any(r.tensor in values for r in scalar.reads(x)):
            return x
        if isinstance(x, Read) and x.tensor in values and x.view.fill in (None, values[x.tensor]):
            return values[x.tensor]
        return scalar.rebuild(x, visit)

    def one(item: Item) -> Sequence[Item]:
        return (replace(item, expr=visit(item.expr)),) if isinstance(item, Bind) else (item,)

    return program.with_items(map_items(program.items, one)) if values else program


def _value(c: Constant) -> Const | None:
    """The one value of a constant, compared bit for bit (zeros of both signs are two values)."""
    flat = np.ascontiguousarray(c.data).reshape(-1)
    if flat.size == 0:
        return None
    raw = flat.view(np.uint8).reshape(flat.size, -1)
    return scalar.const(flat[0].item(), c.type.dtype) if np.array_equal(raw, np.broadcast_to(raw[0], raw.shape)) else None
