"""What depends on constants alone: which binds run once at load (the prologue), and hoisting such parts out of other binds.

out[i] = x[i] * (g[i] / sqrt(v[i] + eps))   ->   c[i] = g[i] / sqrt(v[i] + eps)  (prologue) ;  out[i] = x[i] * c[i]
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from tang_edge.ir import affine, scalar
from tang_edge.ir.affine import Expr, Var
from tang_edge.ir.scalar import Const, Get, Idx, Read, Scalar
from tang_edge.ir.tensor import Bind, Item, Program, TensorType, map_items, out_axes
from tang_edge.rewrite.cost import size
from tang_edge.rewrite.graph import pinned_names, tensors_read

SMALL = 4096
"""A hoisted tensor of at most so many elements may be larger than the constants it is made of."""


def is_prologue(program: Program) -> frozenset[str]:
    """Names of the top-level binds that need only constants and known sizes: they run once, when a bundle is loaded."""
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
    """x mentions no named dimension."""
    seen: set[Scalar] = set()

    def ok(e: Expr) -> bool:
        return not affine.dims(e) and all(not affine.dims(v.extent) for v in affine.variables(e))

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


def compact(x: Scalar, types: Mapping[str, TensorType]) -> bool:
    """As a tensor over its free axes, x has known extents and is not much larger than what it is made of."""
    axes = scalar.free(x)
    if any(a.extent.constant is None for a in axes):
        return False
    sources = {r.tensor for r in scalar.reads(x)}
    elements = sum(size(out_axes(types[t].shape)) for t in sources)
    return size(tuple(axes)) <= max(elements, SMALL)


def hoist(program: Program) -> Program:
    """Every maximal constant-only part that computes something becomes a bind of its own, equal parts one bind.

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
        if not isinstance(x, (Read, Const, Idx)) and constant_only(x, self.known) and compact(x, self.types):
            return self.hoisted(x)
        if isinstance(x, Get):
            axes, lifts = scalar.opened(x.of)
            for a in axes:
                self.order[a] = len(self.order)
            new = tuple(self.visit(y) for y in lifts)
            return x if new == lifts else Get(scalar.comprehension(axes, x.of.monoid, new), x.k)
        return scalar.rebuild(x, self.visit)

    def places(self, r: Read) -> list[list[int]]:
        """Which axes each coordinate mentions: an order of reads that does not depend on fresh names."""
        return [sorted(self.order[v] for v in affine.variables(e) if v in self.order) for e in r.view.coords]

    def axes(self, x: Scalar) -> list[Var]:
        """The free axes of x, in the order in which its largest source has them: the copy keeps that layout."""
        place = dict(self.order)
        reads = sorted(scalar.reads(x), key=lambda r: (-len(r.view.coords), r.tensor, self.places(r)))
        for r in reads[:1]:
            for k, e in enumerate(r.view.coords):
                for v in affine.variables(e):
                    place[v] = k - len(r.view.coords)
        return sorted(scalar.free(x), key=lambda v: (place[v], self.order[v]))

    def hoisted(self, x: Scalar) -> Scalar:
        free = self.axes(x)
        axes = out_axes([a.extent for a in free])
        mapping = {a: affine.as_expr(b) for a, b in zip(free, axes, strict=True)}
        key = scalar.substitute(x, mapping), axes
        if key not in self.made:
            assert self.current is not None
            self.made[key] = Bind(self.fresh_name(self.current.name), axes, key[0], None, self.current.origin)
        made = self.made[key]
        return scalar.read(made.name, [affine.as_expr(a) for a in free], x.dtype)

    def fresh_name(self, stem: str) -> str:
        k = next(k for k in itertools.count() if f"{stem}.const{k}" not in self.names)
        self.names.add(f"{stem}.const{k}")
        return f"{stem}.const{k}"
