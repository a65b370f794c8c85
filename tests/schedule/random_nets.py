"""Random programs for schedules: chains of binds as fusion makes them, over shapes that fit no tile.

Every program has two symbolic dimensions, h and w, and the tensors of its chain have the shape [n, c, h', w'], [m, k] and the
like; intermediates get the layouts that the scheduler likes, since only the last ones are outputs.
"""

from __future__ import annotations

import random

from net_folds import Folds
from net_maps import Maps
from net_products import Products

from tang_edge.ir import affine
from tang_edge.ir.affine import Expr
from tang_edge.ir.dtype import f32
from tang_edge.ir.tensor import Builder, Program, TensorType

CHANNELS = (1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 24, 33)
KINDS = ("conv", "conv", "depthwise", "pool", "matmul", "batched", "reduce", "softmax", "argmax", "elementwise", "gather")
KINDS += ("concat", "quantised", "slices", "transpose", "mean", "cumsum", "resize", "narrow", "upsample", "two_sums")


class Net(Products, Folds, Maps):
    """All kinds of binds."""


def make(seed: int, steps: int = 5, kind: str | None = None, halves: bool = True) -> Program:
    """The program of a seed: a few random binds, the last ones are outputs."""
    r = random.Random(seed)
    b = Builder(f"random{seed}")
    multiple = r.choice([1, 1, 1, 2, 4])
    h, w = b.dim("h", multiple, 40, multiple), b.dim("w", 1, 40)
    n: int | Expr = r.choice([1, 1, 2])
    b.input("x", f32, [n, r.choice(CHANNELS), h, w] if r.random() < 0.8 else [n, r.choice(CHANNELS), r.choice([6, 13]), w])
    b.input("m", f32, [r.choice([h, w, h, w, 7]), r.choice(CHANNELS)])
    b.input("s", f32, [h, w])
    net = Net(r, b, halves)
    made: list[str] = []
    for _ in range(20 * steps):
        if len(made) >= steps:
            break
        new = getattr(net, kind if kind and not made else r.choice(KINDS))()
        if new is not None and _small(b.types[new]):
            made.append(new)
    for name in dict.fromkeys([made[-1], *r.sample(made, min(2, len(made)))]):
        b.output(name)
    return b.build()


def _small(t: TensorType) -> bool:
    n = 1
    for e in t.shape:
        n *= affine.bounds(e)[1]
    return n <= 1 << 24
