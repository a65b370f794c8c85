"""Sums of products: convolutions and matrix products. Each method gives the new tensor, or None."""

from __future__ import annotations

from net_base import NetBase

from tang_edge.ir import scalar
from tang_edge.ir.affine import Var, as_expr, var
from tang_edge.ir.dtype import f32, i8, i32, u8
from tang_edge.ir.scalar import Scalar, cast, const, op
from tang_edge.ir.tensor import TensorType


class Products(NetBase):
    """Sums of products: convolutions and matrix products."""

    def conv(self, groups: int = 1) -> str | None:
        x = self.pick(4)
        if x is None:
            return None
        r, (n, c, h, w) = self.r, self.shape(x)
        cin = c.constant
        if cin is None:
            return None
        if r.random() < 0.25:
            groups = r.choice([g for g in (1, 2, 3, 4) if cin % g == 0])
        out = groups * r.choice([1, 2, 3, 4, 8, 17])
        kh, kw, s, d = r.choice([1, 3, 5]), r.choice([1, 2, 3]), r.choice([1, 1, 2, 3]), r.choice([1, 1, 2])
        pads = [r.randrange(0, (kh - 1) * d + 1), r.randrange(0, (kw - 1) * d + 1)]
        after = [(kh - 1) * d - pads[0], (kw - 1) * d - pads[1]]  # so that no size is too small
        oh = (h + (pads[0] + after[0] - (kh - 1) * d - 1)) // s + 1
        ow = (w + (pads[1] + after[1] - (kw - 1) * d - 1)) // s + 1
        wt = self.weights(out, cin // groups, kh, kw)
        residual = self.r.random() < 0.3 and [
            t for t, ty in self.b.types.items() if ty == TensorType(f32, (n, as_expr(out), oh, ow))
        ]
        order = r.sample(range(3), 3)
        per = out // groups

        def body(i: Var, o: Var, y: Var, z: Var) -> Scalar:
            k = (var("c", cin // groups), var("k", kh), var("l", kw))
            row, col = as_expr(y) * s + as_expr(k[1]) * d - pads[0], as_expr(z) * s + as_expr(k[2]) * d - pads[1]
            guard = (row, h - 1 - row, col, w - 1 - col)
            channel = as_expr(o) // per * (cin // groups) + k[0] if groups > 1 else as_expr(k[0])
            lift = self.b.read(x, (i, channel, row, col), guard) * self.b.read(wt, (o, *k))
            v = scalar.reduce(scalar.sum_of(f32), [k[j] for j in order], lift)
            v = self.epilogue(v, (i, o, y, z), 1, as_expr(out))
            return v + self.b.read(residual[0], (i, o, y, z)) if residual else v

        return self.b.bind(self.name("conv"), [n, out, oh, ow], body)

    def depthwise(self) -> str | None:
        x = self.pick(4)
        if x is None:
            return None
        r, (n, c, h, w) = self.r, self.shape(x)
        if c.constant is None:
            return None
        k, s = r.choice([3, 5]), r.choice([1, 2])
        p = k // 2
        wt = self.weights(c.constant, k, k)

        def body(i: Var, o: Var, y: Var, z: Var) -> Scalar:
            a = (var("k", k), var("l", k))
            row, col = as_expr(y) * s + as_expr(a[0]) - p, as_expr(z) * s + as_expr(a[1]) - p
            guard = (row, h - 1 - row, col, w - 1 - col)
            v = scalar.reduce(scalar.sum_of(f32), a, self.b.read(x, (i, o, row, col), guard) * self.b.read(wt, (o, *a)))
            return self.epilogue(v, (i, o, y, z), 1, c)

        return self.b.bind(self.name("depthwise"), [n, c, (h - 1) // s + 1, (w - 1) // s + 1], body)

    def matmul(self) -> str | None:
        x = self.pick(2)
        if x is None:
            return None
        r, (m, k) = self.r, self.shape(x)
        transposed = r.random() < 0.3 and m.constant is not None
        kk = (m if transposed else k).constant
        if kk is None:
            return None
        n = r.choice([1, 2, 5, 8, 16, 17, 33, 64, 70])
        wt, across = (self.weights(n, kk), True) if r.random() < 0.5 else (self.weights(kk, n), False)

        def body(i: Var, j: Var) -> Scalar:
            a = var("k", kk)
            v = self.b.read(x, (a, i) if transposed else (i, a)) * self.b.read(wt, (j, a) if across else (a, j))
            return self.epilogue(scalar.reduce(scalar.sum_of(f32), [a], v), (i, j), 1, as_expr(n))

        return self.b.bind(self.name("matmul"), [k if transposed else m, n], body)

    def batched(self) -> str | None:
        """Products of two activations over a symbolic axis: attention's shapes."""
        x = self.pick(4)
        if x is None:
            return None
        n, c, h, w = self.shape(x)
        keys = self.r.random() < 0.5

        def body(i: Var, o: Var, y: Var, z: Var) -> Scalar:
            a = var("a", w if keys else h)
            left = self.b.read(x, (i, o, y, a) if keys else (i, o, a, y))
            right = self.b.read(x, (i, o, z, a) if keys else (i, o, a, z))
            return scalar.reduce(scalar.sum_of(f32), [a], left * right) * 0.125

        e = h if keys else w
        return self.b.bind(self.name("batched"), [n, c, e, e], body)

    def quantised(self) -> str | None:
        """Quantise, an integer product, dequantise."""
        x = self.pick(2)
        if x is None:
            return None
        m, k = self.shape(x)
        if k.constant is None:
            return None
        narrow = self.r.choice([i8, u8])
        n = self.r.choice([3, 8, 17])
        wt = self.weights(n, k.constant, dt=i8)
        zero = 0 if narrow is i8 else 128
        q = self.b.bind(
            self.name("q"),
            [m, k],
            lambda i, j: cast(
                op(
                    "max",
                    op("min", op("round", self.b.read(x, (i, j)) * 20) + zero, const(narrow.limits()[1], f32)),
                    const(narrow.limits()[0], f32),
                ),
                narrow,
            ),
        )

        def body(i: Var, j: Var) -> Scalar:
            a = var("k", k)
            left = cast(self.b.read(q, (i, a)), i32) - zero
            total = scalar.reduce(scalar.sum_of(i32), [a], left * cast(self.b.read(wt, (j, a)), i32))
            return cast(total, f32) * 0.0005

        return self.b.bind(self.name("dequantised"), [m, n], body)
