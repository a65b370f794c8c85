"""The invariants of tensor programs, checked after each pass. A violated one raises CompilerBug, numbered.

 1  Names of inputs, constants, allocations and binds are unique (branches of an If may repeat each other's).
 2  Every tensor is bound before it is read. Tensors bound in a branch are visible in that branch only, except
    the results of the If. A bind with a Store is no tensor of its own.
 3  A read has one coordinate for each axis of its tensor.
 4  A read has the dtype of its tensor.
 5  The axes of a bind are called i0, i1, ... in order; their extents mention dimensions only.
 6  The variables free in a bind's expression are among its axes.
 7  Every read is in bounds where its guard holds. What cannot be proved is returned, not raised, unless it
    is out of bounds at every point.
 8  A view has a fill exactly when it has a guard; the fill has the dtype of the read.
 9  A monoid has as many identities as combine expressions, a comprehension as many lifts; the dtypes agree.
10  St occurs inside `combine` only, with components and dtypes of the monoid; it holds Const, Op, St only.
11  A Get names a component that exists.
12  Operators have the arity and the types of `ops.OPS`.
13  No extent is negative for every size (one that may be for some sizes is returned as unproved).
14  A Store writes a visible allocation of its dtype, with one coordinate an axis over the bind's axes,
    in bounds (unproved ones are returned).
15  The regions stored into an allocation have its number of elements together (else returned as unproved).
16  The condition of an If is a tensor of one bool element; both branches bind its results, with equal types.
17  Every named dimension is declared, once; constraints mention declared dimensions and no axis.
18  Outputs name visible tensors, caller names are unique. A state joins an input and an output of one type.
19  The axes of a comprehension have their canonical names, r{height}_{position}, and no extent mentions
    another axis beside it.
20  A monomial of a coordinate or guard has at most one Var outside Div, Mod, Min, Max and Opaque.
21  Literals fit their dtype; Idx is i32 or i64; a computed coordinate is an integer in a range lo <= hi.
22  The trip count of a Loop is an expression over dimensions or a visible tensor of one i64 element. A carried tensor has the
    type of its initial tensor, which is visible, and of its next one, which the body binds. The condition is a carried tensor
    of one bool element. The carried tensors, and no others of the body, are visible after the loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from tang_edge.ir import affine
from tang_edge.ir.affine import Dim, Expr
from tang_edge.ir.dtype import boolean, i64
from tang_edge.ir.prove import implied
from tang_edge.ir.scalar import Get, Read, free
from tang_edge.ir.tensor import Alloc, Bind, Constant, If, Input, Item, Loop, Program, Store, TensorType
from tang_edge.ir.verify_scalar import all_dims, bug, check_scalar, dims_of, is_sizes_only, nodes

__all__ = ["Unproved", "verify"]


@dataclass(frozen=True, slots=True)
class Unproved:
    """A condition that could not be proved: `expr` >= 0 in the bind or tensor called `where`."""

    invariant: int
    where: str
    expr: Expr
    what: str

    def __str__(self) -> str:
        return f"[{self.invariant}] {self.where}: {self.expr} >= 0 not proved ({self.what})"


def verify(program: Program) -> tuple[Unproved, ...]:
    """Checks all invariants. Returns what could not be proved; raises CompilerBug for what is violated."""
    checker = _Checker(program)
    checker.check_declarations()
    visible = checker.check_items(program.items, checker.given())
    checker.check_interface(visible)
    checker.check_regions()
    return tuple(dict.fromkeys(checker.unproved))


class _Checker:
    """Walks a program. A scope maps the tensors visible at a point to their types."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.dims = frozenset(program.dims)
        # the program's constraints hold when it runs
        sides = [(c.left, c.right) for c in program.constraints]
        self.facts = tuple(e for a, b in sides for e in (a - b, b - a) if not affine.nonneg(e))
        self.allocs: dict[str, TensorType] = {}
        self.stored: dict[str, Expr] = {}
        self.proved: set[tuple[Read, TensorType]] = set()
        self.unproved: list[Unproved] = []

    # ------------------------------------------------------------ program level

    def check_declarations(self) -> None:
        """Dimensions and constraints (17), types of the inputs (13)."""
        p = self.program
        names = [d.name for d in p.dims]
        if len(set(names)) != len(names):
            raise bug(17, f"dimensions {names} are not unique")
        for c in p.constraints:
            for e in (c.left, c.right):
                if not is_sizes_only(e):
                    raise bug(17, f"constraint {e} mentions an axis", c.why)
                self.declared(all_dims(e), c.why)
        for i in p.inputs:
            self.check_shape(i.type.shape, i.name)

    def given(self) -> dict[str, TensorType]:
        """The scope of inputs and constants (1)."""
        scope: dict[str, TensorType] = {}
        for t in chain[Input | Constant](self.program.inputs, self.program.constants):
            if t.name in scope:
                raise bug(1, "bound twice", t.name)
            scope[t.name] = t.type
        return scope

    def check_interface(self, scope: dict[str, TensorType]) -> None:
        """Outputs and states (18)."""
        p = self.program
        names = [name for name, _ in p.outputs]
        if len(set(names)) != len(names):
            raise bug(18, f"output names {names} are not unique")
        for name, tensor in p.outputs:
            if tensor not in scope:
                raise bug(18, f"tensor {tensor} does not exist", f"output {name}")
        inputs, outputs = {i.name: i.type for i in p.inputs}, dict(p.outputs)
        for s in p.states:
            if s.input not in inputs or s.output not in outputs:
                raise bug(18, f"no such input or output: {s}", "state")
            if inputs[s.input] != scope[outputs[s.output]]:
                raise bug(18, f"types differ: {s}", "state")

    def check_regions(self) -> None:
        """The elements stored into each allocation (15)."""
        for name, t in self.allocs.items():
            missing = _volume(t.shape) - self.stored.get(name, affine.const(0))
            if missing.constant != 0:
                self.unproved.append(Unproved(15, name, -missing, "elements that no store writes"))

    def declared(self, dims: Iterable[Dim], where: str) -> None:
        """Every dimension is declared (17)."""
        for d in dims:
            if d not in self.dims:
                raise bug(17, f"dimension {d.name} is not declared", where)

    def check_shape(self, shape: Sequence[Expr], where: str) -> None:
        """Extents mention declared dimensions only (5, 17) and are not negative (13)."""
        for e in shape:
            if not is_sizes_only(e):
                raise bug(5, f"extent {e} mentions an axis or data", where)
            self.declared(all_dims(e), where)
            self.check_extent(e, where)

    def check_extent(self, e: Expr, where: str) -> None:
        """An extent is not negative (13)."""
        if not implied(e):
            if implied(-1 - e):
                raise bug(13, f"extent {e} is negative", where)
            self.unproved.append(Unproved(13, where, e, "extent"))

    # ------------------------------------------------------------ items

    def check_items(self, items: Sequence[Item], scope: dict[str, TensorType]) -> dict[str, TensorType]:
        """The scope after the items."""
        scope = dict(scope)
        taken = set(scope)
        for item in items:
            if isinstance(item, If):
                added = self.check_if(item, scope)
            elif isinstance(item, Loop):
                added = self.check_loop(item, scope)
            else:
                added = {item.name: item.type}
                if isinstance(item, Alloc):
                    self.check_shape(item.type.shape, item.name)
                    self.allocs[item.name] = item.type
                else:
                    self.check_bind(item, scope)
            for name in added:
                if name in taken:
                    raise bug(1, "bound twice", name)
            taken |= set(added)
            if not (isinstance(item, Bind) and item.store):
                scope.update(added)
        return scope

    def check_if(self, item: If, scope: dict[str, TensorType]) -> dict[str, TensorType]:
        """An If (16); the types of its results."""
        t = scope.get(item.cond)
        where = f"if {item.cond}"
        if t is None:
            raise bug(2, "the condition is not bound", where)
        if t.dtype is not boolean or _volume(t.shape).constant != 1:
            raise bug(16, f"the condition is {t}", where)
        then, orelse = (self.check_items(branch, scope) for branch in (item.then, item.orelse))
        for name in item.results:
            if name in scope or name not in then or name not in orelse:
                raise bug(16, f"{name} is not bound by both branches", where)
            if then[name] != orelse[name]:
                raise bug(16, f"{name} is {then[name]} or {orelse[name]}", where)
        return {name: then[name] for name in item.results}

    def check_loop(self, item: Loop, scope: dict[str, TensorType]) -> dict[str, TensorType]:
        """A Loop (22); the types of its carried tensors."""
        where = f"loop {item.trip}"
        for name in item.given:
            if name not in scope:
                raise bug(2, f"{name} is not bound before it is read", where)
        if isinstance(item.trip, str):
            t = scope[item.trip]
            if t.dtype is not i64 or _volume(t.shape).constant != 1:
                raise bug(22, f"the trip count is {t}", where)
        else:
            self.check_shape([item.trip], where)
        carried = {c.name: scope[c.initial] for c in item.carried}
        if len(carried) != len(item.carried) or not carried.keys().isdisjoint(scope):
            raise bug(22, f"carried tensors {item.results} are bound twice", where)
        cond = None if item.cond is None else carried.get(item.cond)
        if item.cond is not None and (cond is None or cond.dtype is not boolean or _volume(cond.shape).constant != 1):
            raise bug(22, f"the condition {item.cond} is {cond or 'not carried'}", where)
        inside = self.check_items(item.body, scope | carried)
        for c in item.carried:
            if c.next not in inside or c.next in scope or c.next in carried:
                raise bug(22, f"the body does not bind {c.next}", where)
            if inside[c.next] != carried[c.name]:
                raise bug(22, f"{c.name} is {carried[c.name]}, then {inside[c.next]}", where)
        return carried

    def check_bind(self, b: Bind, scope: dict[str, TensorType]) -> None:
        """A bind: axes (5), free variables (6), nodes (8 to 12, 19 to 21), reads (2, 3, 4, 7), store (14)."""
        if [a.name for a in b.axes] != [f"i{k}" for k in range(len(b.axes))]:
            raise bug(5, f"axes {', '.join(map(str, b.axes))}", b.name)
        self.check_shape([a.extent for a in b.axes], b.name)
        try:
            check_scalar(b.expr)
        except type(bug(0, "")) as e:
            e.where = b.name
            raise
        outside = free(b.expr) - frozenset(b.axes)
        if outside:
            raise bug(6, f"free variables {sorted(f'{v} < {v.extent}' for v in outside)}", b.name)
        self.declared(dims_of(b.expr), b.name)
        for x in nodes(b.expr):
            if isinstance(x, Read):
                self.check_read(x, b, scope)
            elif isinstance(x, Get):
                for a in x.of.axes:
                    self.check_extent(a.extent, b.name)
        if b.store is not None:
            self.check_store(b, b.store, scope)

    def check_read(self, x: Read, b: Bind, scope: dict[str, TensorType]) -> None:
        """A read: bound (2), rank (3), dtype (4), in bounds (7)."""
        t = scope.get(x.tensor)
        if t is None:
            raise bug(2, f"{x.tensor} is not bound before it is read", b.name)
        if (x, t) in self.proved:
            return
        if len(t.shape) != len(x.view.coords):
            raise bug(3, f"{len(x.view.coords)} coordinates for {x.tensor}, which is {t}", b.name)
        if t.dtype is not x.dtype:
            raise bug(4, f"read of {x.tensor} as {x.dtype}, which is {t}", b.name)
        if self.in_bounds(7, b, x.view.coords, t, x.view.guard, str(x)):
            self.proved.add((x, t))

    def check_store(self, b: Bind, store: Store, scope: dict[str, TensorType]) -> None:
        """A store: target, dtype, rank, bounds (14)."""
        t = self.allocs.get(store.tensor)
        if t is None or store.tensor not in scope:
            raise bug(14, f"{store.tensor} is not an allocation", b.name)
        if t.dtype is not b.expr.dtype or len(t.shape) != len(store.coords):
            raise bug(14, f"store of {b.type} into {store.tensor}, which is {t}", b.name)
        for e in store.coords:
            if not affine.variables(e) <= frozenset(b.axes):
                raise bug(14, f"coordinate {e} mentions other axes", b.name)
        self.in_bounds(14, b, store.coords, t, (), f"store {store.tensor}")
        volume = _volume([a.extent for a in b.axes])
        self.stored[store.tensor] = self.stored.get(store.tensor, affine.const(0)) + volume

    def in_bounds(
        self, number: int, b: Bind, coords: Sequence[Expr], t: TensorType, guard: tuple[Expr, ...], what: str
    ) -> bool:
        """0 <= coordinate < extent where the guard holds; what is not proved goes to `unproved`."""
        good = True
        for c, n in zip(coords, t.shape, strict=True):
            for need in (c, n - 1 - c):
                if implied(need, guard) or (self.facts and implied(need, guard + self.facts)):
                    continue
                if not guard and implied(-1 - need):
                    raise bug(number, f"out of bounds everywhere: {what}", b.name)
                self.unproved.append(Unproved(number, b.name, need, what))
                good = False
        return good


def _volume(shape: Sequence[Expr]) -> Expr:
    total = affine.const(1)
    for e in shape:
        total = total * e
    return total
