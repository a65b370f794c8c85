"""Evaluates scalar expressions for all points of a box at once (see `interp`)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache, reduce

import numpy as np

from tang_edge.errors import CompilerBug
from tang_edge.ir import affine, scalar
from tang_edge.ir.affine import Dim, Div, Expr, Max, Min, Mod, Opaque, Var
from tang_edge.ir.dtype import Kind
from tang_edge.ir.interp_contract import Array, Named, aligned, combine, contract, squeeze, union
from tang_edge.ir.interp_fold import cast, fold, storage, ufunc_of
from tang_edge.ir.interp_read import strided
from tang_edge.ir.ops import OPS
from tang_edge.ir.scalar import Comprehension, Const, Get, Idx, Op, Read, Scalar

LIMIT = 1 << 24  # elements of one intermediate array


@lru_cache(maxsize=1 << 14)
def factors(c: Comprehension) -> tuple[Scalar, ...]:
    """The factors of the summand where c is a sum of products over a fixed domain, else ()."""
    if ufunc_of(c.monoid) is not np.add or c.monoid.identity[0].dtype.kind is Kind.BOOL:
        return ()
    lift = c.lifts[0]
    if not (isinstance(lift, Op) and lift.name == "mul") or any(affine.variables(a.extent) for a in c.axes):
        return ()
    return _flatten(lift)


def _flatten(x: Scalar) -> tuple[Scalar, ...]:
    if isinstance(x, Op) and x.name == "mul":
        return _flatten(x.args[0]) + _flatten(x.args[1])
    return (x,)


@lru_cache(maxsize=1 << 14)
def structure(x: Scalar) -> tuple[frozenset[Scalar | Comprehension], tuple[tuple[Var, ...], ...]]:
    """(nodes used more than once, sets of axes of intermediate arrays) when x is evaluated.

    The sets are in an order of their own: sums of floats must come out alike in every process.
    """
    uses: dict[Scalar | Comprehension, int] = {}
    footprints: set[frozenset[Var]] = set()

    def visit(y: Scalar) -> None:
        key = y.of if isinstance(y, Get) else y
        uses[key] = uses.get(key, 0) + 1
        if uses[key] > 1:
            return
        if not isinstance(y, Get):
            footprints.add(scalar.free(y))
            below = scalar.children(y)
        elif factors(y.of):
            below = factors(y.of)
        else:
            below = y.of.lifts
            domain = [frozenset(y.of.axes), *(affine.variables(a.extent) for a in y.of.axes)]
            footprints.add(frozenset[Var]().union(*domain, *(scalar.free(z) for z in below)))
        for z in below:
            visit(z)

    visit(x)
    sets = [sorted(((v.key, v) for v in found), key=lambda pair: pair[0]) for found in footprints]
    ordered = sorted(sets, key=lambda pairs: [key for key, _ in pairs])
    return frozenset(k for k, n in uses.items() if n > 1), tuple(tuple(v for _, v in pairs) for pairs in ordered)


class Evaluator:
    """Evaluates scalars over a box of points: `windows` gives the interval of each axis variable."""

    def __init__(self, tensors: Mapping[str, Array], dims: Mapping[str, int], wide: bool, axes: Sequence[Var]) -> None:
        self.tensors, self.dims, self.wide = tensors, dims, wide
        self.windows: dict[Var, tuple[int, int]] = {}
        self.rank: dict[Var, int] = {}
        self.memo: dict[Scalar | Comprehension, tuple[Named, ...]] = {}
        self.shared: frozenset[Scalar | Comprehension] = frozenset()
        for a in axes:
            self.open(a)

    def open(self, v: Var) -> None:
        """Registers an axis. Its window is [0, extent), the greatest where that depends on other axes."""
        if v not in self.windows:
            self.rank[v] = len(self.rank)
            self.windows[v] = (0, self._greatest(v.extent))

    def _greatest(self, extent: Expr) -> int:
        if not affine.variables(extent):
            return max(0, affine.evaluate(extent, self.dims))
        whole = Evaluator(self.tensors, self.dims, self.wide, ())
        for v in sorted(affine.variables(extent), key=lambda v: v.key):
            whole.open(v)
        return max(0, int(whole.integer(extent).data.max(initial=0)))

    def size(self, v: Var) -> int:
        """The number of points of an axis in the current window."""
        start, stop = self.windows[v]
        return stop - start

    def fill(self, out: Array, axes: Sequence[Var], x: Scalar) -> None:
        """out[axes] = x, halving the box of points while an intermediate array would be larger than LIMIT."""
        self.shared, footprints = structure(x)
        self._fill(out, tuple(axes), x, footprints)

    def _fill(self, out: Array, axes: tuple[Var, ...], x: Scalar, prints: tuple[tuple[Var, ...], ...]) -> None:
        if not all(self.size(a) for a in axes):
            return
        for p in prints:
            wide = [a for a in axes if a in p and self.size(a) > 1]
            if wide and math.prod(self._size_of(v) for v in p) > LIMIT:
                start, stop = self.windows[a := max(wide, key=self.size)]
                middle = (start + stop) // 2
                for window in ((start, middle), (middle, stop)):
                    self._move(a, window)
                    self._fill(out, axes, x, prints)
                self._move(a, (start, stop))
                return
        out[tuple(slice(*self.windows[a]) for a in axes)] = aligned(self.scalar(x), axes)

    def _size_of(self, v: Var) -> int:
        self.open(v)
        return self.size(v)

    def _move(self, v: Var, window: tuple[int, int]) -> None:
        def depends(k: Scalar | Comprehension) -> bool:
            return v in scalar.free(Get(k, 0) if isinstance(k, Comprehension) else k)

        self.windows[v] = window
        self.memo = {k: value for k, value in self.memo.items() if not depends(k)}

    def scalar(self, x: Scalar) -> Named:
        """The value of x over the box."""
        key, k = (x.of, x.k) if isinstance(x, Get) else (x, 0)
        if key in self.memo:
            return self.memo[key][k]
        values = self._comprehension(x.of) if isinstance(x, Get) else (self._node(x),)
        if key in self.shared:
            self.memo[key] = values
        return values[k]

    def _node(self, x: Scalar) -> Named:
        match x:
            case Const():
                return Named((), np.asarray(x.value, dtype=storage(x.dtype, self.wide)))
            case Idx():
                value = self.integer(x.e)
                return Named(value.axes, value.data.astype(x.dtype.numpy))
            case Op(name="cast"):
                value = self.scalar(x.args[0])
                return Named(value.axes, cast(value.data, x.args[0].dtype, x.dtype, self.wide))
            case Op():
                return combine(OPS[x.name].evaluate, [self.scalar(a) for a in x.args], self.rank)
            case Read():
                return self._read(x)
            case _:
                raise CompilerBug(f"{x} outside a monoid")

    # ------------------------------------------------------------ integer expressions

    def integer(self, e: Expr) -> Named:
        """The value of an integer expression over the box (int64)."""
        total = Named((), np.asarray(0, np.int64))
        for m, c in e.terms:
            term = reduce(self._times, (self._atom(a) for a in m), Named((), np.asarray(c, np.int64)))
            total = combine(np.add, (total, term), self.rank)
        return total

    def _times(self, a: Named, b: Named) -> Named:
        return combine(np.multiply, (a, b), self.rank)

    def _atom(self, a: affine.Atom) -> Named:
        match a:
            case Var():
                self.open(a)
                return Named((a,), np.arange(*self.windows[a], dtype=np.int64))
            case Dim():
                return Named((), np.asarray(self.dims[a.name] // a.multiple, np.int64))
            case Div():
                return combine(lambda e: e // a.k, (self.integer(a.e),), self.rank)
            case Mod():
                return combine(lambda e: e % a.k, (self.integer(a.e),), self.rank)
            case Min():
                return combine(np.minimum, (self.integer(a.a), self.integer(a.b)), self.rank)
            case Max():
                return combine(np.maximum, (self.integer(a.a), self.integer(a.b)), self.rank)
            case Opaque():
                value = self.scalar(a.value)
                return Named(value.axes, np.clip(value.data.astype(np.int64), a.lo, a.hi))

    def _holds(self, conditions: Sequence[Expr]) -> Named | None:
        """Where all the expressions are >= 0; None when there are none."""
        if not conditions:
            return None
        tests = [combine(lambda e: e >= 0, (self.integer(g),), self.rank) for g in conditions]
        return reduce(lambda a, b: combine(np.logical_and, (a, b), self.rank), tests)

    # ------------------------------------------------------------ reads

    def _read(self, x: Read) -> Named:
        source = self.tensors[x.tensor]
        if source.ndim != len(x.view.coords):
            raise CompilerBug(f"{x} reads a tensor of rank {source.ndim}")
        for v in sorted(scalar.free(x), key=lambda v: v.key):
            self.open(v)
        fast = strided(source, x.view, self.windows, self.rank, self.dims)
        return fast if fast is not None else self.gather(x, source)

    def gather(self, x: Read, source: Array) -> Named:
        """A read at any coordinates, every point checked."""
        coords = [self.integer(e) for e in x.view.coords]
        inside = self._holds(x.view.guard)
        for k, (c, n) in enumerate(zip(coords, source.shape, strict=True)):
            if c.data.size and (c.data.min() < 0 or c.data.max() >= n):
                self._check(x, c, n, inside)
                coords[k] = Named(c.axes, np.clip(c.data, 0, max(0, n - 1)))
        if not source.size:
            source = np.zeros([max(1, n) for n in source.shape], source.dtype)
        axes = union(coords, self.rank)
        value = Named(axes, np.asarray(source[tuple(aligned(c, axes) for c in coords)]))
        if inside is None or x.view.fill is None:
            return value
        fill = np.asarray(x.view.fill.value, dtype=source.dtype)
        return combine(lambda ok, v: np.where(ok, v, fill), (inside, value), self.rank)

    def _check(self, x: Read, coord: Named, n: int, inside: Named | None) -> None:
        """Raises CompilerBug when a point of the domain, its guard true, has a coordinate outside [0, n)."""
        seen, queue = set[Var](), list(scalar.free(x))
        while queue:
            v = queue.pop()
            if v not in seen:
                seen.add(v)
                queue += affine.variables(v.extent)
        partial = sorted((v for v in seen if affine.variables(v.extent)), key=lambda v: v.key)
        domain = self._holds([v.extent - 1 - affine.as_expr(v) for v in partial])
        bad = combine(lambda c: (c < 0) | (c >= n), (coord,), self.rank)
        for ok in (inside, domain):
            if ok is not None:
                bad = combine(np.logical_and, (bad, ok), self.rank)
        if bad.data.any():
            raise CompilerBug(f"read out of bounds (extent {n}): {x}")

    # ------------------------------------------------------------ reductions

    def _comprehension(self, c: Comprehension) -> tuple[Named, ...]:
        for a in c.axes:
            self.open(a)
        parts = factors(c)
        if parts:
            sizes = {a: self.size(a) for a in c.axes}
            return (contract([self.scalar(p) for p in parts], sizes, self.rank),)
        lifts = [self.scalar(x) for x in c.lifts]
        partial = [a for a in c.axes if affine.variables(a.extent)]
        domain = self._holds([a.extent - 1 - affine.as_expr(a) for a in partial])
        if domain is not None:
            lifts = [self._masked(domain, x, i) for x, i in zip(lifts, c.monoid.identity, strict=True)]
        axes = union([*lifts, Named(c.axes, None)], self.rank)
        full = [self._spread(x, axes, c.axes) for x in lifts]
        where = tuple(axes.index(a) for a in c.axes)
        kept = tuple(a for a in axes if a not in c.axes)
        return tuple(squeeze(Named(kept, s)) for s in fold(c.monoid, full, where, self.wide))

    def _masked(self, domain: Named, x: Named, identity: Const) -> Named:
        neutral = np.asarray(identity.value, x.data.dtype)
        return combine(lambda ok, v: np.where(ok, v, neutral), (domain, x), self.rank)

    def _spread(self, x: Named, axes: Sequence[Var], reduced: Sequence[Var]) -> Array:
        """The data aligned to axes and repeated along the reduced ones."""
        data = aligned(x, axes)
        return np.broadcast_to(data, [self.size(a) if a in reduced else n for a, n in zip(axes, data.shape, strict=True)])
