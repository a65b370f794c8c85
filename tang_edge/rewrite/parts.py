"""Weights larger than a binding, cut into parts.

    T[c]  ->  select(c0 < n1, T.0[c], select(c0 < n2, T.1[c - n1], ...))     a concatenation put in the place of T
    y[i] = f(T[i])  ->  alloc y ; y[i] = f(T.0[i]) ; y[i + n1] = f(T.1[i])    where i is an axis of the output

The second form is taken where it can be: no point tests anything. WebGPU guarantees bindings of 128 MiB ("Limits",
maxStorageBufferBindingSize); packing may pad a weight, hence the distance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tang_edge.ir import affine, scalar
from tang_edge.ir.affine import Expr, Var
from tang_edge.ir.dtype import i64
from tang_edge.ir.scalar import Read, Scalar
from tang_edge.ir.tensor import Alloc, Bind, Constant, If, Item, Loop, Program, Store, map_items, out_axes, walk
from tang_edge.rewrite.inline import body_at
from tang_edge.rewrite.simplify import simplify_bind

LARGEST = 96 << 20  # bytes of a weight as a device stores it; beyond, it is cut
WORD = 4  # bytes that an element takes at least: devices may widen narrow integers


@dataclass(frozen=True, slots=True)
class Cut:
    """A weight cut along one axis: where each part begins, and the whole's extent at the end."""

    constant: Constant
    axis: int
    bounds: tuple[int, ...]

    def parts(self) -> list[Constant]:
        """The parts as constants; along the first axis they share the memory of the whole."""
        out = []
        for k, (a, b) in enumerate(zip(self.bounds, self.bounds[1:], strict=False)):
            where = (*(slice(None) for _ in range(self.axis)), slice(a, b))
            out.append(Constant(self.name(k), np.ascontiguousarray(self.constant.data[where])))
        return out

    def name(self, k: int) -> str:
        """The name of part k."""
        return f"{self.constant.name}|part{k}"

    def producer(self, k: int) -> Bind:
        """The whole as far as part k holds it, 0 elsewhere."""
        t = self.constant.type
        axes = out_axes(t.shape)
        at = affine.as_expr(axes[self.axis])
        coords: list[Expr] = [affine.as_expr(a) for a in axes]
        coords[self.axis] = at - self.bounds[k]
        guard = (at - self.bounds[k], self.bounds[k + 1] - 1 - at)
        return Bind(self.constant.name, axes, scalar.read(self.name(k), coords, t.dtype, guard, scalar.const(0, t.dtype)))

    def whole(self) -> Bind:
        """The whole as a concatenation of its parts."""
        made = [self.producer(k) for k in range(len(self.bounds) - 1)]
        axis = made[0].axes[self.axis]
        return replace(made[0], expr=_chain(affine.as_expr(axis), self.bounds[1:], [b.expr for b in made]))


def _chain(at: Expr, ends: Sequence[int], values: Sequence[Scalar]) -> Scalar:
    """select(at < ends[0], values[0], select(at < ends[1], values[1], ...))."""
    out = values[-1]
    for end, value in zip(reversed(ends[:-1]), reversed(values[:-1]), strict=True):
        out = scalar.select(scalar.op("lt", scalar.idx(at), scalar.const(end, i64)), value, out)
    return out


def stored_bytes(constant: Constant) -> int:
    """Bytes that a constant takes at most on a device."""
    return int(constant.data.size) * max(WORD, constant.data.itemsize)


def cut_weights(program: Program) -> Program:
    """Every weight above LARGEST cut into parts of about equal size, and its readers rewritten."""
    for c in program.constants:
        if stored_bytes(c) > LARGEST:
            program = _apply(program, _cut(program, c))
    return program


