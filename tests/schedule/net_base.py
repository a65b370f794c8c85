"""What every random bind needs: names, weights, a tensor to go on from, an epilogue."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from tang_edge.ir.affine import Expr, Var
from tang_edge.ir.dtype import DType, f32, i8, u8
from tang_edge.ir.scalar import Scalar, const, op
from tang_edge.ir.tensor import Builder


@dataclass
class NetBase:
    """A builder that adds one random bind after the other."""

    r: random.Random
    b: Builder
    halves: bool = True
    count: int = 0

    def name(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"

    def weights(self, *shape: int, dt: DType = f32) -> str:
        rng = np.random.default_rng(self.r.randrange(1 << 30))
        data = rng.normal(size=shape) if dt.is_float else rng.integers(*_range(dt), shape)
        return self.b.constant(self.name("w"), np.asarray(data).astype(dt.numpy))

    def shape(self, x: str) -> list[Expr]:
        return list(self.b.types[x].shape)

    def pick(self, rank: int, dt: DType = f32) -> str | None:
        found = [t for t, ty in self.b.types.items() if len(ty.shape) == rank and ty.dtype is dt and not t.startswith("w")]
        return self.r.choice(found[-3:]) if found else None

    def epilogue(self, x: Scalar, at: tuple[Expr | Var, ...], channel: int, n: Expr) -> Scalar:
        """Bias by channel, an activation, and sometimes a product with an own element."""
        r = self.r
        c = n.constant
        if c is not None and r.random() < 0.6:
            x = x + self.b.read(self.weights(c), [at[channel]])
        return self.activation(x)

    def activation(self, x: Scalar) -> Scalar:
        match self.r.randrange(7):
            case 0:
                return op("max", x, const(0, f32))
            case 1:
                return op("min", op("max", x, const(0, f32)), const(6, f32))
            case 2:
                return x * (1 / (1 + op("exp", -x)))
            case 3:
                return op("tanh", x)
            case 4:
                return x * (op("erf", x * 0.70710678) + 1) * 0.5
            case _:
                return x


def _range(dt: DType) -> tuple[int, int]:
    if dt in (i8, u8):
        lo, hi = dt.limits()
        return lo, hi + 1
    return -3, 12  # indices that miss, too
