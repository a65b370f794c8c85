"""The text form of tensor programs, one statement a line, and the keys made from it.

`parse_program` reads it back: `parse_program(print_program(p), weights_of(p))` equals p.

    tang-ir 1
    program mm
    dim n 1..64
    input x f32[n, 7]
    const w f32[7, 5] = sha256:…
    bind y f32[i0 < n, i1 < 5] = sum.f32(r0_0 < 7: x[i0, r0_0] * w[r0_0, i1]) @ Gemm "g"
    output y = y

`math strict` behind the program's name says that `Program.finite_math` does not hold. A branch is `if c -> results`, items,
`else`, items, `end`; a loop is `loop 5 while c : x = x0 -> x1, …` (name, initial and next tensor of what it carries;
`loop of t` takes the trip count from a tensor), items, `end`.

Scalars: `f32(1.5)` is a literal, `f32(e)` a cast, `idx(e)` an integer expression as a value,
`x[c, … | g >= 0, … else v]` a guarded read, `sum.f32(r < n: e)` a comprehension (`.k` a component of it),
`[e in lo..hi]` a computed coordinate.

Where a node is used twice, the bind lists definitions `%0 [r0_0 < 7] = e` (in brackets: axes that are not the
bind's own) between its head, which ends in `where`, and the line `= e`: the text is linear in the number of
nodes. Names that are not plain, or could be an axis or a word of this language, are quoted. Monoids without a
name of their own are declared.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from tang_edge.ir import affine, scalar
from tang_edge.ir.affine import Dim, Div, Expr, Max, Min, Mod, Opaque, Var
from tang_edge.ir.dtype import BY_NAME, DType, boolean, i64
from tang_edge.ir.ops import OPS
from tang_edge.ir.scalar import Comprehension, Const, Get, Idx, Monoid, Op, Read, Scalar, St
from tang_edge.ir.tensor import Alloc, Array, Bind, Constant, If, Item, Loop, Origin, Program, TensorType
from tang_edge.ir.verify_scalar import all_dims, dims_of

VERSION: Final = 1
INLINE: Final = 32  # constants of at most so many elements are written out
INFIX: Final = {"add": ("+", 2), "sub": ("-", 2), "mul": ("*", 3), "div": ("/", 3)} | {
    "lt": ("<", 1),
    "le": ("<=", 1),
    "eq": ("==", 1),
    "ne": ("!=", 1),
}
WORDS: Final = frozenset({"idx", "inf", "nan", "true", "false", "in", "else", "where", "of", "while", *BY_NAME, *OPS})
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_AXIS = re.compile(r"(i\d+|r\d+_\d+|monoid\d+|[lr]\d+)\Z")


def quoted(name: str) -> str:
    """A name of a tensor, dimension or node as the text writes it."""
    plain = _PLAIN.match(name) and not _AXIS.match(name) and name not in WORDS
    return name if plain else json.dumps(name)


@lru_cache(maxsize=64)
def known_monoids(dt: DType) -> Mapping[str, Monoid]:
    """The monoids that have a name, for a dtype."""
    if dt is boolean:
        return {"any": scalar.any_of(), "all": scalar.all_of()}
    makers = (scalar.sum_of, scalar.product_of, scalar.max_of, scalar.min_of, scalar.argmax_of)
    found = {m.name: m for m in (make(dt) for make in makers)}
    return found | {"argmax_last": scalar.argmax_of(dt, last=True)}


def number(value: float, dt: DType) -> str:
    """A literal that reads back as the same value of the dtype."""
    if dt is boolean:
        return "true" if value else "false"
    if not dt.is_float:
        return str(int(value))
    short = str(np.asarray(value, dtype=dt.numpy)[()])
    exact = value != value or float(np.asarray(short, dtype=dt.numpy)) == value
    return short if exact else repr(value)


# ---------------------------------------------------------------- expressions


class Printer:
    """Prints expressions. `tensor` spells tensor names; monoids to be declared collect in `monoids`."""

    def __init__(self, tensor: Callable[[str], str] = quoted) -> None:
        self.tensor = tensor
        self.monoids: dict[Monoid, str] = {}
        self.names: dict[Scalar | Comprehension, str] = {}

    def expr(self, e: Expr) -> str:
        """An integer expression."""
        out = ""
        for m, c in sorted(e.terms, key=lambda t: not t[0]):
            factors = [str(abs(c))] if abs(c) != 1 or not m else []
            term = "*".join(factors + [self.atom(a) for a in m])
            out += f" {'-' if c < 0 else '+'} {term}" if out else f"-{term}" if c < 0 else term
        return out or "0"

    def atom(self, a: affine.Atom) -> str:
        """A factor of an integer expression."""
        match a:
            case Var():
                return a.name
            case Dim():
                return quoted(a.name) if a.multiple == 1 else f"({quoted(a.name)}/{a.multiple})"
            case Div():
                return f"({self.expr(a.e)} // {a.k})" if _simple(a.e) else f"(({self.expr(a.e)}) // {a.k})"
            case Mod():
                return f"({self.expr(a.e)} % {a.k})" if _simple(a.e) else f"(({self.expr(a.e)}) % {a.k})"
            case Min():
                return f"min({self.expr(a.a)}, {self.expr(a.b)})"
            case Max():
                return f"max({self.expr(a.a)}, {self.expr(a.b)})"
            case Opaque():
                return f"[{self.scalar(a.value)} in {a.lo}..{a.hi}]"

    def axes(self, axes: Sequence[Var]) -> str:
        """Axes with their extents."""
        return ", ".join(f"{a.name} < {self.expr(a.extent)}" for a in axes)

    # ------------------------------------------------------------ scalars

    def scalar(self, x: Scalar, level: int = 0) -> str:
        """A scalar expression, in parentheses when it binds less tightly than `level`."""
        key = x.of if isinstance(x, Get) else x
        if key in self.names:
            return self.names[key] + _component(x)
        return self.spell(x, level)

    def spell(self, x: Scalar | Comprehension, level: int = 0) -> str:
        """Like `scalar`, for a node whose own name is not to be used."""
        match x:
            case Const():
                return f"{x.dtype}({number(x.value, x.dtype)})"
            case Idx():
                return f"idx({self.expr(x.e)})" if x.dtype is i64 else f"idx.{x.dtype}({self.expr(x.e)})"
            case St():
                return f"{x.side}{x.k}"
            case Read():
                return self.read(x)
            case Get():
                return self.spell(x.of) + _component(x)
            case Comprehension():
                lifts = ", ".join(self.scalar(y) for y in x.lifts)
                return f"{self.monoid(x.monoid)}({self.axes(x.axes)}: {lifts})"
            case Op(name="cast"):
                return f"{x.dtype}({self.scalar(x.args[0])})"
            case Op() if x.name in INFIX:
                sign, mine = INFIX[x.name]
                text = f"{self.scalar(x.args[0], mine)} {sign} {self.scalar(x.args[1], mine + 1)}"
                return f"({text})" if mine < level else text
            case Op():
                return f"{x.name}({', '.join(self.scalar(a) for a in x.args)})"

    def read(self, x: Read) -> str:
        """A read: coordinates, guard and fill."""
        v = x.view
        guard = "".join(f", {self.expr(g)} >= 0" for g in v.guard).replace(",", " |", 1)
        fill = f" else {number(v.fill.value, v.fill.dtype)}" if v.fill is not None else ""
        return f"{self.tensor(x.tensor)}[{', '.join(map(self.expr, v.coords))}{guard}{fill}]"

    def monoid(self, m: Monoid) -> str:
        """The name of a monoid, declared when it has none of its own."""
        if known_monoids(m.identity[0].dtype).get(m.name) is m:
            return f"{m.name}.{m.identity[0].dtype}"
        return self.monoids.setdefault(m, f"monoid{len(self.monoids)}")

    def declaration(self, m: Monoid) -> str:
        """The line that declares a monoid."""
        flags = (" commutative" if m.commutative else "") + (" exact" if m.exact else "")
        ids = ", ".join(map(self.spell, m.identity))
        names, self.names = self.names, {}
        combine = ", ".join(map(self.spell, m.combine))
        self.names = names
        return f"monoid {self.monoids[m]} {json.dumps(m.name)}{flags} ({ids}) = {combine}"

    # ------------------------------------------------------------ binds

    def bind(self, b: Bind) -> Iterator[str]:
        """The lines of a bind."""
        target = f" -> {self.tensor(b.store.tensor)}[{', '.join(map(self.expr, b.store.coords))}]" if b.store else ""
        head = f"bind {self.tensor(b.name)} {b.expr.dtype}[{self.axes(b.axes)}]{target}"
        shared = _shared(b.expr)
        self.names = {}
        lines = []
        for n, x in enumerate(shared):
            inside = [v for v in _outer_axes(x) if v not in b.axes]
            lines.append(f"  %{n}{f' [{self.axes(inside)}]' if inside else ''} = {self.spell(x)}")
            self.names[x] = f"%{n}"
        body = self.scalar(b.expr)
        self.names = {}
        yield from (
            [f"{head} where", *lines, f"  = {body}{origins(b.origin)}"] if lines else [f"{head} = {body}{origins(b.origin)}"]
        )


def _simple(e: Expr) -> bool:
    """True when e reads as one operand of // and %."""
    return len(e.terms) == 1 and e.terms[0][1] == 1 and len(e.terms[0][0]) == 1