def _cut(program: Program, c: Constant) -> Cut:
    """Along the axis that most readers have as an axis of their output; the earliest of equals."""
    count = -(-stored_bytes(c) // LARGEST)
    able = [k for k, n in enumerate(c.data.shape) if n >= count]
    if not able:
        able = [int(np.argmax(c.data.shape))]
    readers = [b for b in program.binds() if any(r.tensor == c.name for r in scalar.reads(b.expr))]
    best = max(able, key=lambda k: (sum(_output_axis(b, c.name, k) is not None for b in readers), -k))
    extent = c.data.shape[best]
    rows = max(1, LARGEST // (stored_bytes(c) // extent))
    count = -(-extent // rows)
    return Cut(c, best, tuple(extent * k // count for k in range(count + 1)))


def _output_axis(bind: Bind, tensor: str, axis: int) -> tuple[Var, int] | None:
    """(i, k) when a read of the tensor is at i + k along the axis, i an axis of the bind of a known extent."""
    for at in sorted({r.view.coords[axis] for r in scalar.reads(bind.expr) if r.tensor == tensor}, key=str):
        for v in bind.axes:
            rest = (at - affine.as_expr(v)).constant
            if rest is not None and v.extent.constant is not None:
                return v, rest
    return None


def _replaced(x: Scalar, tensor: str, instead: Callable[[Read], Bind]) -> Scalar:
    """x with every read of the tensor replaced by the expression of a bind, chosen for each."""

    def visit(y: Scalar) -> Scalar:
        if not any(r.tensor == tensor for r in scalar.reads(y)):
            return y
        z = scalar.rebuild(y, visit)
        return body_at(z, instead(z)) if isinstance(z, Read) and z.tensor == tensor else z

    return visit(x)


def _apply(program: Program, cut: Cut) -> Program:
    name = cut.constant.name
    whole = cut.whole()
    ifs = [i for i in walk(program.items) if isinstance(i, If)]
    loops = [i for i in walk(program.items) if isinstance(i, Loop)]
    bound = {r for i in ifs for r in i.results} | {c.next for i in loops for c in i.carried}  # these stay binds

    def rewrite(item: Item) -> Sequence[Item]:
        if not isinstance(item, Bind) or not any(r.tensor == name for r in scalar.reads(item.expr)):
            return (item,)
        found = _output_axis(item, name, cut.axis)
        if found is None or item.name in bound:
            return (simplify_bind(replace(item, expr=_replaced(item.expr, name, lambda r: whole))),)
        pieces = [_piece(item, cut, k, *found) for k in range(len(cut.bounds) - 1)]
        return (*(() if item.store else (Alloc(item.name, item.type),)), *(p for p in pieces if p is not None))

    constants = tuple(p for c in program.constants for p in (cut.parts() if c is cut.constant else (c,)))
    return replace(program.with_items(map_items(program.items, rewrite)), constants=constants)


def _piece(bind: Bind, cut: Cut, k: int, axis: Var, ahead: int) -> Bind | None:
    """The points of a bind that read part k at axis + ahead, stored where they belong; None where there are none."""
    extent = axis.extent.constant
    assert extent is not None, "an axis that reads a weight at axis + k is as long as the weight at most"
    start, end = max(0, cut.bounds[k] - ahead), min(extent, cut.bounds[k + 1] - ahead)
    if end <= start:
        return None
    own = Var(axis.name, affine.const(end - start))
    shift = {axis: affine.as_expr(own) + start}
    coords = bind.store.coords if bind.store else tuple(map(affine.as_expr, bind.axes))
    store = Store(bind.store.tensor if bind.store else bind.name, tuple(affine.substitute(c, shift) for c in coords))
    whole, part, at = cut.whole(), cut.producer(k), affine.as_expr(axis) + ahead
    body = _replaced(bind.expr, cut.constant.name, lambda r: part if r.view.coords[cut.axis] is at else whole)
    expr = scalar.substitute(body, shift)
    axes = tuple(own if a is axis else a for a in bind.axes)
    return simplify_bind(Bind(f"{bind.name}|{k}", axes, expr, store, bind.origin))
