"""Weights in the order in which a kernel walks them: a derived prologue bind, run once at load.

    w[c(o, r)]   ->   p[o // T, r..., o % T]      p[t, r..., u] = w[c(T·t + u, r)] where T·t + u < n, else 0

With T the width of the output tile the kernel then streams p from front to back with unit-stride vectors, and the last tile
is whole. It is a storage map of a constant: values and program are unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tang_edge.ir import affine, scalar
from tang_edge.ir.affine import Var
from tang_edge.ir.scalar import Read, Scalar
from tang_edge.ir.tensor import Bind, Origin, out_axes


def replace_read(x: Scalar, old: Scalar, new: Scalar) -> Scalar:
    """x with one node replaced, inside lifts too. The canonical axes of a fold name the same points in both."""
    memo: dict[Scalar, Scalar] = {}

    def go(y: Scalar) -> Scalar:
        if y is old:
            return new
        if y not in memo:
            match y:
                case scalar.Get():
                    lifts = tuple(go(z) for z in y.of.lifts)
                    memo[y] = y if lifts == y.of.lifts else scalar.Get(replace_lifts(y.of, lifts), y.k)
                case scalar.Op():
                    memo[y] = scalar.Op(y.name, tuple(go(a) for a in y.args), y.dtype)
                case _:
                    memo[y] = y
        return memo[y]

    return go(x)


def replace_lifts(c: scalar.Comprehension, lifts: tuple[Scalar, ...]) -> scalar.Comprehension:
    """The same reduction of other lifts over the same (canonical) axes."""
    return scalar.Comprehension(c.axes, c.monoid, lifts)


def constant_part(x: Scalar, read: Read) -> Scalar:
    """The greatest part of x that depends on `read` alone (a cast, a zero point subtracted): it is computed ahead too."""
    best: Scalar = read
    seen: set[Scalar] = set()

    def go(y: Scalar) -> None:
        nonlocal best
        if y in seen:
            return
        seen.add(y)
        alone = isinstance(y, scalar.Op) and scalar.reads(y) == {read} and scalar.free(y) == scalar.free(read)
        if alone and not scalar.comprehensions(y) and y.dtype.bits == 32 and scalar.reads(best) <= scalar.reads(y):
            best = y if best is read else best
        for z in scalar.children(y):
            go(z)

    go(x)
    return best


def packed(
    part: Scalar, read: Read, name: str, out: Var, walk: Sequence[Var], tile: int, origin: tuple[Origin, ...]
) -> tuple[Bind, Read]:
    """The prologue bind that lays `part` (around `read`) out along (out // tile, walk..., out % tile), and the read of it."""
    n = out.extent.constant or 1
    used = [a for a in walk if a in scalar.free(read) and a is not out and a.extent.constant != 1]
    shape = [-(-n // tile), *(a.extent.constant or 1 for a in used), tile]
    axes = out_axes(shape)
    at = affine.as_expr(axes[0]) * tile + affine.as_expr(axes[-1])
    single = {a: affine.const(0) for a in scalar.free(read) if a.extent.constant == 1}
    mapping = single | {out: at} | {a: affine.as_expr(v) for a, v in zip(used, axes[1:-1], strict=True)}
    moved = scalar.substitute(read, mapping)
    assert isinstance(moved, Read)
    zero = scalar.const(0, read.dtype)
    inside = scalar.read(read.tensor, moved.view.coords, read.dtype, (*moved.view.guard, affine.const(n) - 1 - at), zero)
    o = affine.as_expr(out)
    coords = [affine.floordiv(o, tile), *(affine.as_expr(a) for a in used), affine.mod(o, tile)]
    value = replace_read(scalar.substitute(part, mapping), moved, inside)
    return Bind(name, axes, value, None, origin), scalar.read(name, coords, part.dtype)


def rename_constants(bind: Bind, names: dict[str, str]) -> Bind:
    """The bind with constants read under other names (their copies in the packed region)."""

    def go(x: Scalar) -> Scalar:
        if isinstance(x, Read) and x.tensor in names:
            x = Read(names[x.tensor], x.view, x.dtype)
        match x:
            case scalar.Get():
                return scalar.Get(replace_lifts(x.of, tuple(go(y) for y in x.of.lifts)), x.k)
            case scalar.Op():
                return scalar.Op(x.name, tuple(go(a) for a in x.args), x.dtype)
            case _:
                return x if not scalar.children(x) else scalar.rebuild(x, go)

    return replace(bind, expr=go(bind.expr))
