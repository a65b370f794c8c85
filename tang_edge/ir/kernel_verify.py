"""The invariants of kernels, checked after lowering and after legalizing. A violated one raises CompilerBug, numbered.

 1  Buffers, workgroup arrays, grid and lane variables and locals have names of their own: no name hides a visible one.
 2  A name is defined before it is used, in a block that is open at the use; a variable is used with its own extent.
 3  Operators have the arity and the types of `ops.OPS`; a Holds and a comparison give bool.
 4  Operands of an operator have equal lanes; a Splat repeats a scalar, Lanes holds that many scalars, an Extract takes
    an existing lane of a vector. Every number of lanes is a power of two.
 5  A Ref has the dtype and the lanes of its definition.
 6  An Assign goes to a declared local, with its dtype and lanes.
 7  Loads and stores name a known buffer or workgroup array. Stores go to workgroup memory or to the one writable buffer
    (loads of it are of regions that other binds have filled). In a legalized kernel, dtypes are those of the buffer.
 8  A load of a row names the row's buffer and stays within [0, span); the row is defined; the fill fits its dtype.
 9  Extents of lanes and sizes of workgroup arrays are positive constants; steps of loops are positive.
10  Barriers are reached by all lanes of a workgroup or by none: no When or For around one has a guard or bounds that
    depend on a lane or on data.
11  Between a store to workgroup memory and a load of the same array by another lane there is a barrier, and between a
    load and the next store too; both also around the back edge of a loop.
12  A value computed for a LetIndex is proved to lie in [0, extent) of its variable: it was clamped. (`unproved` lists those
    that are loaded as they are, clamped where constants were folded, and LetInts: the extent of a base is only a hint.)
13  Indices into workgroup memory are in [0, size) (those not proved are listed by `unproved`).
14  A store of a vector with `count` or `stride` stores a vector; both are integers known there.
15  A kernel writes something.
"""

from __future__ import annotations

from collections.abc import Sequence

from tang_edge.ir import affine
from tang_edge.ir.kernel import (
    Assign,
    Barrier,
    Calc,
    Declare,
    Extract,
    For,
    Kernel,
    Let,
    LetIndex,
    LetInt,
    Load,
    Ref,
    Row,
    Statement,
    Store,
    Value,
    When,
    exprs_of,
    statements,
    values_of,
)
from tang_edge.ir.kernel_values import Name, Touched, Values


def verify(kernel: Kernel, legal: bool = False, where: str = "") -> None:
    """Check all invariants; `legal` also those that hold only after `emit.legalize` (7: dtypes of buffers).

    Raises CompilerBug at `where` (a model node or a bind; the kernel's own key when it is empty).
    """
    _Checker(kernel, legal, False, where).run()


def unproved(kernel: Kernel) -> tuple[str, ...]:
    """Indices and integer locals that could not be proved to lie in their range: worth a look, not an error."""
    checker = _Checker(kernel, False, True)
    checker.run()
    return tuple(dict.fromkeys(checker.warnings))


