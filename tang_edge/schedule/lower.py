"""An annotated nest to a kernel.

The loops outside the first reduced one are opened; one set of accumulators for each point of the unrolled output loops is
declared; the reduced loops run and feed all points; then each point's expression is computed around its state and stored.
A guarded lift that is the identity where its guard fails narrows the loop instead of testing (`narrow`):

    Σ_{k<n} [g(k) >= 0] f(k)  =  Σ_{max(0, ⌈-r/c⌉) <= k < n} f(k)      with g = c·k + r, c > 0   (and likewise for c < 0)
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tang_edge.errors import CompilerBug
from tang_edge.ir import affine, kernel_verify, scalar
from tang_edge.ir.affine import Expr, Var
from tang_edge.ir.kernel import (
    Barrier,
    Buffer,
    Extract,
    For,
    Kernel,
    LetInt,
    Ref,
    Shared,
    Splat,
    Statement,
    Store,
    Value,
    When,
)
from tang_edge.ir.scalar import Comprehension, Const, Op, Read, Scalar
from tang_edge.schedule.addresses import Placed
from tang_edge.schedule.expressions import Expressions, Staged
from tang_edge.schedule.nest import Kind, Loop, Nest, Tail
from tang_edge.schedule.scopes import Scopes

Point = Mapping[Var, Expr]


@dataclass(frozen=True, slots=True)
class Target:
    """Where the bind's element goes: tensor, its place, and coordinates over the bind's axes."""

    tensor: str
    coords: tuple[Expr, ...]


def target_of(n: Nest) -> Target:
    """The tensor and the coordinates that the bind writes."""
    b = n.bind
    return Target(b.store.tensor, b.store.coords) if b.store else Target(b.name, tuple(map(affine.as_expr, b.axes)))


def lower(nests: Sequence[Nest], placed: Mapping[str, Placed], key: str, finite_math: bool = True) -> Kernel:
    """One kernel from nests of one bind: the first whose `needs` hold is run (the last one has no needs).

    With `finite_math`, points where a product has a factor of 0 are left out of sums.
    """
    first = nests[0]
    tensors = sorted({r.tensor for r in scalar.reads(first.bind.expr)})
    out = target_of(first).tensor
    names = [*tensors, *([out] if out not in tensors else [])]
    buffers = tuple(Buffer(f"b{k}", t, placed[t].dtype, t == out) for k, t in enumerate(names))
    grid = tuple(x.var for x in first.loops if x.kind is Kind.GRID)
    lanes = tuple(x.var for x in first.loops if x.kind is Kind.LANE)
    shared: list[Shared] = []
    body: tuple[Statement, ...] = ()
    for n in reversed(nests):
        here = _Lowering(n, placed, {b.tensor: b.name for b in buffers}, shared, finite_math).run()
        body = (When(n.needs, here, body),) if n.needs and body else here
    kernel = Kernel(key, buffers, tuple(shared), grid, lanes, body, first.tag)
    kernel_verify.verify(kernel, where=first.bind.name)
    return kernel


class _Lowering:
    """The state of lowering one nest."""

    def __init__(
        self, n: Nest, placed: Mapping[str, Placed], buffers: dict[str, str], shared: list[Shared], finite_math: bool
    ) -> None:
        self.nest, self.placed, self.shared, self.finite_math = n, placed, shared, finite_math
        self.scopes = Scopes()
        vector = [x.var for x in n.loops if x.kind is Kind.VECTOR]
        self.lane = vector[0] if vector else None
        self.across = self.lane if any(x.reduce for x in n.loops if x.kind is Kind.VECTOR) else None
        self.exprs = Expressions(self.scopes, placed, self.lane, buffers=buffers)
        self.out = target_of(n)
        self.tile = [x for x in n.loops if not x.reduce and x.kind is Kind.UNROLL]
        self.points = self._points(self.tile)
        self.env = self._clamped()
        self.opened: set[Var] = set()

    @staticmethod
    def _points(loops: Sequence[Loop]) -> list[Point]:
        ranges = [range(x.var.extent.constant or 1) for x in loops]
        return [{x.var: affine.const(k) for x, k in zip(loops, p, strict=True)} for p in itertools.product(*ranges)]

    def _clamped(self) -> dict[Var, Expr]:
        env = dict(self.nest.index)
        for e, limit, tail in self.nest.checks:
            if tail is Tail.GUARD:
                env = {a: self._inside(e, limit) if x is e else x for a, x in env.items()}
        return env

    def _inside(self, e: Expr, limit: Expr) -> Expr:
        """e clamped below limit; a vector is moved as a whole (its lanes divide the extent: see the schedules)."""
        if self.lane is None or self.lane not in affine.variables(e):
            return affine.minimum(e, limit - 1)
        lane = affine.as_expr(self.lane)
        return affine.minimum(e - lane, limit - (self.lane.extent.constant or 1)) + lane

    def at(self, point: Point) -> dict[Var, Expr]:
        """The bind's axes at one point of the unrolled loops, and those loops themselves (staged reads use them)."""
        return {**{a: affine.substitute(e, point) for a, e in self.env.items()}, **point}

    # ------------------------------------------------------------ loops

    def run(self) -> tuple[Statement, ...]:
        serial = [x for x in self.nest.loops if x.kind in (Kind.GRID, Kind.LANE, Kind.SERIAL)]
        split = next((k for k, x in enumerate(serial) if x.reduce), len(serial))
        for x in self.nest.loops:
            self.scopes.define(x.var.name, 0)
        self._outer(serial[:split], serial[split:])
        return tuple(self.scopes.blocks[0].statements)

    def _outer(self, loops: Sequence[Loop], reduced: Sequence[Loop]) -> None:
        if not loops:
            self._tile(reduced)
            return
        x = loops[0]
        serial = x.kind is Kind.SERIAL
        if serial:
            self.scopes.push()
            self.scopes.define(x.var.name)
        if x.shift is not None:
            start, e = x.shift
            self.scopes.add(LetInt(start, e))
            self.scopes.define(start.name)
            self.opened.add(start)
        self.opened.add(x.var)
        self._outer(loops[1:], reduced)
        if serial:
            body = self.scopes.pop()
            self.scopes.add(For(x.var, affine.const(0), self._stop(x), body))

    def _stop(self, x: Loop) -> Expr:
        """A serial loop that walks a partial tile ends where the axis ends."""
        stop = x.var.extent
        for e, limit, tail in self.nest.checks:
            c = affine.linear_coefficient(e, x.var)
            if tail is Tail.CUT and c is not None and c.constant == 1:
                stop = affine.minimum(stop, limit - affine.substitute(e, {x.var: affine.const(0)}))
        return stop

    # ------------------------------------------------------------ the tile

    def _tile(self, reduced: Sequence[Loop]) -> None:
        fold = self.nest.fold
        states: list[list[Ref]] = []
        if fold is not None:
            states = [self.exprs.declare(fold.monoid, self._lanes_of(fold)) for _ in self.points]
            self._reduced(fold, list(reduced), states)
            if self.across is not None:
                states = [self._across(fold, refs, p) for refs, p in zip(states, self.points, strict=True)]
                self.lane = self.exprs.lane = None
        for k, point in enumerate(self.points):
            if fold is not None:
                for c, ref in enumerate(states[k]):
                    self.exprs.accumulators[(fold, c)] = ref
            self._store(point)

    def _across(self, fold: Comprehension, refs: list[Ref], point: Point) -> list[Ref]:
        """One state from a vector of partial states: lane after lane, then the elements that filled no vector."""
        assert self.across is not None
        total = self.exprs.declare(fold.monoid, 1)
        for k in range(self.across.extent.constant or 1):
            self.exprs.accumulate(fold.monoid, total, [Extract(r, k, r.dtype) for r in refs])
        rests = [(e, limit) for e, limit, tail in self.nest.checks if tail is Tail.REST]
        for e, limit in rests:
            axis = next(a for a, x in self.nest.index.items() if x is e)
            done = limit // (self.across.extent.constant or 1) * (self.across.extent.constant or 1)
            left = affine.var(self.scopes.name("k"), limit)
            self.scopes.push()
            self.scopes.define(left.name)
            lane, self.exprs.lane = self.exprs.lane, None
            env = {**self.at(point), axis: affine.as_expr(left)}
            memo: dict[Scalar, Value] = {}
            self.exprs.accumulate(fold.monoid, total, [self.exprs.tree(y, env, memo) for y in fold.lifts])
            self.exprs.lane = lane
            body = self.scopes.pop()
            self.scopes.add(For(left, done, limit, body))
        return total

    def _lanes_of(self, fold: Comprehension) -> int:
        if self.lane is None:
            return 1
        inside = frozenset[Var]().union(*(scalar.free(y) for y in fold.lifts))
        varies = any(self.lane in affine.variables(self.env[v]) for v in inside if v in self.env)
        return (self.lane.extent.constant or 1) if varies else 1

    def _reduced(self, fold: Comprehension, loops: list[Loop], states: list[list[Ref]]) -> None:
        if not loops:
            self._accumulate(fold, states)
            return
        x = loops[0]
        start, stop, guards = self._narrow(fold, x)
        self.scopes.push()
        self.scopes.define(x.var.name)
        self.exprs.known.extend(guards)
        self.opened.add(x.var)
        for read, at in self.nest.staged:
            if at == x.var.name:
                self._stage(read, loops[1:])
        if any(at == x.var.name for _, at in self.nest.staged):
            self.scopes.add(Barrier())
        self._reduced(fold, loops[1:], states)
        if any(at == x.var.name for _, at in self.nest.staged):
            self.scopes.add(Barrier())
        for read, at in self.nest.staged:
            if at == x.var.name:  # what is around the fold may read the same elements: from memory
                self.exprs.staged.pop(read, None)
        del self.exprs.known[len(self.exprs.known) - len(guards) :]
        self.opened.discard(x.var)
        body = self.scopes.pop()
        self.scopes.add(For(x.var, start, stop, body))

    def _accumulate(self, fold: Comprehension, states: list[list[Ref]]) -> None:
        inner = [x for x in self.nest.loops if x.reduce and x.kind is Kind.UNROLL]
        for r in self._points(inner):
            for point, refs in zip(self.points, states, strict=True):
                env = self.at({**point, **r})
                memo: dict[Scalar, Value] = {}
                lifted = [self.exprs.tree(y, env, memo) for y in fold.lifts]
                self.exprs.accumulate(fold.monoid, refs, lifted)

    def _narrow(self, fold: Comprehension, x: Loop) -> tuple[Expr, Expr, list[Expr]]:
        """Bounds of a reduced loop tightened by guards that decide it, and those guards (over loop variables)."""
        start, stop = affine.const(0), x.var.extent
        done: list[Expr] = []
        if any(x.var in affine.variables(e) for e, _, _ in self.nest.checks):
            return start, stop, done
        for read in sorted(scalar.reads(fold.lifts[0]), key=str) if len(fold.lifts) == 1 else []:
            if not vanishes(fold, read, self.finite_math):
                continue
            for g in read.view.guard:
                e = affine.substitute(g, self.env)
                c = affine.linear_coefficient(e, x.var)
                rest = None if c is None else affine.substitute(e, {x.var: affine.const(0)})
                if c is None or c.constant in (None, 0) or rest is None or e in done or not self._known(rest):
                    continue
                k = c.constant or 1
                if k > 0:
                    start = affine.maximum(start, (-rest + (k - 1)) // k)
                else:
                    stop = affine.minimum(stop, rest // -k + 1)
                done.append(e)
        return start, stop, done

    def _known(self, e: Expr) -> bool:
        """True when e is computable before the loop that is about to open, for all points alike."""
        return affine.variables(e) <= self.opened

    # ------------------------------------------------------------ workgroup memory

    def _stage(self, read: Read, inner_loops: Sequence[Loop]) -> None:
        lanes = [x.var for x in self.nest.loops if x.kind is Kind.LANE]
        inner = [x.var for x in inner_loops] + [x.var for x in self.nest.loops if x.reduce and x.kind is Kind.UNROLL]
        inner += lanes + [x.var for x in self.tile]
        e = affine.substitute(self.placed[read.tensor].address(read.view.coords), self.env)
        used = affine.variables(e).union(*(affine.variables(affine.substitute(g, self.env)) for g in read.view.guard))
        dims = [v for v in inner if v in used]
        width = (self.lane.extent.constant or 1) if self.lane is not None and self.lane in used else 1
        strides, size = [], 1
        for v in reversed(dims):
            strides.append(size * width)
            size *= v.extent.constant or 1
        strides.reverse()
        name = f"w{len(self.shared)}"
        self.shared.append(Shared(name, read.dtype, size * width))
        self._copy(read, name, list(zip(dims, strides, strict=True)), size, lanes, width)
        self.exprs.staged[read] = Staged(name, tuple(zip(dims, strides, strict=True)), width)
        self.scopes.define(name)

    def _copy(self, read: Read, name: str, dims: list[tuple[Var, int]], size: int, lanes: list[Var], width: int) -> None:
        """All lanes together: element (or vector) t of the staged box is fetched by lane t mod threads."""
        threads, lid = 1, affine.const(0)
        for v in reversed(lanes):
            lid = lid + affine.as_expr(v) * threads
            threads *= v.extent.constant or 1
        for q in range(-(-size // threads)):
            at = affine.var(self.scopes.name("q"), size)
            whole = (q + 1) * threads <= size
            self.scopes.push()
            self.scopes.add(LetInt(at, lid + q * threads))
            self.scopes.define(at.name)
            point: dict[Var, Expr] = {}
            for v, stride in dims:
                local = affine.var(self.scopes.name("d"), v.extent)
                self.scopes.add(LetInt(local, affine.as_expr(at) // (stride // width) % (v.extent.constant or 1)))
                self.scopes.define(local.name)
                point[v] = affine.as_expr(local)
            env = {a: affine.substitute(x, point) for a, x in self.env.items()}
            value = self.exprs.lower(read, env)
            self.scopes.add(Store(name, affine.as_expr(at) * width, value))
            body = self.scopes.pop()
            self.scopes.add(When((affine.const(0) if whole else size - 1 - (lid + q * threads),), body))

    # ------------------------------------------------------------ stores

    def _store(self, point: Point) -> None:
        env = self.at(point)
        value = self.exprs.lower(self.nest.bind.expr, env)
        raw = {a: affine.substitute(e, point) for a, e in self.nest.index.items()}
        address = affine.substitute(self.placed[self.out.tensor].address(self.out.coords), raw)
        guard: list[Expr] = []
        count: Expr | None = None
        for e, limit, tail in self.nest.checks:
            left = limit - affine.substitute(e, point)
            first = left if self.lane is None else affine.substitute(left, {self.lane: affine.const(0)})
            if tail is Tail.GUARD:
                guard.append(first - 1)
            elif tail is Tail.OVER and self.lane is not None:
                count = first
        self._emit(address, value, guard, count)

    def _emit(self, address: Expr, value: Value, guard: list[Expr], count: Expr | None) -> None:
        name = self.exprs.buffers[self.out.tensor]
        stride: Expr | None = None
        if self.lane is not None and self.lane in affine.variables(address):
            n = self.lane.extent.constant or 1
            step = affine.linear_coefficient(address, self.lane)
            if step is None:
                raise CompilerBug("vector store to addresses that are not affine in the lane", where=self.nest.bind.name)
            stride = None if step.constant == 1 else step
            address = affine.substitute(address, {self.lane: affine.const(0)})
            value = value if value.lanes == n else Splat(value, value.dtype, n)
        open_guard = tuple(g for g in guard if not affine.nonneg(g))
        if open_guard:
            self.scopes.push()
        self.scopes.add(Store(name, self.scopes.hoist(address), value, count, stride))
        if open_guard:
            body = self.scopes.pop()
            self.scopes.add(When(open_guard, body))


def vanishes(fold: Comprehension, read: Read, finite_math: bool) -> bool:
    """True when the lift is the monoid's identity wherever the guard of `read` fails (so those points may be left out)."""
    if read.view.fill is None:
        return False
    identity = fold.monoid.identity[0]
    return _with_fill(fold.lifts[0], read, identity, finite_math)


def _with_fill(x: Scalar, read: Read, identity: Const, finite_math: bool) -> bool:
    """x is `identity` when read is its fill:  fill = identity;  0 · y = 0, in finite math only (0 · infinity is NaN)."""
    if x is read:
        return read.view.fill is identity
    if isinstance(x, Op) and x.name == "mul" and identity.value == 0 and (finite_math or x.dtype.is_int):
        return any(_with_fill(a, read, identity, finite_math) for a in x.args)
    if isinstance(x, Op) and x.name == "cast" and identity.value == 0 and x.args[0] is read:
        return read.view.fill is not None and read.view.fill.value == 0
    return False
