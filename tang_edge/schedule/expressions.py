"""Scalar expressions of the tensor IR to values of the kernel IR, in the scopes of a nest that is being lowered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tang_edge.errors import CompilerBug
from tang_edge.ir import affine, scalar
from tang_edge.ir.affine import Expr, Opaque, Var
from tang_edge.ir.kernel import (
    Assign,
    Calc,
    Declare,
    For,
    Int,
    Lanes,
    Let,
    LetIndex,
    Lit,
    Load,
    Ref,
    Row,
    Splat,
    Value,
)
from tang_edge.ir.scalar import Comprehension, Const, Get, Idx, Monoid, Op, Read, Scalar, St
from tang_edge.schedule.addresses import Placed
from tang_edge.schedule.indices import on_32_bits
from tang_edge.schedule.scopes import Scopes

Env = Mapping[Var, Expr]
NEAR = 64  # elements: guarded loads closer than this share a row (unrolled reduced loops)


@dataclass(slots=True)
class Staged:
    """A read that lives in workgroup memory: its buffer, the inner loop variables that address it with their strides, and
    the lanes of a vector when neighbours along the vector loop lie side by side.
    """

    buffer: str
    inner: tuple[tuple[Var, int], ...]
    width: int = 1


@dataclass(slots=True)
class Expressions:
    """Lowers scalars. `lane` is the variable of the vector loop (None on scalar targets)."""

    scopes: Scopes
    placed: Mapping[str, Placed]
    lane: Var | None = None
    known: list[Expr] = field(default_factory=list)
    accumulators: dict[tuple[Comprehension, int], Ref] = field(default_factory=dict)
    staged: dict[Read, Staged] = field(default_factory=dict)
    buffers: dict[str, str] = field(default_factory=dict)
    rows: dict[tuple[int, object], list[tuple[int, int]]] = field(default_factory=dict)

    # ------------------------------------------------------------ integers

    def expr(self, e: Expr, env: Env) -> Expr:
        """e over loop variables; coordinates computed from data become integer locals."""

        def leaf(a: affine.Atom) -> Expr | None:
            if isinstance(a, Var):
                return env.get(a)
            return affine.as_expr(self._index(a, env)) if isinstance(a, Opaque) else None

        return affine.rebuild(e, leaf)

    def _index(self, a: Opaque, env: Env) -> Var:
        v = self.lower(a.value, env)
        level = self.scopes.value_level(v)
        key = ("index", v)
        known = self.scopes.blocks[level].values.get(key)
        name = known.name if known else self.scopes.name("g")
        var = affine.var(name, a.hi + 1)
        if known is None:
            self.scopes.add(LetIndex(var, v), level)
            self.scopes.define(name, level)
            self.scopes.blocks[level].values[key] = Ref(name, v.dtype)
        return var

    def varies(self, x: Scalar, env: Env) -> bool:
        """True when x differs between the lanes of the vector loop."""
        lane = self.lane
        return lane is not None and any(lane in affine.variables(env[v]) for v in scalar.free(x) if v in env)

    # ------------------------------------------------------------ scalars

    def lower(self, x: Scalar, env: Env) -> Value:
        """x as a named value (or literal)."""
        return self.scopes.bind(self.tree(x, env, {}))

    def tree(self, x: Scalar, env: Env, memo: dict[Scalar, Value]) -> Value:
        """x as a value whose operands are named but which itself is not: the caller says where it goes."""
        x = on_32_bits(x)
        match x:
            case Const():
                return Lit(x.value, x.dtype)
            case Idx():
                return self._idx(x, env)
            case Op():
                args = []
                for a in x.args:
                    if a not in memo:
                        memo[a] = self.scopes.bind(self.tree(a, env, memo))
                    args.append(memo[a])
                return self.calc(x.name, tuple(args), x.dtype)
            case Read():
                return self._read(x, env)
            case Get():
                return self._get(x, env)
            case St():
                raise CompilerBug("state component outside of a combine")

    def calc(self, name: str, args: tuple[Value, ...], dtype: object) -> Value:
        """An operator on values, scalars repeated where another operand is a vector."""
        n = max(a.lanes for a in args)
        same = tuple(a if a.lanes == n else Splat(a, a.dtype, n) for a in args)
        return Calc(name, same, dtype, n)  # type: ignore[arg-type]

    def _per_lane(self, x: Scalar, env: Env) -> Value:
        lane = self.lane
        assert lane is not None
        n = lane.extent.constant or 1
        points = [{a: affine.substitute(e, {lane: affine.const(k)}) for a, e in env.items()} for k in range(n)]
        values = tuple(self.lower(x, p) for p in points)
        return Lanes(values, x.dtype, n)

    def _idx(self, x: Idx, env: Env) -> Value:
        if self.varies(x, env):
            return self._per_lane(x, env)
        return Int(self.expr(x.e, env), x.dtype)

    def _read(self, x: Read, env: Env) -> Value:
        where = self.staged.get(x)
        if where is not None:
            index = affine.const(0)
            for v, stride in where.inner:
                index = index + env.get(v, affine.as_expr(v)) * stride
            return Load(where.buffer, index, x.dtype, where.width)
        if any(self.varies(y, env) for y in scalar.children(x)):
            return self._per_lane(x, env)
        e = self.expr(self.placed[x.tensor].address(x.view.coords), env)
        guard = tuple(g for g in (self.expr(g, env) for g in x.view.guard) if not (affine.nonneg(g) or g in self.known))
        n = 1
        lane = self.lane
        if lane is not None and any(lane in affine.variables(y) for y in (e, *guard)):
            step = affine.linear_coefficient(e, lane)
            if step is None or step.constant != 1 or any(lane in affine.variables(g) for g in guard):
                return self._per_lane(x, env)
            n, e = lane.extent.constant or 1, affine.substitute(e, {lane: affine.const(0)})
        buffer = self.buffers[x.tensor]
        if not guard:
            return Load(buffer, self.scopes.hoist(e), x.dtype, n)
        return self._guarded(x, buffer, e, guard, n)

    def _guarded(self, x: Read, buffer: str, e: Expr, guard: tuple[Expr, ...], lanes: int) -> Value:
        assert x.view.fill is not None
        at = max(self.scopes.level(g) for g in guard)
        inner = Expr(tuple((m, c) for m, c in e.terms if m and self.scopes.level(Expr(((m, c),))) > at))
        lo, hi = affine.bounds(inner)
        if lo < 0:
            inner, at, hi = affine.const(0), self.scopes.level(e), 0
        base = e - inner
        shift = dict(base.terms).get((), 0)
        key = ("row", buffer, base - shift, guard)
        rows = self.rows.setdefault((id(self.scopes.blocks[at]), key), [])
        for place, first in rows:
            if 0 <= shift - first < NEAR:
                self._lengthen(at, place, hi + (shift - first) + lanes)
                name = self.scopes.blocks[at].statements[place].name  # type: ignore[union-attr]
                return Load(buffer, inner + (shift - first), x.dtype, lanes, name)
        name = self.scopes.name("p")
        row = Row(name, buffer, base, guard, x.view.fill.value, hi + lanes, x.dtype)
        rows.append((len(self.scopes.blocks[at].statements), shift))
        self.scopes.add(row, at)
        self.scopes.define(name, at)
        return Load(buffer, inner, x.dtype, lanes, name)

    def _lengthen(self, at: int, place: int, span: int) -> None:
        """A row that a load reaches further along."""
        row = self.scopes.blocks[at].statements[place]
        assert isinstance(row, Row)
        self.scopes.blocks[at].statements[place] = replace(row, span=max(row.span, span))

    # ------------------------------------------------------------ reductions

    def _get(self, x: Get, env: Env) -> Value:
        ready = self.accumulators.get((x.of, x.k))
        if ready is not None:
            return ready
        lane = self.lane
        if lane is not None and any(lane in affine.variables(self.expr(a.extent, env)) for a in x.of.axes):
            return self._per_lane(x, env)  # a prefix: each lane has a domain of its own
        return self._inline(x, env)

    def _inline(self, x: Get, env: Env) -> Value:
        """A comprehension evaluated where its free variables are known, by serial loops."""
        inside = [v for v in scalar.free(x) if v in env]
        at = max((self.scopes.level(env[v]) for v in inside), default=0)
        at = max([at, *(self.scopes.level(self.expr(a.extent, env)) for a in x.of.axes)])
        key = ("fold", x.of, tuple((v, env[v]) for v in sorted(inside, key=lambda v: v.key)))
        found = self.scopes.blocks[at].values.get((key, x.k))
        if found is not None:
            return found
        whole, self.scopes.blocks = self.scopes.blocks, self.scopes.blocks[: at + 1]
        n = (self.lane.extent.constant or 1) if self.lane and self.varies(x, env) else 1
        refs = self.declare(x.of.monoid, n)
        self._serial(x.of, refs, env)
        self.scopes.blocks = whole
        for k, r in enumerate(refs):
            self.scopes.blocks[at].values[(key, k)] = r
        return refs[x.k]

    def declare(self, m: Monoid, lanes: int) -> list[Ref]:
        """Accumulators of a monoid, set to its identity, in the innermost block."""
        refs = [Ref(self.scopes.name("s"), c.dtype, lanes) for c in m.identity]
        for r, c in zip(refs, m.identity, strict=True):
            self.scopes.add(Declare(r.name, Lit(c.value, c.dtype, lanes)))
            self.scopes.define(r.name)
        return refs

    def _serial(self, c: Comprehension, refs: list[Ref], env: Env) -> None:
        axes, lifts = scalar.opened(c)
        loops = [affine.var(self.scopes.name("k"), self.expr(a.extent, env)) for a in axes]
        inner = {**env, **{a: affine.as_expr(v) for a, v in zip(axes, loops, strict=True)}}
        for v in loops:
            self.scopes.push()
            self.scopes.define(v.name)
        memo: dict[Scalar, Value] = {}
        self.accumulate(c.monoid, refs, [self.tree(y, inner, memo) for y in lifts])
        for v in reversed(loops):
            body = self.scopes.pop()
            self.scopes.add(For(v, affine.const(0), v.extent, body))

    def accumulate(self, m: Monoid, refs: list[Ref], lifted: list[Value]) -> None:
        """state = combine(state, lifted), all components from the old state."""
        if len(refs) > 1:
            lifted = [self.scopes.bind(v) for v in lifted]
        new = [self._combine(e, refs, lifted) for e in m.combine]
        if len(new) > 1:
            new = [self._now(v) for v in new]
        for r, v in zip(refs, new, strict=True):
            self.scopes.add(Assign(r.name, v if v.lanes == r.lanes else Splat(v, v.dtype, r.lanes)))

    def _now(self, v: Value) -> Value:
        """A name for a value that reads accumulators: computed here, never shared or moved."""
        if isinstance(v, (Lit, Ref)):
            return v
        name = self.scopes.name("n")
        self.scopes.add(Let(name, v))
        self.scopes.define(name)
        return Ref(name, v.dtype, v.lanes)

    def _combine(self, e: Scalar, refs: list[Ref], lifted: list[Value]) -> Value:
        match e:
            case St():
                return refs[e.k] if e.side == "l" else lifted[e.k]
            case Const():
                return Lit(e.value, e.dtype)
            case Op():
                return self.calc(e.name, tuple(self._combine(a, refs, lifted) for a in e.args), e.dtype)
            case _:
                raise CompilerBug(f"{e} in a combine")
