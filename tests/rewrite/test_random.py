"""Random programs: every pass keeps the interpreter's answer, the result is verified, and it does not depend
on history.
"""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tang_edge.ir import interp, scalar
from tang_edge.ir.affine import Var, as_expr, var
from tang_edge.ir.dtype import f32, i64
from tang_edge.ir.scalar import Scalar, const, idx, op, select
from tang_edge.ir.tensor import Builder, Program
from tang_edge.rewrite.pipeline import optimize

SHAPES = [(4, 6), (6, 4), (24,), (2, 2, 6)]
UNARY = ["neg", "abs", "exp", "tanh", "relu", "half", "shift", "twice"]
BINARY = ["add", "sub", "mul", "max"]


def unary(name: str, x: Scalar) -> Scalar:
    match name:
        case "relu":
            return op("max", x, const(0, f32))
        case "half":
            return x / 2
        case "shift":
            return x + 0.5
        case "twice":
            return (x * 2) * 1
        case "exp":
            return op("exp", op("min", x, const(3, f32)))
        case _:
            return op(name, x)


class Random:
    """Draws a program of a few layers over tensors of 24 elements."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw, self.b, self.count = draw, Builder("random"), 0
        self.tensors: dict[str, tuple[int, ...]] = {}
        rng = np.random.default_rng(draw(st.integers(0, 9)))
        for name, shape in (("x", (4, 6)), ("z", (2, 2, 6))):
            self.tensors[self.b.input(name, f32, shape)] = shape
        for name, shape in (("w", (6, 4)), ("c", (24,))):
            self.tensors[self.b.constant(name, rng.normal(size=shape).astype(np.float32))] = shape

    def pick(self, shape: tuple[int, ...] | None = None) -> str:
        fitting = [t for t, s in self.tensors.items() if shape in (None, s)]
        return self.draw(st.sampled_from(fitting))

    def add(self, shape: tuple[int, ...], body: object) -> None:
        self.count += 1
        self.tensors[self.b.bind(f"t{self.count}", shape, body)] = shape  # type: ignore[arg-type]

    def step(self) -> None:
        x = self.pick()
        shape = self.tensors[x]
        kind = self.draw(st.sampled_from(["unary", "binary", "reshape", "pad", "reduce", "matmul", "concat", "flip"]))
        getattr(self, kind)(x, shape)

    def unary(self, x: str, shape: tuple[int, ...]) -> None:
        name = self.draw(st.sampled_from(UNARY))
        self.add(shape, lambda *i: unary(name, self.b.read(x, i)))

    def binary(self, x: str, shape: tuple[int, ...]) -> None:
        y, name = self.pick(shape), self.draw(st.sampled_from(BINARY))
        self.add(shape, lambda *i: op(name, self.b.read(x, i), self.b.read(y, i)))

    def reshape(self, x: str, shape: tuple[int, ...]) -> None:
        new = self.draw(st.sampled_from(SHAPES))

        def body(*i: Var) -> Scalar:
            address = as_expr(0)
            for a in i:
                address = address * a.extent + as_expr(a)
            at = []
            for n in reversed(shape):
                at.append(address % n)
                address = address // n
            return self.b.read(x, at[::-1])

        self.add(new, body)

    def pad(self, x: str, shape: tuple[int, ...]) -> None:
        by, fill = self.draw(st.integers(-2, 2)), self.draw(st.sampled_from([0.0, 1.5]))

        def body(*i: Var) -> Scalar:
            last = as_expr(i[-1]) + by
            return self.b.read(x, [*i[:-1], last], (last, shape[-1] - 1 - last), fill)

        self.add(shape, body)

    def reduce(self, x: str, shape: tuple[int, ...]) -> None:
        monoid = self.draw(st.sampled_from([scalar.sum_of(f32), scalar.max_of(f32)]))
        r = var("r", shape[-1])

        def body(*i: Var) -> Scalar:
            return self.b.read(x, i) * 0.5 + scalar.reduce(monoid, (r,), self.b.read(x, (*i[:-1], r)))

        self.add(shape, body)

    def matmul(self, x: str, shape: tuple[int, ...]) -> None:
        if shape != (4, 6):
            return
        y, r = self.pick((6, 4)), var("r", 6)

        def body(i: Var, j: Var) -> Scalar:
            product = self.b.read(x, (i, r)) * self.b.read(y, (r, as_expr(j) % 4))
            return scalar.reduce(scalar.sum_of(f32), (r,), product) * 0.25

        self.add((4, 6), body)

    def concat(self, x: str, shape: tuple[int, ...]) -> None:
        y, cut = self.pick(shape), self.draw(st.integers(1, shape[0] - 1))

        def body(*i: Var) -> Scalar:
            first = as_expr(i[0])
            a = self.b.read(x, i, (cut - 1 - first,))
            b = self.b.read(y, [first - cut, *i[1:]], (first - cut,))
            return select(op("lt", idx(first), const(cut, i64)), a, b)

        self.add(shape, body)

    def flip(self, x: str, shape: tuple[int, ...]) -> None:
        self.add(shape, lambda *i: self.b.read(x, [shape[0] - 1 - as_expr(i[0]), *i[1:]]))


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """A program of up to 12 layers with one to three outputs."""
    r = Random(draw)
    for _ in range(draw(st.integers(1, 12))):
        r.step()
    made = [t for t in r.tensors if t.startswith("t")] or ["x"]
    for name in dict.fromkeys([made[-1], *draw(st.lists(st.sampled_from(made), max_size=2))]):
        r.b.output(name)
    return r.b.build()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(programs())
def test_every_pass_keeps_the_answer(program: Program) -> None:
    rng = np.random.default_rng(0)
    feeds = {i.name: rng.normal(size=[n.constant or 1 for n in i.type.shape]).astype(np.float32) for i in program.inputs}
    want = interp.run(program, feeds, floats="f64")

    def observe(step: object, before: Program, after: Program) -> None:
        got = interp.run(after, feeds, floats="f64")
        for name, a in want.items():
            np.testing.assert_allclose(got[name], a, rtol=1e-5, atol=1e-5, err_msg=f"{step}")

    optimize(program, observe=observe)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(programs())
def test_the_result_does_not_depend_on_what_ran_before(program: Program) -> None:
    first = optimize(program)
    for _ in range(7):
        scalar.fresh(1)
    again = optimize(program)
    assert [(b.name, b.axes, b.store) for b in first.binds()] == [(b.name, b.axes, b.store) for b in again.binds()]
    assert all(a.expr is b.expr for a, b in zip(first.binds(), again.binds(), strict=True))
