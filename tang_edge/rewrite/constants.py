"""What depends on constants alone: binds that run once at load (the prologue), and parts hoisted into such.

out[i] = x[i] * (g[i] / sqrt(v[i] + eps))   ->   c[i] = g[i] / sqrt(v[i] + eps)  (prologue) ;  out[i] = x[i] *
c[i]
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from tang_edge.ir import affine, scalar
from tang_edge.ir.affine import Expr, Var
from tang_edge.ir.dtype import boolean
from tang_edge.ir.scalar import Const, Get, Idx, Op, Read, Scalar
from tang_edge.ir.tensor import Bind, Item, Program, TensorType, map_items, out_axes
from tang_edge.rewrite.cost import nodes, size
from tang_edge.rewrite.graph import pinned_names, tensors_read

SMALL = 4096
"""A hoisted tensor of at most so many elements may be larger than the constants it is made of."""


def is_prologue(program: Program) -> frozenset[str]:
    """The top-level binds that need only constants and known sizes: they run once, at load."""
    known = {c.name for c in program.constants}
    pinned = pinned_names(program)
    found: set[str] = set()
    for item in program.items:
        if not isinstance(item, Bind) or item.store is not None or item.name in pinned:
            continue
        if known.issuperset(tensors_read(item.expr)) and static_bind(item):
            found.add(item.name)
            known.add(item.name)
    return frozenset(found)


def static_bind(bind: Bind) -> bool:
    """No extent and no index mentions a named dimension."""
    return all(a.extent.constant is not None for a in bind.axes) and sizeless(bind.expr)


def sizeless(x: Scalar) -> bool:
    """x mentions no named dimension, but for the extents of its free axes."""
    seen: set[Scalar] = set()

    def ok(e: Expr) -> bool:
        return not affine.dims(e)

    def go(y: Scalar) -> bool:
        if y in seen:
            return True
        seen.add(y)
        if isinstance(y, Idx) and not ok(y.e):
            return False
        if isinstance(y, Read) and not all(map(ok, y.view.coords + y.view.guard)):
            return False
        if isinstance(y, Get) and not all(ok(a.extent) for a in y.of.axes):
            return False
        return all(map(go, scalar.children(y)))

    return go(x)


def constant_only(x: Scalar, known: Collection[str]) -> bool:
    """x is a literal, or reads something and reads only tensors of `known`, whatever the sizes are."""
    if isinstance(x, Const):
        return True
    read = {r.tensor for r in scalar.reads(x)}
    return bool(read) and all(t in known for t in read) and sizeless(x)


def frame(x: Scalar, types: Mapping[str, TensorType], order: Mapping[Var, int]) -> list[tuple[Expr, Expr]] | None:
    """(coordinate, extent) of each axis of x as a tensor; None when it is far larger than what it is made of.

    Its free axes where they are few; else the coordinates at which its sources are read (a transposed
    convolution reads its weights at i % 2: two places, however many i there are).
    """
    reads = scalar.reads(x)
    limit = max(sum(size(out_axes(types[t].shape)) for t in {r.tensor for r in reads}), SMALL)
    place: dict[Expr, tuple[int, int]] = {}
    sources = sorted(reads, key=lambda r: (-len(r.view.coords), r.tensor, _places(r, order)))
    for r in sources[:1]:
        place.update({e: (-1, k) for k, e in enumerate(r.view.coords)})
    free = [(affine.as_expr(v), v.extent) for v in sorted(scalar.free(x), key=order.__getitem__)]
    by_axes = sorted(free, key=lambda p: place.get(p[0], (0, order[next(iter(affine.variables(p[0])))])))
    by_source = _source_frame(x, sources, types)
    best = by_axes if by_source is None or _elements(by_axes) <= _elements(by_source) else by_source
    return best if _elements(best) <= limit else None


def _source_frame(x: Scalar, sources: Sequence[Read], types: Mapping[str, TensorType]) -> list[tuple[Expr, Expr]] | None:
    """The distinct coordinates of all reads with their extents; None where axes occur elsewhere too."""
    if any(r.view.guard for r in sources) or not all(isinstance(y, (Op, Read, Const)) for y in nodes(x)):
        return None
    found: dict[Expr, Expr] = {}
    for r in sources:
        for e, n in zip(r.view.coords, types[r.tensor].shape, strict=True):
            if e.constant is None and found.setdefault(e, n) is not n:
                return None
    return list(found.items())


def _places(r: Read, order: Mapping[Var, int]) -> list[list[int]]:
    """Which axes each coordinate mentions: an order of reads that does not depend on fresh names."""
    return [sorted(order[v] for v in affine.variables(e) if v in order) for e in r.view.coords]


def _elements(axes: Sequence[tuple[Expr, Expr]]) -> float:
    return math.prod(n.constant if n.constant is not None else math.inf for _, n in axes)


def on_frame(x: Scalar, coordinates: Mapping[Expr, Expr]) -> Scalar:
    """x with each coordinate expression of its reads, or each free axis, replaced."""
    axes = {a: new for e, new in coordinates.items() if isinstance(a := _atom(e), Var)}
    if len(axes) == len(coordinates):
        return scalar.substitute(x, axes)

    def visit(y: Scalar) -> Scalar:
        if isinstance(y, Read):
            return scalar.read(y.tensor, [coordinates.get(e, e) for e in y.view.coords], y.dtype)
        return scalar.rebuild(y, visit)

    return visit(x)


def _atom(e: Expr) -> affine.Atom | None:
    """The atom that e is, if it is one."""
    if len(e.terms) == 1 and e.terms[0][1] == 1 and len(e.terms[0][0]) == 1:
        return e.terms[0][0][0]
    return None


def is_stored(x: Scalar) -> bool:
    """A read, perhaps cast: a wider copy of a constant is not worth its memory. Nor is a condition worth a tensor: comparing
    again is cheaper, and range analysis needs to see what was compared.
    """
    if x.dtype is boolean:
        return True
    while isinstance(x, Op) and x.name == "cast":
        (x,) = x.args
    return isinstance(x, (Read, Const, Idx))


def hoist(program: Program) -> Program:
    """Every maximal constant-only part that computes something becomes a bind of its own, equal parts one.

    Prologue binds come first in the result, so that a hoisted part may read them from anywhere.
    """
    work = _Hoist(program)

    def one(item: Item) -> Sequence[Item]:
        if not isinstance(item, Bind) or item.name in work.prologue:
            return (item,)
        return (work.bind(item),)

    items = map_items(program.items, one)
    first = [i for i in items if isinstance(i, Bind) and i.name in work.prologue]
    rest = [i for i in items if not (isinstance(i, Bind) and i.name in work.prologue)]
    return program.with_items([*first, *work.made.values(), *rest])


class _Hoist:
    def __init__(self, program: Program) -> None:
        self.types = program.types()
        self.names = set(self.types)
        self.prologue = is_prologue(program)
        self.known = self.prologue | {c.name for c in program.constants}
        self.made: dict[tuple[Scalar, tuple[Var, ...]], Bind] = {}
        self.order: dict[Var, int] = {}
        self.current: Bind | None = None

    def bind(self, bind: Bind) -> Bind:
        if not any(r.tensor in self.known for r in scalar.reads(bind.expr)):
            return bind
        self.current, self.order = bind, {a: k for k, a in enumerate(bind.axes)}
        self.memo: dict[Scalar, Scalar] = {}
        expr = self.visit(bind.expr)
        return bind if expr is bind.expr else replace(bind, expr=expr)

    def visit(self, x: Scalar) -> Scalar:
        if x not in self.memo:
            self.memo[x] = self.step(x)
        return self.memo[x]

    def step(self, x: Scalar) -> Scalar:
        if not any(r.tensor in self.known for r in scalar.reads(x)):
            return x
        if constant_only(x, self.known) and not is_stored(x):
            at = frame(x, self.types, self.order)
            if at is not None:
                return self.hoisted(x, at)
        if isinstance(x, Get):
            axes, lifts = scalar.opened(x.of)
            for a in axes:
                self.order[a] = len(self.order)
            new = tuple(self.visit(y) for y in lifts)
            return x if new == lifts else Get(scalar.comprehension(axes, x.of.monoid, new), x.k)
        return scalar.rebuild(x, self.visit)

    def hoisted(self, x: Scalar, at: Sequence[tuple[Expr, Expr]]) -> Scalar:
        axes = out_axes([n for _, n in at])
        moved = {e: affine.as_expr(a) for (e, _), a in zip(at, axes, strict=True)}
        key = on_frame(x, moved), axes
        if key not in self.made:
            assert self.current is not None
            self.made[key] = Bind(self.fresh_name(self.current.name), axes, key[0], None, self.current.origin)
        return scalar.read(self.made[key].name, [e for e, _ in at], x.dtype)

    def fresh_name(self, stem: str) -> str:
        k = next(k for k in itertools.count() if f"{stem}.const{k}" not in self.names)
        self.names.add(f"{stem}.const{k}")
        return f"{stem}.const{k}"
