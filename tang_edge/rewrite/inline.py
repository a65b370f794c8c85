"""Fusion is substitution: a bind's expression in place of a read of it. Deciding is elsewhere (`decide`).

    C[... P[c] if g else f ...]   ->   C[... select(g, body(c) with g on every read in it, f) ...]

The guard goes into *every* read of the body, so that none is out of bounds where g is false, and the select
around it keeps the fill: padding relu(x + 1) with 0 gives 0 there, not relu(0 + 1). The select is left out
where the body gives the fill anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tang_edge.ir import affine, scalar
from tang_edge.ir.affine import Expr, Opaque
from tang_edge.ir.dtype import boolean, i64
from tang_edge.ir.scalar import Const, Read, Scalar
from tang_edge.ir.tensor import Alloc, Bind, Store
from tang_edge.rewrite.address import invert
from tang_edge.rewrite.cost import sites_of
from tang_edge.rewrite.graph import merged_origins
from tang_edge.rewrite.simplify import simplify, simplify_bind


def substitute(producer: Bind, consumer: Bind) -> Bind:
    """The consumer with the producer's expression in place of every read of it. Legality is asked before."""
    expr = replace_reads(consumer.expr, {producer.name: producer})
    origin = merged_origins(producer.origin, consumer.origin)
    return simplify_bind(replace(consumer, expr=expr, origin=origin))


def reaxis(producer: Bind, consumer: Bind) -> tuple[Alloc, Bind]:
    """The consumer on the producer's axes, with the producer in it, stored where its elements belong.

    C[i] = f(P[i // 4, i % 4], D[i])   ->   alloc C ; C[4*a + b] = f(body(a, b), D[4*a + b])
    """
    (site,) = sites_of(consumer.expr, producer.name)
    where = invert(site.read.view.coords, consumer.axes, producer.axes)
    assert where is not None, "can_fuse checked that the view can be inverted"
    moved = replace(
        consumer,
        name=producer.name,
        axes=producer.axes,
        expr=scalar.substitute(consumer.expr, where),
        store=Store(consumer.name, tuple(where[a] for a in consumer.axes)),
    )
    return Alloc(consumer.name, consumer.type), substitute(producer, moved)


def replace_reads(x: Scalar, producers: dict[str, Bind]) -> Scalar:
    """x with reads of the binds replaced by their expressions, in lifts and computed coordinates too."""
    memo: dict[Scalar, Scalar] = {}

    def visit(y: Scalar) -> Scalar:
        if y not in memo:
            memo[y] = step(y)
        return memo[y]

    def step(y: Scalar) -> Scalar:
        if not any(r.tensor in producers for r in scalar.reads(y)):
            return y
        z = scalar.rebuild(y, visit)
        return body_at(z, producers[z.tensor]) if isinstance(z, Read) and z.tensor in producers else z

    return visit(x)


def body_at(r: Read, producer: Bind) -> Scalar:
    """The value of read r in terms of what its producer reads."""
    body = scalar.substitute(producer.expr, dict(zip(producer.axes, r.view.coords, strict=True)))
    if not r.view.guard or r.view.fill is None:
        return body
    guarded = with_guard(body, r.view.guard, r.view.fill)
    if simplify(outside(guarded)) is r.view.fill:
        return guarded
    return scalar.select(condition(r.view.guard), guarded, r.view.fill)


def condition(guard: Sequence[Expr]) -> Scalar:
    """The conjunction g >= 0 for each g, as a boolean."""
    zero = scalar.const(0, i64)
    tests = [scalar.op("le", zero, scalar.idx(g)) for g in guard]
    out: Scalar = scalar.const(True, boolean)
    for t in tests:
        out = t if isinstance(out, Const) else scalar.op("and", out, t)
    return out


def with_guard(x: Scalar, guard: Sequence[Expr], fill: Const) -> Scalar:
    """x with the guard added to every read. The value outside is not used: `fill`, or 0 of the dtype."""
    memo: dict[Scalar, Scalar] = {}

    def visit(y: Scalar) -> Scalar:
        if y not in memo:
            memo[y] = step(y)
        return memo[y]

    def step(y: Scalar) -> Scalar:
        if not scalar.reads(y):
            return y
        z = scalar.rebuild(y, visit)
        if not isinstance(z, Read):
            return z
        own = z.view.fill or (fill if fill.dtype is z.dtype else scalar.const(0, z.dtype))
        return scalar.read(z.tensor, z.view.coords, z.dtype, (*z.view.guard, *guard), own)

    return visit(x)


def outside(x: Scalar) -> Scalar:
    """The value of a guarded body where the guard is false: every read is its fill."""
    memo: dict[Scalar, Scalar] = {}

    def visit(y: Scalar) -> Scalar:
        if y not in memo:
            fill = y.view.fill if isinstance(y, Read) else None
            memo[y] = fill if fill is not None else scalar.rebuild(y, visit)
        return memo[y]

    return visit(x)


def is_gather(r: Read) -> bool:
    """True when a coordinate or guard of the read is computed from data."""
    return any(isinstance(a, Opaque) for e in r.view.coords + r.view.guard for a in affine.atoms(e))
