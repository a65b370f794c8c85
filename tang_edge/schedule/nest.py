"""A bind as an annotated loop nest, and the moves that transform it. Each move is a pure function Nest -> Nest.

    split        for v < n                ->  for vo < ceil(n/f): for vi < f          v = f·vo + vi
    collapse     for a < n: for b < m     ->  for v < n·m      when every address uses m·a + b
    reorder      any permutation that keeps each reduced loop inside the outputs' serial loops
    mark         the kind of a loop: GRID (workgroups, threads), LANE (invocations), SERIAL, UNROLL (registers), VECTOR
    stage        a read is copied to workgroup memory at a reduced loop, cooperatively by all lanes

Tails. When f does not divide n, `shift` moves the last tile back so that it overlaps its neighbour (v = min(f·vo, n - f) + vi,
needs n >= f: results are pure, so computing an element twice is harmless within one thread), `guard` clamps reads and
predicates stores, `over` lets vector lanes run past the end of a row into slack and cuts the store, `cut` shortens a serial
inner loop, `rest` (reduced axes) leaves the last n mod f elements to a scalar loop of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from tang_edge.errors import CompilerBug
from tang_edge.ir import affine
from tang_edge.ir.affine import Expr, Var
from tang_edge.ir.scalar import Comprehension, Read
from tang_edge.ir.tensor import Bind


class Kind(Enum):
    """How a loop is executed."""

    GRID = "grid"
    LANE = "lane"
    SERIAL = "serial"
    UNROLL = "unroll"
    VECTOR = "vector"


class Tail(Enum):
    """What happens where a split does not divide."""

    EXACT = "exact"
    SHIFT = "shift"
    GUARD = "guard"
    OVER = "over"
    CUT = "cut"
    REST = "rest"


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop of the nest. `start` is set for the outer loop of a shifted split: the variable that holds min(f·vo, n - f)."""

    var: Var
    kind: Kind
    reduce: bool
    shift: tuple[Var, Expr] | None = None


@dataclass(frozen=True, slots=True)
class Nest:
    """Loops from the outside in, and how the bind's axes are computed from them.

    index    bind axis (or axis of the tiled fold) -> expression over loop variables
    checks   (expression, extent): the expression must be < extent for the point to exist (GUARD and OVER tails)
    needs    expressions that must be >= 0 for this nest to be applicable (SHIFT: n - f)
    """

    bind: Bind
    fold: Comprehension | None
    loops: tuple[Loop, ...]
    index: Mapping[Var, Expr]
    checks: tuple[tuple[Expr, Expr, Tail], ...] = ()
    needs: tuple[Expr, ...] = ()
    staged: tuple[tuple[Read, str], ...] = ()
    tag: str = "default"
    log: tuple[str, ...] = field(default=())

    def loop(self, name: str) -> Loop:
        """The loop of that name."""
        for x in self.loops:
            if x.var.name == name:
                return x
        raise CompilerBug(f"no loop {name} in {[x.var.name for x in self.loops]}", where=self.bind.name)


def nest(bind: Bind, fold: Comprehension | None) -> Nest:
    """The plain nest: a serial loop for each output axis, then one for each reduced axis of `fold`. Axes of one element have
    no loop: their index is 0.
    """
    axes = [(a, False) for a in bind.axes] + [(a, True) for a in (fold.axes if fold else ())]
    loops = tuple(Loop(a, Kind.SERIAL, reduce) for a, reduce in axes if a.extent.constant != 1)
    kept = {x.var for x in loops}
    return Nest(bind, fold, loops, {a: affine.as_expr(a) if a in kept else affine.const(0) for a, _ in axes})


def _rename(n: Nest, mapping: Mapping[Var, Expr]) -> Nest:
    index = {a: affine.substitute(e, mapping) for a, e in n.index.items()}
    checks = tuple((affine.substitute(e, mapping), limit, tail) for e, limit, tail in n.checks)
    return replace(n, index=index, checks=checks)


def split(n: Nest, name: str, factor: int, tail: Tail = Tail.GUARD) -> Nest:
    """for v < n -> for v_o < ceil(n/f): for v_i < f. The tail is EXACT wherever f is known to divide n."""
    loop = n.loop(name)
    size = loop.var.extent
    rounded = size if tail is Tail.REST else size + (factor - 1)
    outer, inner = affine.var(name + "o", rounded // factor), affine.var(name + "i", factor)
    base, exact = affine.as_expr(outer) * factor, affine.multiple_of(size) % factor == 0
    shift: tuple[Var, Expr] | None = None
    needs, checks = n.needs, n.checks
    if exact:
        tail = Tail.EXACT
    elif tail is Tail.SHIFT:
        start = Var(name + "s", size - (factor - 1))
        shift, base = (start, affine.minimum(base, size - factor)), affine.as_expr(start)
        needs = (*needs, size - factor) if not affine.nonneg(size - factor) else needs
    else:
        checks = (*checks, (base + affine.as_expr(inner), size, tail))
    at = n.loops.index(loop)
    pair = (replace(loop, var=outer, shift=shift), replace(loop, var=inner))
    out = _rename(n, {loop.var: base + affine.as_expr(inner)})
    new_checks = (*out.checks, *checks[len(n.checks) :])
    log = (*n.log, f"split({name}, {factor}, {tail.value})")
    return replace(out, loops=(*n.loops[:at], *pair, *n.loops[at + 1 :]), needs=needs, checks=new_checks, log=log)


def reorder(n: Nest, *names: str) -> Nest:
    """The named loops, in that order, in the places that they occupy now."""
    wanted = [n.loop(x) for x in names]
    places = sorted(n.loops.index(x) for x in wanted)
    loops = list(n.loops)
    for place, loop in zip(places, wanted, strict=True):
        loops[place] = loop
    return replace(n, loops=tuple(loops), log=(*n.log, f"reorder({', '.join(names)})"))


def mark(n: Nest, kind: Kind, *names: str) -> Nest:
    """Set the kind of the named loops. UNROLL, LANE and VECTOR loops need constant extents."""
    for name in names:
        loop = n.loop(name)
        if kind in (Kind.UNROLL, Kind.LANE, Kind.VECTOR) and loop.var.extent.constant is None:
            raise CompilerBug(f"{kind.value} of a loop of symbolic extent {loop.var.extent}", where=n.bind.name)
        at = n.loops.index(loop)
        n = replace(n, loops=(*n.loops[:at], replace(loop, kind=kind), *n.loops[at + 1 :]))
    return replace(n, log=(*n.log, f"{kind.value}({', '.join(names)})"))


def collapse(n: Nest, first: str, second: str) -> Nest:
    """for a < n: for b < m -> for v < n·m. Legal when all addresses use m·a + b (`addresses.collapsible`): a = 0, b = v."""
    a, b = n.loop(first), n.loop(second)
    v = affine.var(second, a.var.extent * b.var.extent)
    out = _rename(n, {a.var: affine.const(0), b.var: affine.as_expr(v)})
    loops = tuple(replace(x, var=v) if x is b else x for x in n.loops if x is not a)
    return replace(out, loops=loops, log=(*n.log, f"collapse({first}, {second})"))


def stage(n: Nest, read: Read, at: str) -> Nest:
    """Copy what `read` touches inside the reduced loop `at` to workgroup memory when that loop turns."""
    n.loop(at)
    return replace(n, staged=(*n.staged, (read, at)), log=(*n.log, f"stage({read.tensor}, {at})"))
