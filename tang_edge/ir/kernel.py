"""The kernel IR: a loop nest over flat buffers. What a schedule makes of one bind, and what the printer spells.

A kernel runs once for every point of its *grid* (row-major over `grid`, workgroups on a GPU, a range of iterations of a thread
on a CPU) and, inside, for every point of its *lanes* (invocations of a workgroup; none on a CPU). The rest are statements.

Integers are `affine.Expr` over loop variables, named dimensions and integer locals; values are `Value` nodes with a dtype
and a number of lanes of a vector (1 = scalar). Buffers are one-dimensional; indices count elements.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tang_edge.ir.affine import Expr, Var
from tang_edge.ir.dtype import DType

Number = int | float | bool


@dataclass(frozen=True, slots=True)
class Lit:
    """A literal."""

    value: Number
    dtype: DType
    lanes: int = 1


@dataclass(frozen=True, slots=True)
class Ref:
    """A local variable, by name."""

    name: str
    dtype: DType
    lanes: int = 1


@dataclass(frozen=True, slots=True)
class Int:
    """The value of an integer expression."""

    e: Expr
    dtype: DType
    lanes: int = 1


@dataclass(frozen=True, slots=True)
class Holds:
    """True when every expression of the conjunction is >= 0."""

    guard: tuple[Expr, ...]
    dtype: DType
    lanes: int = 1


@dataclass(frozen=True, slots=True)
class Calc:
    """An operator of `ops.OPS` (or cast) on values of equal lanes."""

    op: str
    args: tuple[Value, ...]
    dtype: DType
    lanes: int = 1


@dataclass(frozen=True, slots=True)
class Splat:
    """A scalar repeated in every lane."""

    value: Value
    dtype: DType
    lanes: int


@dataclass(frozen=True, slots=True)
class Lanes:
    """A vector made of scalars."""

    values: tuple[Value, ...]
    dtype: DType
    lanes: int


@dataclass(frozen=True, slots=True)
class Load:
    """buffer[index : index + lanes]. With `row` the index counts from the start of that row (see `Row`)."""

    buffer: str
    index: Expr
    dtype: DType
    lanes: int = 1
    row: str | None = None


@dataclass(frozen=True, slots=True)
class Extract:
    """One lane of a vector."""

    value: Value
    lane: int
    dtype: DType
    lanes: int = 1


Value = Extract | Lit | Ref | Int | Holds | Calc | Splat | Lanes | Load


@dataclass(frozen=True, slots=True)
class Let:
    """An immutable local."""

    name: str
    value: Value


@dataclass(frozen=True, slots=True)
class LetInt:
    """An immutable integer local, used in expressions as the variable itself."""

    var: Var
    e: Expr


@dataclass(frozen=True, slots=True)
class LetIndex:
    """An integer local whose value is computed from data (gather), already clamped to [0, var.extent)."""

    var: Var
    value: Value


@dataclass(frozen=True, slots=True)
class Declare:
    """A mutable local: an accumulator."""

    name: str
    init: Value


@dataclass(frozen=True, slots=True)
class Assign:
    """name = value, for a declared local."""

    name: str
    value: Value


@dataclass(frozen=True, slots=True)
class Row:
    """A run of a buffer that starts at `base`, or, where the guard does not hold, a run that is `fill` everywhere.

    `span` bounds the indices that loads use from it. The guard is decided once, outside the loop that walks along the row.
    """

    name: str
    buffer: str
    base: Expr
    guard: tuple[Expr, ...]
    fill: Number
    span: int
    dtype: DType


@dataclass(frozen=True, slots=True)
class Store:
    """buffer[index : index + lanes] = value; with `count`, only the first `count` lanes; `stride` between lanes."""

    buffer: str
    index: Expr
    value: Value
    count: Expr | None = None
    stride: Expr | None = None


@dataclass(frozen=True, slots=True)
class For:
    """Serial loop: var runs from `start` (inclusive) to `stop` (exclusive) by `step`."""

    var: Var
    start: Expr
    stop: Expr
    body: tuple[Statement, ...]
    step: int = 1


@dataclass(frozen=True, slots=True)
class When:
    """The body runs where every expression of the guard is >= 0, else `orelse`."""

    guard: tuple[Expr, ...]
    body: tuple[Statement, ...]
    orelse: tuple[Statement, ...] = ()


@dataclass(frozen=True, slots=True)
class Barrier:
    """All lanes of a workgroup reach it before any goes on; workgroup memory written before is seen after."""


Statement = Let | LetInt | LetIndex | Declare | Assign | Row | Store | For | When | Barrier


@dataclass(frozen=True, slots=True)
class Buffer:
    """A buffer parameter: a tensor in its storage layout. `writable` for the one the kernel makes. `lanes`: the element of its
    declaration, where memory is addressed in whole vectors (`emit.vectors`); indices still count scalars.
    """

    name: str
    tensor: str
    dtype: DType
    writable: bool
    lanes: int = 1


@dataclass(frozen=True, slots=True)
class Shared:
    """Workgroup memory of a kernel: `size` scalars, declared in elements of `lanes`."""

    name: str
    dtype: DType
    size: int
    lanes: int = 1


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel. `key` is the structural name; `tag` says which family of schedules it came from."""

    key: str
    buffers: tuple[Buffer, ...]
    shared: tuple[Shared, ...]
    grid: tuple[Var, ...]
    lanes: tuple[Var, ...]
    body: tuple[Statement, ...]
    tag: str = "default"

    @property
    def workgroup(self) -> int:
        """Invocations of a workgroup."""
        n = 1
        for v in self.lanes:
            n *= v.extent.constant or 1
        return n


def statements(body: Sequence[Statement]) -> Iterator[Statement]:
    """Every statement, in order, nested ones after the statement that holds them."""
    for s in body:
        yield s
        match s:
            case For():
                yield from statements(s.body)
            case When():
                yield from statements(s.body)
                yield from statements(s.orelse)
            case _:
                pass


def operands(v: Value) -> tuple[Value, ...]:
    """The values directly under a value."""
    match v:
        case Calc():
            return v.args
        case Splat() | Extract():
            return (v.value,)
        case Lanes():
            return v.values
        case Lit() | Ref() | Int() | Holds() | Load():
            return ()


def values_of(s: Statement) -> tuple[Value, ...]:
    """The values a statement evaluates itself (not those of nested statements)."""
    match s:
        case Let() | LetIndex() | Assign() | Store():
            return (s.value,)
        case Declare():
            return (s.init,)
        case LetInt() | Row() | For() | When() | Barrier():
            return ()


def exprs_of(s: Statement) -> tuple[Expr, ...]:
    """The integer expressions a statement evaluates itself, those inside its values included."""
    own: tuple[Expr, ...]
    match s:
        case LetInt():
            own = (s.e,)
        case Row():
            own = (s.base, *s.guard)
        case Store():
            own = (s.index, *(e for e in (s.count, s.stride) if e is not None))
        case For():
            own = (s.start, s.stop)
        case When():
            own = s.guard
        case _:
            own = ()
    return own + tuple(e for v in values_of(s) for e in _value_exprs(v))


def _value_exprs(v: Value) -> tuple[Expr, ...]:
    match v:
        case Int():
            return (v.e,)
        case Holds():
            return v.guard
        case Load():
            return (v.index,)
        case _:
            return tuple(e for o in operands(v) for e in _value_exprs(o))
