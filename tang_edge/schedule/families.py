"""What the default schedules of all classes share: merging and ordering output loops, packing constants for a walk."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from tang_edge.ir import affine, scalar
from tang_edge.ir.affine import Expr, Var
from tang_edge.ir.scalar import Comprehension
from tang_edge.ir.tensor import Bind
from tang_edge.schedule.addresses import Placed, collapsible, place
from tang_edge.schedule.analysis import Access, typical
from tang_edge.schedule.nest import Nest, collapse, reorder
from tang_edge.schedule.pack import constant_part, packed, replace_read


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A bind ready to be lowered: prologue binds it needs, its nests (see `lower.lower`), and binds scheduled before it whose
    tensors are its scratch.
    """

    bind: Bind
    prologue: tuple[Bind, ...]
    nests: tuple[Nest, ...]
    before: tuple[Scheduled, ...] = ()


def step_of(e: Expr, v: Var) -> int | None:
    """The constant coefficient of v in e: 0, 1, ...; None when it varies or is symbolic."""
    c = affine.linear_coefficient(e, v)
    return None if c is None else c.constant


def _other_exprs(bind: Bind) -> list[Expr]:
    """Integer expressions that are no addresses: guards and index values."""
    found: list[Expr] = [g for r in scalar.reads(bind.expr) for g in r.view.guard]
    seen: set[scalar.Scalar] = set()

    def go(x: scalar.Scalar) -> None:
        if x in seen:
            return
        seen.add(x)
        if isinstance(x, scalar.Idx):
            found.append(x.e)
        if isinstance(x, scalar.Get):
            found.extend(a.extent for a in x.of.axes)
        for y in scalar.children(x):
            go(y)

    go(bind.expr)
    return found


def merged(n: Nest, placed: Mapping[str, Placed], store: Expr, keep: Collection[Var] = ()) -> Nest:
    """The nest with neighbouring output axes collapsed wherever addresses allow (outermost first in the store's order)."""
    reads = [placed[r.tensor].address(r.view.coords) for r in scalar.reads(n.bind.expr)]
    others = _other_exprs(n.bind)
    axes = [x.var for x in n.loops if not x.reduce and x.var not in keep and x.var.extent.constant != 1]
    changed = True
    while changed:
        changed = False
        for a in axes:
            for b in axes:
                addresses = [affine.substitute(e, n.index) for e in (*reads, store)]
                if a is not b and collapsible(a, b, addresses, others) and _adjacent(store, n, a, b):
                    n = collapse(n, a.name, b.name)
                    axes = [x.var for x in n.loops if x.var in axes or x.var.name == b.name]
                    axes = [x for x in axes if x is not a]
                    changed = True
                    break
            if changed:
                break
    return n


def _adjacent(store: Expr, n: Nest, a: Var, b: Var) -> bool:
    e = affine.substitute(store, n.index)
    return affine.linear_coefficient(e, a) is not None and affine.linear_coefficient(e, b) is not None


def order_outputs(n: Nest, store: Expr) -> Nest:
    """Output loops ordered by the stride of the store, greatest outside."""
    loops = [x for x in n.loops if not x.reduce]
    e = affine.substitute(store, n.index)

    def size(v: Var) -> int:
        c = affine.linear_coefficient(e, v)
        return typical(c) if c is not None else 1 << 40

    ranked = sorted(loops, key=lambda x: -size(x.var))
    return reorder(n, *(x.var.name for x in ranked)) if len(loops) > 1 else n


def points_axis(n: Nest, axis: Var, reads: Sequence[Access], store: Expr) -> Var | None:
    """The output axis tiled beside the vectors: one along which weights stand still, else the innermost that is long."""
    e = affine.substitute(store, n.index)
    found = [x.var for x in n.loops if not x.reduce and x.var.name != axis.name and x.var.extent.constant != 1]
    if not found:
        return None

    def rank(v: Var) -> tuple[int, int]:
        still = sum(1 for r in reads if v not in affine.variables(affine.substitute(r.address, n.index)))
        c = affine.linear_coefficient(e, v)
        return (still, -(typical(c) if c is not None else 1 << 40))

    return max(found, key=rank)


def placed_with(placed: Mapping[str, Placed], binds: Sequence[Bind]) -> dict[str, Placed]:
    """Places with those of row-major prologue binds added."""
    return {**placed, **{b.name: place(b.type) for b in binds}}


def reduced_order(fold: Comprehension, reads: Sequence[Access]) -> list[Var]:
    """Reduced axes, outermost first: those that guards mention, then by stride of the operands, unit stride innermost."""

    def key(v: Var) -> tuple[int, int]:
        guarded = any(r.guarded_by(v) for r in reads)
        steps = [r.step(v) for r in reads if r.moves(v) and not r.constant]
        return (0 if guarded else 1, -max((s if s is not None else 1 << 40 for s in steps), default=0))

    return sorted((v for v in fold.axes if v.extent.constant != 1), key=key)


def pack_constants(
    bind: Bind, reads: Sequence[Access], axis: Var, order: Sequence[Var], width: int, placed: Mapping[str, Placed]
) -> tuple[Bind, tuple[Bind, ...], int]:
    """Constant operands that move along the vector axis, re-laid in the order of the walk."""
    prologue: list[Bind] = []
    total = 0
    for r in reads:
        walk = [*(a for a in bind.axes if a is not axis), *order]
        free = {a for a in scalar.free(r.read) if a.extent.constant != 1}
        static = all(a.extent.constant is not None for a in free)
        if not (r.constant and static and axis in free and free <= {axis, *walk}):
            continue
        tag = "_".join(str(walk.index(a)) for a in walk if a in free)
        name = f"{r.read.tensor}|{bind.name}|{width}|{tag}|{len(prologue)}"
        part = constant_part(bind.expr, r.read)
        extra, read = packed(part, r.read, name, axis, walk, width, bind.origin)
        bind = replace(bind, expr=replace_read(bind.expr, part, read))
        prologue.append(extra)
        total += 4 * _count(extra)
    return bind, tuple(prologue), total


def _count(b: Bind) -> int:
    n = 1
    for a in b.axes:
        n *= a.extent.constant or 1
    return n