def _component(x: Scalar) -> str:
    return f".{x.k}" if isinstance(x, Get) and len(x.of.monoid.identity) > 1 else ""


def origins(origin: Sequence[Origin]) -> str:
    """The model nodes of an item."""
    return "".join(f" @ {quoted(o.op)} {json.dumps(o.node)}" for o in origin)


def _outer_axes(x: Scalar | Comprehension) -> tuple[Var, ...]:
    """The free axes of a node, those in extents of others first."""
    found: dict[Var, None] = {}

    def visit(v: Var) -> None:
        for u in sorted(affine.variables(v.extent), key=lambda u: u.key):
            visit(u)
        found[v] = None

    whole = scalar.free(Get(x, 0) if isinstance(x, Comprehension) else x)
    for v in sorted(whole, key=lambda v: v.key):
        visit(v)
    return tuple(found)


@lru_cache(maxsize=1 << 12)
def _shared(x: Scalar) -> tuple[Scalar | Comprehension, ...]:
    """The nodes worth a definition: used more than once, longer than a name. Operands before users."""
    uses: dict[Scalar | Comprehension, int] = {}

    def visit(y: Scalar) -> None:
        key = y.of if isinstance(y, Get) else y
        uses[key] = uses.get(key, 0) + 1
        if uses[key] == 1:
            for z in scalar.children(y):
                visit(z)
            uses[key] = uses.pop(key)  # to the end: after its operands

    visit(x)
    return tuple(k for k, n in uses.items() if n > 1 and _long(k))