class _Checker(Values):
    """Walks the statements of a kernel."""

    def run(self) -> None:
        k = self.k
        names = [*(b.name for b in k.buffers), *(s.name for s in k.shared)]
        if len(set(names)) != len(names):
            raise self.bug(1, f"buffers {names} are not unique")
        if sum(b.writable for b in k.buffers) > 1:
            raise self.bug(7, "more than one buffer is writable")
        for s in k.shared:
            if s.size <= 0:
                raise self.bug(9, f"workgroup array {s.name} has {s.size} elements")
        for v in k.grid:
            self.expr(v.extent)
        for v in (*k.grid, *k.lanes):
            self.define(v.name, Name(var=v, uniform=v in k.grid))
        for v in k.lanes:
            if (v.extent.constant or 0) <= 0:
                raise self.bug(9, f"lanes {v.name} have extent {v.extent}")
        self.block(k.body)
        if not any(isinstance(s, Store) and s.buffer in self.buffers for s in statements(k.body)):
            raise self.bug(15, "nothing is stored")

    # ------------------------------------------------------------ statements

    def block(self, body: Sequence[Statement]) -> None:
        """A block with a scope of its own."""
        self.names.append({})
        for s in body:
            self.statement(s)
        self.names.pop()

    def statement(self, s: Statement) -> None:
        for e in exprs_of(s):
            self.expr(e)
        for v in values_of(s):
            self.value(v)
        match s:
            case Let():
                v = s.value
                self.define(s.name, Name(v.dtype, v.lanes, uniform=self.steady(v), value=v))
            case Declare():
                self.define(s.name, Name(s.init.dtype, s.init.lanes, mutable=True, uniform=False))
            case Assign():
                self.assign(s)
            case LetInt() | LetIndex():
                self.integer(s)
            case Row():
                self.row(s)
            case Store():
                self.store(s)
            case For():
                self.loop(s)
            case When():
                self.when(s)
            case Barrier():
                if not self.uniform:
                    raise self.bug(10, "a barrier under control flow that differs between lanes")
                self.touched = Touched()

    def assign(self, s: Assign) -> None:
        n = self.find(s.name)
        if n is None or not n.mutable:
            raise self.bug(6, f"{s.name} is not declared")
        if (n.dtype, n.lanes) != (s.value.dtype, s.value.lanes):
            raise self.bug(6, f"{s.name} is {n.dtype} x {n.lanes}, assigned {s.value.dtype} x {s.value.lanes}")

    def integer(self, s: LetInt | LetIndex) -> None:
        extent = s.var.extent
        if isinstance(s, LetInt):
            self.define(s.var.name, Name(var=s.var, uniform=self.steady_expr(s.e)))
            if not self.proved(s.e, extent - 1 - s.e):
                self.warnings.append(f"{s.var} = {s.e} is not proved to be in [0, {extent})")
            return
        if s.value.lanes != 1 or not s.value.dtype.is_int:
            raise self.bug(12, f"index {s.var} from {s.value.dtype} x {s.value.lanes}")
        lo, hi = self.range(s.value)
        if lo < 0 or hi >= affine.bounds(extent)[1] + (0 if extent.constant is not None else 1):
            text = f"{s.var} in [{lo}, {hi}] is not clamped to [0, {extent})"
            if not self.loaded(s.value):
                raise self.bug(12, text)
            self.warnings.append(text)
        self.define(s.var.name, Name(var=s.var, uniform=self.steady(s.value)))

    def loaded(self, v: Value) -> bool:
        """True for an element of a buffer as it is: indices that were clamped when constants were folded."""
        match v:
            case Load():
                return True
            case Ref():
                n = self.find(v.name)
                return n is not None and n.value is not None and self.loaded(n.value)
            case Calc(op="cast"):
                return self.loaded(v.args[0])
            case Extract():
                return self.loaded(v.value)
            case _:
                return False

    def row(self, s: Row) -> None:
        b = self.buffers.get(s.buffer)
        if b is None:
            raise self.bug(8, f"row {s.name} of {s.buffer}, which is no buffer")
        if s.span <= 0:
            raise self.bug(8, f"row {s.name} spans {s.span}")
        if isinstance(s.fill, float) and not s.dtype.is_float:
            raise self.bug(8, f"row {s.name} of {s.dtype} is filled with {s.fill!r}")
        if self.legal and s.dtype is not b.dtype:
            raise self.bug(7, f"row {s.name} of {s.dtype} in a buffer of {b.dtype}")
        even = all(map(self.steady_expr, (s.base, *s.guard)))
        self.define(s.name, Name(s.dtype, row=s, uniform=even))

    def store(self, s: Store) -> None:
        v = s.value
        if s.buffer in self.shared:
            array = self.shared[s.buffer]
            self.held(array.dtype, v.dtype, s.buffer)
            self.inside(s.index, v.lanes, array.size, s.buffer)
            if s.buffer in self.touched.loaded:
                raise self.bug(11, f"{s.buffer} is stored to while lanes may still load from it")
            self.touched.stored.add(s.buffer)
        else:
            b = self.buffers.get(s.buffer)
            if b is None or not b.writable:
                raise self.bug(7, f"store to {s.buffer}, which is not writable")
            self.held(b.dtype, v.dtype, s.buffer)
        if v.lanes == 1 and (s.count is not None or s.stride is not None):
            raise self.bug(14, f"store of a scalar to {s.buffer} with a count or a stride")

    def loop(self, s: For) -> None:
        if s.step <= 0:
            raise self.bug(9, f"loop {s.var} by {s.step}")
        even = self.steady_expr(s.start) and self.steady_expr(s.stop)
        before, self.uniform = self.uniform, self.uniform and even
        for _ in range(2 if self.shared else 1):  # the second time with what the first left: the back edge (11)
            self.names.append({})
            self.define(s.var.name, Name(var=s.var, uniform=even))
            self.block(s.body)
            self.names.pop()
        self.uniform = before

    def when(self, s: When) -> None:
        even = all(map(self.steady_expr, s.guard))
        before, self.uniform = self.uniform, self.uniform and even
        entry = (set(self.touched.stored), set(self.touched.loaded))
        facts, self.facts = self.facts, (*self.facts, *s.guard)
        self.block(s.body)
        self.facts = facts
        after = self.touched
        self.touched = Touched(*entry)
        self.block(s.orelse)
        self.touched = Touched(self.touched.stored | after.stored, self.touched.loaded | after.loaded)
        self.uniform = before
