"""Other reductions. Each method gives the new tensor, or None."""

from __future__ import annotations

from net_base import NetBase

from tang_edge.ir import scalar
from tang_edge.ir.affine import Expr, Var, as_expr, var
from tang_edge.ir.dtype import f32
from tang_edge.ir.scalar import Scalar, cast, idx, op


class Folds(NetBase):
    """Other reductions."""

    def pool(self) -> str | None:
        x = self.pick(4)
        if x is None:
            return None
        r, (n, c, h, w) = self.r, self.shape(x)
        k, s = r.choice([2, 3]), r.choice([1, 2, 3])
        greatest = r.random() < 0.6
        m, fill = (scalar.max_of(f32), float("-inf")) if greatest else (scalar.sum_of(f32), 0.0)

        def body(i: Var, o: Var, y: Var, z: Var) -> Scalar:
            a = (var("k", k), var("l", k))
            row, col = as_expr(y) * s + as_expr(a[0]), as_expr(z) * s + as_expr(a[1]) - 1
            guard = (h - 1 - row, col, w - 1 - col)
            v = scalar.reduce(m, a, self.b.read(x, (i, o, row, col), guard, fill))
            return v if greatest else v * (1 / (k * k))

        return self.b.bind(self.name("pool"), [n, c, (h - 1) // s + 1, (w - 1) // s + 1], body)

    def _reduce(self, m: scalar.Monoid, axes: list[int], x: str, then: object = None) -> str:
        shape = self.shape(x)
        kept = [k for k in range(len(shape)) if k not in axes]

        def body(*i: Var) -> Scalar:
            at: list[Expr | Var] = [as_expr(0)] * len(shape)
            r = [var(f"a{k}", shape[k]) for k in axes]
            for k, v in zip(axes, r, strict=True):
                at[k] = v
            for k, v in zip(kept, i, strict=True):
                at[k] = v
            x_at = self.b.read(x, at)
            return scalar.reduce(m, r, x_at if then is None else then(x_at))  # type: ignore[operator]

        return self.b.bind(self.name("reduce"), [shape[k] for k in kept], body)

    def reduce(self) -> str | None:
        x = self.pick(self.r.choice([2, 4]))
        if x is None:
            return None
        rank = len(self.shape(x))
        axes = self.r.sample(range(rank), self.r.randrange(1, rank + 1))
        m = self.r.choice([scalar.sum_of, scalar.max_of, scalar.min_of])(f32)
        squared = self.r.random() < 0.3
        return self._reduce(m, axes, x, (lambda v: v * v * 0.1) if squared else None)

    def mean(self) -> str | None:
        x = self.pick(4)
        if x is None:
            return None
        n, c, h, w = self.shape(x)

        def body(i: Var, o: Var, y: Var, z: Var) -> Scalar:
            a = (var("h", h), var("w", w))
            total = scalar.reduce(scalar.sum_of(f32), a, self.b.read(x, (i, o, *a)))
            return self.b.read(x, (i, o, y, z)) - total / cast(idx(h * w), f32)

        return self.b.bind(self.name("mean"), [n, c, h, w], body)

    def two_sums(self) -> str | None:
        """Two reductions of different domains in one bind."""
        x = self.pick(2)
        if x is None:
            return None
        m, k = self.shape(x)

        def body(i: Var, j: Var) -> Scalar:
            a, e = var("a", k), var("e", m)
            one = scalar.reduce(scalar.max_of(f32), [a], self.b.read(x, (i, a)))
            two = scalar.reduce(scalar.sum_of(f32), [e], self.b.read(x, (e, j)))
            return one * 0.5 + two / cast(idx(m), f32)

        return self.b.bind(self.name("two"), [m, k], body)

    def softmax(self) -> str | None:
        x = self.pick(self.r.choice([2, 4]))
        if x is None:
            return None
        axis = self.r.choice([1, -1])
        shape = self.shape(x)
        axis %= len(shape)
        top = self._reduce(scalar.max_of(f32), [axis], x)

        def without(i: tuple[Var, ...]) -> list[Var]:
            return [v for k, v in enumerate(i) if k != axis]

        e = self.b.bind(self.name("exp"), shape, lambda *i: op("exp", self.b.read(x, i) - self.b.read(top, without(i))))
        total = self._reduce(scalar.sum_of(f32), [axis], e)
        return self.b.bind(self.name("soft"), shape, lambda *i: self.b.read(e, i) / self.b.read(total, without(i)))

    def argmax(self) -> str | None:
        x = self.pick(self.r.choice([2, 4]))
        if x is None:
            return None
        shape = self.shape(x)
        axis = self.r.randrange(len(shape))
        m = scalar.argmax_of(f32, last=self.r.random() < 0.3)
        kept = [k for k in range(len(shape)) if k != axis]

        def body(*i: Var) -> Scalar:
            a = var("a", shape[axis])
            at: list[Var] = [a] * len(shape)
            for k, v in zip(kept, i, strict=True):
                at[k] = v
            return scalar.Get(scalar.comprehension([a], m, [self.b.read(x, at), idx(a)]), 1)

        return self.b.bind(self.name("arg"), [shape[k] for k in kept], body)

    def cumsum(self) -> str | None:
        x = self.pick(2)
        if x is None:
            return None
        m, k = self.shape(x)

        def body(i: Var, j: Var) -> Scalar:
            a = var("a", as_expr(j) + 1)
            return scalar.reduce(scalar.sum_of(f32), [a], self.b.read(x, (i, a)))

        return self.b.bind(self.name("prefix"), [m, k], body)