def _long(x: Scalar | Comprehension) -> bool:
    if isinstance(x, Read):
        return bool(x.view.guard or scalar.children(x))
    return isinstance(x, (Op, Comprehension)) or (isinstance(x, Idx) and bool(scalar.children(x)))


# ---------------------------------------------------------------- programs


def digest(data: Array) -> str:
    """The SHA-256 of an array's bytes, little-endian, row-major."""
    little = data.astype(data.dtype.newbyteorder("<"), copy=False)
    return hashlib.sha256(np.ascontiguousarray(little).tobytes()).hexdigest()


def weights_of(p: Program) -> dict[str, Array]:
    """The arrays that `print_program` leaves out, by digest: the second argument of `parse_program`."""
    return {digest(c.data): c.data for c in p.constants if c.data.size > INLINE}


def print_program(p: Program, weights: bool = False) -> str:
    """The text of a program. Constants of more than INLINE elements appear as digests unless `weights`."""
    printer = Printer()
    body = list(_items(p.items, printer, ""))
    lines = [f"tang-ir {VERSION}", f"program {quoted(p.name)}", *([] if p.finite_math else ["math strict"])]
    for d in p.dims:
        lines.append(f"dim {quoted(d.name)} {d.lo}..{d.hi}" + (f" multiple {d.multiple}" if d.multiple > 1 else ""))
    lines += [
        f"constraint {printer.expr(c.left)} == {printer.expr(c.right)} because {json.dumps(c.why)}" for c in p.constraints
    ]
    lines += [f"input {quoted(i.name)} {_type(i.type, printer)}" for i in p.inputs]
    lines += [f"const {quoted(c.name)} {_type(c.type, printer)} = {_data(c, weights)}" for c in p.constants]
    lines += [printer.declaration(m) for m in printer.monoids]
    lines += body
    lines += [f"output {quoted(name)} = {quoted(tensor)}" for name, tensor in p.outputs]
    lines += [f"state {quoted(s.input)} = {quoted(s.output)}" for s in p.states]
    return "\n".join(lines) + "\n"


