"""Binds without a reduction. Each method gives the new tensor, or None."""

from __future__ import annotations

from net_base import NetBase

from tang_edge.ir import affine, scalar
from tang_edge.ir.affine import Var, as_expr
from tang_edge.ir.dtype import f16, f32, i8, i32, i64, u8
from tang_edge.ir.scalar import Scalar, cast, const, op, select
from tang_edge.ir.tensor import Alloc, Bind, Store, TensorType, out_axes


class Maps(NetBase):
    """Binds without a reduction."""

    def elementwise(self) -> str | None:
        x = self.pick(self.r.choice([2, 4]))
        if x is None:
            return None
        shape = self.shape(x)
        same = [t for t, ty in self.b.types.items() if ty.shape == tuple(shape) and ty.dtype is f32 and not t.startswith("w")]
        y = self.r.choice(same)
        name = self.r.choice(["add", "mul", "max", "sub", "where"])
        c = shape[1].constant
        scale = self.weights(c) if c is not None and self.r.random() < 0.5 else None

        def body(*i: Var) -> Scalar:
            a, b = self.b.read(x, i), self.b.read(y, i)
            v = select(op("lt", a, const(0.25, f32)), a * 2, b) if name == "where" else op(name, a, b)
            v = v * self.b.read(scale, [i[1]]) if scale else v
            return self.activation(v)

        return self.b.bind(self.name("map"), shape, body)

    def transpose(self) -> str | None:
        x = self.pick(4)
        if x is None:
            return None
        shape = self.shape(x)
        order = self.r.sample(range(4), 4)
        if shape[order[1]].constant is None and self.r.random() < 0.7:
            order = [0, 1, 3, 2]

        def body(*i: Var) -> Scalar:
            at = [i[order.index(k)] for k in range(4)]
            return self.b.read(x, at) + 1

        return self.b.bind(self.name("turn"), [shape[k] for k in order], body)

    def slices(self) -> str | None:
        """A slice backwards with a guard, as Pad, Slice and Flip compose to."""
        x = self.pick(self.r.choice([2, 4]))
        if x is None:
            return None
        shape = self.shape(x)
        last, by, back = shape[-1], self.r.randrange(-3, 4), self.r.random() < 0.4
        fill = self.r.choice([0.0, 1.5, -1.0])

        def body(*i: Var) -> Scalar:
            e = last - 1 - as_expr(i[-1]) + by if back else as_expr(i[-1]) + by
            return self.b.read(x, [*i[:-1], e], (e, last - 1 - e), fill) * 0.5

        return self.b.bind(self.name("pad"), shape, body)

    def resize(self) -> str | None:
        """Channels to space: division and modulo of an index."""
        x = self.pick(4)
        if x is None:
            return None
        n, c, h, w = self.shape(x)
        if c.constant is None or c.constant % 2:
            return None

        def body(i: Var, o: Var, y: Var, z: Var) -> Scalar:
            return self.b.read(x, (i, as_expr(o) * 2 + as_expr(z) % 2, y, as_expr(z) // 2))

        return self.b.bind(self.name("space"), [n, c.constant // 2, h, w * 2], body)

    def upsample(self) -> str | None:
        x, z = self.pick(4), self.pick(4)
        if x is None or z is None:
            return None
        n, c, h, w = self.shape(x)

        def body(i: Var, o: Var, y: Var, q: Var) -> Scalar:
            return self.b.read(x, (i, o, as_expr(y) // 2, as_expr(q) // 2))

        return self.b.bind(self.name("up"), [n, c, h * 2, w * 2], body)

    def gather(self) -> str | None:
        x = self.pick(2)
        if x is None:
            return None
        m, k = self.shape(x)
        n = self.r.choice([1, 3, 9, 16])
        which = self.weights(n, dt=self.r.choice([i32, i64]))
        if self.r.random() < 0.5:
            return self.b.bind(
                self.name("gather"),
                [n, k],
                lambda i, j: self.b.read(x, (scalar.gather_index(self.b.read(which, [i]), m), j)) * 2,
            )
        return self.b.bind(
            self.name("gather"),
            [m, n],
            lambda i, j: self.b.read(x, (i, scalar.gather_index(self.b.read(which, [j]), k))),
        )

    def concat(self) -> str | None:
        """Two stores into one allocation, along axis 1."""
        x, y = self.pick(4), self.pick(4)
        if x is None or y is None:
            return None
        a, b = self.shape(x), self.shape(y)
        if (a[0], a[2], a[3]) != (b[0], b[2], b[3]):
            y, b = x, a
        shape = (a[0], a[1] + b[1], a[2], a[3])
        name = self.name("joined")
        self.b.items.append(Alloc(name, TensorType(f32, shape)))
        self.b.types[name] = TensorType(f32, shape)
        for part, extents, at in ((x, a, affine.const(0)), (y, b, a[1])):
            axes = out_axes(extents)
            coords = (as_expr(axes[0]), as_expr(axes[1]) + at, as_expr(axes[2]), as_expr(axes[3]))
            expr = self.activation(self.b.read(part, axes))
            self.b.items.append(Bind(self.name("part"), axes, expr, Store(name, coords)))
        return name

    def narrow(self) -> str | None:
        """Comparisons and narrow types stored between binds."""
        x = self.pick(self.r.choice([2, 4]))
        if x is None:
            return None
        shape = self.shape(x)
        if self.r.random() < 0.5:
            mask = self.b.bind(self.name("mask"), shape, lambda *i: op("lt", self.b.read(x, i), const(0.1, f32)))
            return self.b.bind(
                self.name("masked"),
                shape,
                lambda *i: select(self.b.read(mask, i), self.b.read(x, i) * 3, const(-1.5, f32)),
            )
        dt = self.r.choice([i8, i32, u8] + ([f16] if self.halves else []))
        scale = 30 if dt is not f16 else 1
        low = self.b.bind(self.name("low"), shape, lambda *i: cast(self.b.read(x, i) * scale, dt))
        return self.b.bind(self.name("wide"), shape, lambda *i: cast(self.b.read(low, i), f32) * (1 / scale))
