"""Random programs for schedules: chains of binds as fusion makes them, over shapes that fit no tile.

Every program has two symbolic dimensions, h and w, and the tensors of its chain have the shape [n, c, h', w'], [m, k] and the
like; intermediates get the layouts that the scheduler likes, since only the last ones are outputs.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from tang_edge.ir import affine, scalar
from tang_edge.ir.affine import Expr, Var, as_expr, var
from tang_edge.ir.dtype import DType, boolean, f16, f32, i8, i32, i64, u8
from tang_edge.ir.scalar import Read, Scalar, cast, const, idx, op, select
from tang_edge.ir.tensor import Alloc, Bind, Builder, Program, Store, TensorType, out_axes

CHANNELS = (1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 24, 33)
KINDS = ("conv", "conv", "depthwise", "pool", "matmul", "batched", "reduce", "softmax", "argmax", "elementwise", "gather")
KINDS += ("concat", "quantised", "slices", "transpose", "mean", "cumsum", "resize", "narrow", "upsample", "two_sums")


@dataclass
class Net:
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

    # ------------------------------------------------------------ kinds; each gives the new tensor, or None

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

    def cumsum(self) -> str | None:
        x = self.pick(2)
        if x is None:
            return None
        m, k = self.shape(x)

        def body(i: Var, j: Var) -> Scalar:
            a = var("a", as_expr(j) + 1)
            return scalar.reduce(scalar.sum_of(f32), [a], self.b.read(x, (i, a)))

        return self.b.bind(self.name("prefix"), [m, k], body)

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


def _range(dt: DType) -> tuple[int, int]:
    if dt in (i8, u8):
        lo, hi = dt.limits()
        return lo, hi + 1
    return -3, 12  # indices that miss, too


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


__all__ = ["KINDS", "Net", "Read", "boolean", "make"]