def excerpt(p: Program, most: int) -> tuple[str, bool]:
    """The text of the items alone, whole lines up to `most` characters, and whether that is all of it."""
    lines: list[str] = []
    size = 0
    for line in _items(p.items, Printer(), ""):
        size += len(line) + 1
        if size > most:
            return "\n".join(lines), False
        lines.append(line)
    return "\n".join(lines), True


def _items(items: Sequence[Item], printer: Printer, indent: str) -> Iterator[str]:
    for item in items:
        match item:
            case Bind():
                yield from (indent + line for line in printer.bind(item))
            case Alloc():
                yield f"{indent}alloc {quoted(item.name)} {_type(item.type, printer)}"
            case If():
                results = ", ".join(map(quoted, item.results))
                yield f"{indent}if {quoted(item.cond)} -> {results}{origins(item.origin)}"
                yield from _items(item.then, printer, indent + "  ")
                yield f"{indent}else"
                yield from _items(item.orelse, printer, indent + "  ")
                yield f"{indent}end"
            case Loop():
                trip = f"of {quoted(item.trip)}" if isinstance(item.trip, str) else printer.expr(item.trip)
                cond = f" while {quoted(item.cond)}" if item.cond is not None else ""
                carried = ", ".join(f"{quoted(c.name)} = {quoted(c.initial)} -> {quoted(c.next)}" for c in item.carried)
                yield f"{indent}loop {trip}{cond} : {carried}{origins(item.origin)}"
                yield from _items(item.body, printer, indent + "  ")
                yield f"{indent}end"


def _type(t: TensorType, printer: Printer) -> str:
    return f"{t.dtype}[{', '.join(map(printer.expr, t.shape))}]"


def _data(c: Constant, weights: bool) -> str:
    if c.data.size > INLINE and not weights:
        return f"sha256:{digest(c.data)}"
    dt = c.type.dtype
    return "[" + ", ".join(number(v, dt) for v in c.data.reshape(-1).tolist()) + "]"


# ---------------------------------------------------------------- keys


def canonical_bind(bind: Bind, types: Mapping[str, TensorType]) -> str:
    """The text of a bind with tensors called t0, t1, … by first appearance, their types, and no origin."""
    names: dict[str, str] = {}
    printer = Printer(lambda name: names.setdefault(name, f"t{len(names)}"))
    lines = list(printer.bind(Bind(bind.name, bind.axes, bind.expr, bind.store)))
    lines += [printer.declaration(m) for m in printer.monoids]
    seen = [(short, types[name]) for name, short in names.items() if name != bind.name]
    lines += [f"{short} {_type(t, printer)}" for short, t in seen]
    ranged = sorted({f"dim {d.name} {d.lo}..{d.hi} multiple {d.multiple}" for d in _dims(bind, types, names)})
    return "\n".join(lines + ranged) + "\n"


def _dims(bind: Bind, types: Mapping[str, TensorType], names: Mapping[str, str]) -> set[Dim]:
    found = set(dims_of(bind.expr)).union(*(all_dims(a.extent) for a in bind.axes))
    if bind.store:
        found |= set[Dim]().union(*(all_dims(e) for e in bind.store.coords))
    return found.union(*(all_dims(e) for n in names if n != bind.name for e in types[n].shape))


def structural_key(bind: Bind, types: Mapping[str, TensorType]) -> str:
    """16 hex digits of the SHA-256 of the IR version and the canonical text."""
    return hashlib.sha256(f"tang-ir {VERSION}\n{canonical_bind(bind, types)}".encode()).hexdigest()[:16]


def same_program(p: Program, q: Program) -> bool:
    """True when the programs are equal, constants compared by value (bit for bit)."""
    parts = [(p.name, q.name), (p.dims, q.dims), (p.inputs, q.inputs), (p.items, q.items)]
    parts += [(p.outputs, q.outputs), (p.states, q.states), (p.constraints, q.constraints)]
    mine, theirs = ([(c.name, c.type, digest(c.data)) for c in x.constants] for x in (p, q))
    return all(a == b for a, b in parts) and mine == theirs and p.finite_math == q.finite_math
