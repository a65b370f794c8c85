"""Loops made ready for a schedule: what a loop carries becomes binds, so that a loop is nothing but steps that repeat.

    loop n : h = h0 -> h1                alloc h
      bind h1 = ...            becomes   bind "h|start" = h0 -> h
    end                                  loop n :
                                           bind h1 = ...
                                           bind "h|turn" = h1 -> h
                                         end

The loop writes h again and again, which only the schedule understands: the result is no program to verify.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tang_edge.ir import affine, scalar
from tang_edge.ir.tensor import Alloc, Bind, If, Item, Loop, Program, Store, TensorType, bind


def explicit_carries(program: Program) -> Program:
    """The program with every carried tensor bound before its loop and at the end of its body."""
    counts = {
        c.name: int(np.reshape(c.data, -1)[0]) for c in program.constants if c.data.size == 1 and c.data.dtype.kind == "i"
    }
    return program.with_items(tuple(_items(program.items, program.types(), counts)))


def _items(items: Sequence[Item], types: Mapping[str, TensorType], counts: Mapping[str, int]) -> Iterator[Item]:
    for item in items:
        if isinstance(item, If):
            then, orelse = (tuple(_items(side, types, counts)) for side in (item.then, item.orelse))
            yield replace(item, then=then, orelse=orelse)
        elif isinstance(item, Loop):
            yield from (Alloc(c.name, types[c.name]) for c in item.carried)
            yield from (_copy(c.name, "start", c.initial, types, item) for c in item.carried)
            last = (_copy(c.name, "turn", c.next, types, item) for c in item.carried)
            trip = item.trip
            if isinstance(trip, str) and trip in counts:
                trip = affine.const(max(0, counts[trip]))
            yield replace(item, trip=trip, carried=(), body=(*_items(item.body, types, counts), *last))
        else:
            yield item


def _copy(name: str, when: str, source: str, types: Mapping[str, TensorType], loop: Loop) -> Bind:
    """name[i...] = source[i...]."""
    t = types[name]
    made = bind(f"{name}|{when}", t.shape, lambda *axes: scalar.read(source, axes, t.dtype), loop.origin)
    return replace(made, store=Store(name, tuple(map(affine.as_expr, made.axes))))
