"""A builder of small networks, and the comparison of a program with its optimised form."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tang_edge.ir import affine, interp, scalar
from tang_edge.ir.affine import Expr, as_expr, var
from tang_edge.ir.dtype import f32, i64
from tang_edge.ir.scalar import Scalar, const, idx, op, select
from tang_edge.ir.tensor import Array, Bind, Builder, Program
from tang_edge.rewrite.constants import is_prologue
from tang_edge.rewrite.pipeline import optimize


class Net(Builder):
    """Layers over tensors named by the caller; weights are random but the same in every run."""

    def weights(self, name: str, *shape: int) -> str:
        """A constant of standard normal numbers."""
        rng = np.random.default_rng(sum(map(ord, name)))
        return self.constant(name, rng.normal(size=shape).astype(np.float32))

    def shape(self, x: str) -> list[Expr]:
        """The extents of a tensor."""
        return list(self.types[x].shape)

    def map(self, name: str, fn: Callable[..., Scalar], *xs: str) -> str:
        """fn of the elements of tensors with the same shape."""
        return self.bind(name, self.shape(xs[0]), lambda *i: fn(*(self.read(x, i) for x in xs)))

    def channel(self, name: str, opname: str, x: str, c: str) -> str:
        """x <op> c[channel], channels on axis 1."""
        return self.bind(name, self.shape(x), lambda *i: op(opname, self.read(x, i), self.read(c, (i[1],))))

    def conv(self, name: str, x: str, out: int, k: int = 3, pad: int | None = None) -> str:
        """A convolution of stride 1 on [n, c, h, w] that keeps the size (by default)."""
        n, c, h, w = self.shape(x)
        p = k // 2 if pad is None else pad
        wt = self.weights(f"{name}.w", out, c.constant or 0, k, k)

        def body(b: affine.Var, o: affine.Var, y: affine.Var, z: affine.Var) -> Scalar:
            r = (var("c", c), var("k", k), var("l", k))
            row, col = as_expr(y) + as_expr(r[1]) - p, as_expr(z) + as_expr(r[2]) - p
            guard = (row, h - 1 - row, col, w - 1 - col)
            lift = self.read(x, (b, r[0], row, col), guard) * self.read(wt, (o, *r))
            return scalar.reduce(scalar.sum_of(f32), r, lift)

        return self.bind(name, (n, out, h + (2 * p - k + 1), w + (2 * p - k + 1)), body)

    def relu(self, name: str, x: str) -> str:
        """max(x, 0)."""
        return self.map(name, lambda v: op("max", v, const(0, f32)), x)

    def mean(self, name: str, x: str) -> str:
        """The mean over axes 2 and 3, kept."""
        n, c, h, w = self.shape(x)
        r = (var("h", h), var("w", w))
        area = (h * w).constant or 1
        total = lambda b, o: scalar.reduce(scalar.sum_of(f32), r, self.read(x, (b, o, *r)))  # noqa: E731
        return self.bind(name, (n, c, 1, 1), lambda b, o, y, z: total(b, o) * (1 / area))

    def concat(self, name: str, xs: Sequence[str], axis: int) -> str:
        """Tensors side by side, in the form that the importer makes."""
        shapes = [self.shape(x) for x in xs]
        ends = [affine.const(0)]
        for s in shapes:
            ends.append(ends[-1] + s[axis])
        shape = [ends[-1] if k == axis else e for k, e in enumerate(shapes[0])]

        def body(*i: affine.Var) -> Scalar:
            out: Scalar | None = None
            for k in reversed(range(len(xs))):
                own = as_expr(i[axis]) - ends[k]
                at = [own if a == axis else v for a, v in enumerate(i)]
                here = self.read(xs[k], at, (own, shapes[k][axis] - 1 - own))
                test = op("lt", idx(i[axis]), idx(ends[k + 1], i64))
                out = here if out is None else select(test, here, out)
            assert out is not None
            return out

        return self.bind(name, shape, body)


class Checked:
    """An optimised program that gave the same outputs as the original on random inputs."""

    def __init__(self, program: Program, seed: int = 0, rtol: float = 1e-9) -> None:
        rng = np.random.default_rng(seed)
        feeds = {i.name: _random(rng, i.type.dtype.numpy, i.type.shape) for i in program.inputs}
        self.program = optimize(program)
        want = interp.run(program, feeds, floats="f64")
        got = interp.run(self.program, feeds, floats="f64")
        for name, a in want.items():
            np.testing.assert_allclose(got[name], a, rtol=rtol, atol=rtol * 10, err_msg=name)
        prologue = is_prologue(self.program)
        self.steps: list[Bind] = [b for b in self.program.binds() if b.name not in prologue]
        self.prologue: list[Bind] = [b for b in self.program.binds() if b.name in prologue]


def _random(rng: np.random.Generator, dtype: object, shape: Sequence[Expr]) -> Array:
    sizes = [n.constant if n.constant is not None else 3 for n in shape]
    if np.issubdtype(np.dtype(dtype), np.integer):  # type: ignore[call-overload]
        return rng.integers(0, 100, sizes).astype(dtype)  # type: ignore[call-overload,no-any-return]
    return rng.normal(size=sizes).astype(dtype)  # type: ignore[call-overload,no-any-return]


@pytest.fixture
def net() -> Net:
    """An empty network with the input x: f32[1, 4, 8, 8]."""
    n = Net("net")
    n.input("x", f32, (1, 4, 8, 8))
    return n


@pytest.fixture
def checked() -> Callable[..., Checked]:
    """Optimise, compare with the interpreter, and hand back the result."""
    return Checked
