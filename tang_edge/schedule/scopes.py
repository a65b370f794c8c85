"""Where statements go: nested blocks, each with the values it has computed.

A value is placed in the outermost block in which everything that it depends on is known (loop-invariant code motion), and is
computed once there (value numbering). A block is a loop body, a branch or the kernel itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tang_edge.ir import affine
from tang_edge.ir.affine import Expr, Var
from tang_edge.ir.kernel import (
    Calc,
    Extract,
    Holds,
    Int,
    Lanes,
    Let,
    LetInt,
    Lit,
    Load,
    Ref,
    Splat,
    Statement,
    Value,
)


@dataclass(slots=True)
class Block:
    """Statements so far, and the names of the values among them."""

    statements: list[Statement] = field(default_factory=list)
    values: dict[object, Ref] = field(default_factory=dict)
    ints: dict[Expr, Var] = field(default_factory=dict)


class Scopes:
    """The stack of open blocks."""

    def __init__(self) -> None:
        self.blocks: list[Block] = [Block()]
        self.level_of: dict[str, int] = {}
        self._count = 0

    def name(self, prefix: str) -> str:
        """A name that no other local of the kernel has; numbered in order, so that equal kernels have equal text."""
        self._count += 1
        return f"{prefix}{self._count}"

    @property
    def depth(self) -> int:
        """Level of the innermost open block."""
        return len(self.blocks) - 1

    def add(self, s: Statement, level: int | None = None) -> None:
        """Append a statement to the innermost block, or to that of a level."""
        self.blocks[self.depth if level is None else level].statements.append(s)

    def define(self, name: str, level: int | None = None) -> None:
        """A local of that name is known from the block of a level on (the innermost when None)."""
        self.level_of[name] = self.depth if level is None else level

    def push(self) -> Block:
        """Open a block."""
        self.blocks.append(Block())
        return self.blocks[-1]

    def pop(self) -> tuple[Statement, ...]:
        """Close the innermost block and give its statements."""
        return tuple(self.blocks.pop().statements)

    def level(self, e: Expr) -> int:
        """The outermost level at which an integer expression is known."""
        return max((self.level_of.get(v.name, 0) for v in affine.variables(e)), default=0)

    def value_level(self, v: Value) -> int:
        """The outermost level at which a value is known."""
        match v:
            case Lit():
                return 0
            case Ref():
                return self.level_of[v.name]
            case Int():
                return self.level(v.e)
            case Holds():
                return max((self.level(g) for g in v.guard), default=0)
            case Calc():
                return max((self.value_level(a) for a in v.args), default=0)
            case Splat() | Extract():
                return self.value_level(v.value)
            case Lanes():
                return max(self.value_level(a) for a in v.values)
            case Load():
                rows = [self.level_of[v.row]] if v.row else []
                return max(self.level(v.index), self.level_of.get(v.buffer, 0), *rows, 0)

    def bind(self, v: Value, prefix: str = "v") -> Value:
        """A name for the value, computed once at its own level."""
        if isinstance(v, (Lit, Ref)):
            return v
        level = self.value_level(v)
        known = self.blocks[level].values.get(v)
        if known is None:
            known = Ref(self.name(prefix), v.dtype, v.lanes)
            self.blocks[level].values[v] = known
            self.add(Let(known.name, v), level)
            self.define(known.name, level)
        return known

    def hoist(self, e: Expr) -> Expr:
        """e with the part that is known further out computed there: an address becomes base + offset in the inner loop."""
        level = self.level(e)
        inner = [(m, c) for m, c in e.terms if self.level(Expr(((m, c),))) == level or not m]
        outer = [(m, c) for m, c in e.terms if self.level(Expr(((m, c),))) < level and m]
        if len(outer) == 0 or (
            len(outer) == 1 and len(outer[0][0]) == 1 and isinstance(outer[0][0][0], Var) and outer[0][1] == 1
        ):
            return e
        base = Expr(tuple(outer))
        at = self.level(base)
        var = self.blocks[at].ints.get(base)
        if var is None:
            name = self.name("a")
            deeper = self.hoist(base) if at else base
            var = affine.var(name, max(1, min(affine.bounds(base)[1] + 1, affine.UNBOUNDED)))
            self.blocks[at].ints[base] = var
            self.add(LetInt(var, deeper), at)
            self.define(name, at)
        return Expr(tuple(inner)) + affine.as_expr(var)
