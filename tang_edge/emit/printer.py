"""The one printer: a kernel body in the spelling of a dialect."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tang_edge.emit.ranges import I32
from tang_edge.emit.syntax import Dialect
from tang_edge.errors import CompilerBug
from tang_edge.ir import affine
from tang_edge.ir.affine import Atom, Dim, Div, Expr, Max, Min, Mod, Opaque, Var
from tang_edge.ir.dtype import BY_NAME, DType, Kind
from tang_edge.ir.kernel import (
    Assign,
    Barrier,
    Calc,
    Declare,
    Extract,
    For,
    Holds,
    Int,
    Lanes,
    Let,
    LetIndex,
    LetInt,
    Lit,
    Load,
    Ref,
    Row,
    Splat,
    Statement,
    Store,
    Value,
    When,
)
from tang_edge.ir.ops import OPS

_UNSIGNED = {f"i{n}": BY_NAME[f"u{n}"] for n in (8, 16, 32, 64)}


def _harmless(v: Value) -> bool:
    """True for a finite literal that an integer may be divided by."""
    if isinstance(v, Splat):
        return _harmless(v.value)
    return isinstance(v, Lit) and math.isfinite(v.value) and (v.dtype.is_float or v.value not in (0, -1))


def family(d: DType) -> str:
    """The key of an operator table: f, i or b."""
    return "f" if d.is_float else "b" if d.kind is Kind.BOOL else "i"


class Printer:
    """Spells statements. `dims` gives the local names of named dimensions."""

    def __init__(self, dialect: Dialect, dims: Mapping[Dim, str]) -> None:
        self.d, self.dims = dialect, dims
        self.rows: dict[str, Row] = {}
        self.fills: dict[tuple[str, object], int] = {}
        self._factor = ""

    # ------------------------------------------------------------ integers

    def expr(self, e: Expr) -> str:
        """An integer expression."""
        parts: list[str] = []
        for m, c in sorted(e.terms, key=lambda t: (not t[0],)):
            factors = [self.atom(a) for a in m]
            if abs(c) != 1 or not m:
                factors.insert(0, self.integer(abs(c)))
            if self._factor:
                factors.insert(0, self._factor)
            parts.append(("- " if c < 0 else "+ ") + " * ".join(factors))
        if not parts:
            return "0"
        head = parts[0][2:] if parts[0][0] == "+" else "-" + parts[0][2:]
        return " ".join([head, *parts[1:]])

    def integer(self, n: int) -> str:
        """A coefficient or a constant term of an integer expression."""
        return str(n)

    def number(self, e: Expr) -> str:
        """An integer expression as a value of its own, which may be greater than any index."""
        lo, hi = affine.bounds(e)
        if I32[0] <= lo and hi <= I32[1]:
            return self.expr(e)
        self._factor = self.d.wide
        text = self.expr(e)
        self._factor = ""
        return text

    def atom(self, a: Atom) -> str:
        """A factor of a term."""
        match a:
            case Var():
                return a.name
            case Dim():
                return self.dims[a]
            case Div():
                plain = affine.bounds(a.e)[0] >= 0
                return f"(({self.expr(a.e)}) / {a.k})" if plain else self.d.floor_div.format(a=self.expr(a.e), k=a.k)
            case Mod():
                plain = affine.bounds(a.e)[0] >= 0
                return f"(({self.expr(a.e)}) % {a.k})" if plain else self.d.floor_mod.format(a=self.expr(a.e), k=a.k)
            case Min():
                return self.d.minimum.format(a=self.expr(a.a), b=self.expr(a.b))
            case Max():
                return self.d.maximum.format(a=self.expr(a.a), b=self.expr(a.b))
            case Opaque():
                raise CompilerBug("a computed coordinate was not lowered")

    def guard(self, es: Sequence[Expr]) -> str:
        """A conjunction of e >= 0."""
        return " && ".join(f"({self.expr(e)} >= 0)" for e in es) or "true"

    # ------------------------------------------------------------ values

    def type(self, d: DType, lanes: int = 1) -> str:
        """The name of a type."""
        t = self.d.types.get(d.name)
        if t is None:
            raise CompilerBug(f"{self.d.name} has no {d.name}: legalize should have replaced it")
        return t if lanes == 1 else self.d.vector.format(type=t, dtype=d.name, lanes=lanes)

    def literal(self, value: object, d: DType) -> str:
        """A literal of a dtype."""
        t = self.type(d)
        if d.is_float and isinstance(value, float) and not math.isfinite(value):
            return self.d.literals[str(value)].format(t=t)
        text = repr(float(value)) if d.is_float else str(value).lower()  # type: ignore[arg-type]
        return self.d.literals[family(d)].format(value=text, t=t)

    def value(self, v: Value) -> str:
        """An expression of the language."""
        match v:
            case Lit():
                one = self.literal(v.value, v.dtype)
                return one if v.lanes == 1 else self.splat(one, v.dtype, v.lanes)
            case Ref():
                return v.name
            case Int():
                return self.d.int_value.format(e=self.number(v.e), t=self.type(v.dtype))
            case Holds():
                return f"({self.guard(v.guard)})"
            case Splat():
                return self.splat(self.value(v.value), v.dtype, v.lanes)
            case Extract():
                form = self.d.from_mask if v.dtype.kind is Kind.BOOL else self.d.extract
                return form.format(v=self.value(v.value), k=v.lane)
            case Lanes():
                values = ", ".join(self.lane(self.value(x), v.dtype) for x in v.values)
                return self.d.lanes.format(t=self.type(v.dtype, v.lanes), values=values)
            case Load():
                return self.load(v)
            case Calc():
                return self.calc(v)

    def lane(self, text: str, d: DType) -> str:
        """A scalar as a lane of a vector."""
        return self.d.to_mask.format(v=text) if d.kind is Kind.BOOL else text

    def splat(self, text: str, d: DType, lanes: int) -> str:
        """A scalar in every lane."""
        return self.d.splat.format(v=self.lane(text, d), t=self.type(d, lanes))

    def load(self, v: Load) -> str:
        """A read of a buffer, a workgroup array or a row."""
        i, t = self.expr(v.index), self.type(v.dtype, v.lanes)
        if v.row is None:
            return (self.d.load if v.lanes == 1 else self.d.vector_load).format(b=v.buffer, i=i, t=t)
        row = self.rows[v.row]
        fill = self.literal(row.fill, row.dtype)
        if row.span > self.d.row_span:
            if v.lanes > 1:
                fill = self.d.splat.format(v=fill, t=t)
                return self.d.row_far_vector_load.format(n=v.row, b=v.buffer, i=i, t=t, fill=fill)
            return self.d.row_far_load.format(n=v.row, b=v.buffer, i=i, fill=fill)
        form = self.d.row_load if v.lanes == 1 else self.d.row_vector_load
        return form.format(n=v.row, b=v.buffer, i=i, t=t, fill=fill)

    def calc(self, v: Calc) -> str:
        """An operator."""
        args = [self.value(a) for a in v.args]
        first = v.args[0].dtype
        t = self.type(v.dtype, v.lanes)
        if v.op == "cast":
            form = self._cast(first, v.dtype, v.lanes)
        else:
            form, args = self._form(v, args)
        d = v.dtype if v.op in ("cast", "select") else first
        unsigned = self.type(_UNSIGNED.get(first.name, first), v.lanes) if "{u}" in form else ""
        return form.format(*args, t=t, dtype=d.name, lanes=v.lanes, s=self.type(first, v.lanes), u=unsigned)

    def _form(self, v: Calc, args: list[str]) -> tuple[str, list[str]]:
        """The template of an operator, and its operands in the order of the template."""
        d = v.args[-1].dtype if v.op == "select" else v.args[0].dtype
        names = [v.op]
        if _harmless(v.args[-1]) or (OPS[v.op].commutes and _harmless(v.args[0])):
            names.insert(0, f"{v.op} literal")
        keys = [(name, k) for name in names for k in (d.name, family(d), "*")]
        tables = (self.d.ops,) if v.lanes == 1 else (self.d.vector_ops, self.d.ops)
        found = next(((table[k], k) for table in tables for k in keys if k in table), None)
        if found is None:
            raise CompilerBug(f"{self.d.name} does not spell {v.op} of {d}")
        form, (name, _) = found
        return form, args[::-1] if name != v.op and not _harmless(v.args[-1]) else args

    def _cast(self, a: DType, b: DType, lanes: int) -> str:
        prefix = "v" if lanes > 1 else ""
        for key in ((prefix + a.name, b.name), (prefix + family(a), family(b)), (prefix + "*", "*"), ("*", "*")):
            if key in self.d.casts:
                return self.d.casts[key]
        raise CompilerBug(f"{self.d.name} does not cast {a} to {b}")

    # ------------------------------------------------------------ statements

    def body(self, statements: Sequence[Statement], indent: int = 1) -> list[str]:
        """Lines of a block."""
        lines: list[str] = []
        pad = "  " * indent
        for s in statements:
            match s:
                case For():
                    head = self.d.loop.format(n=s.var.name, start=self.expr(s.start), stop=self.expr(s.stop), step=s.step)
                    lines += [pad + head + " {", *self.body(s.body, indent + 1), pad + "}"]
                case When():
                    lines += self._when(s, indent)
                case _:
                    lines += [pad + x for x in self.simple(s)]
        return lines

    def _when(self, s: When, indent: int) -> list[str]:
        pad = "  " * indent
        open_guard = [g for g in s.guard if not affine.nonneg(g)]
        head = f"if ({self.guard(open_guard)}) {{" if open_guard else "{"
        lines = [pad + head, *self.body(s.body, indent + 1)]
        if s.orelse and open_guard:
            lines += [pad + "} else {", *self.body(s.orelse, indent + 1)]
        return [*lines, pad + "}"]

    def simple(self, s: Statement) -> list[str]:
        """Lines of a statement that holds no others."""
        d = self.d
        match s:
            case Let():
                t = self.type(s.value.dtype, s.value.lanes)
                return [d.let.format(t=t, n=s.name, v=self.value(s.value))]
            case LetInt():
                return [d.let_int.format(n=s.var.name, v=self.expr(s.e))]
            case LetIndex():
                return [d.let_int.format(n=s.var.name, v=d.index_cast.format(v=self.value(s.value)))]
            case Declare():
                t = self.type(s.init.dtype, s.init.lanes)
                return [d.declare.format(t=t, n=s.name, v=self.value(s.init))]
            case Assign():
                return [d.assign.format(n=s.name, v=self.value(s.value))]
            case Row():
                return self._row(s)
            case Store():
                return [self._store(s)]
            case Barrier():
                return [d.barrier]
            case _:
                raise CompilerBug(f"{type(s).__name__} is not a simple statement")

    def _row(self, s: Row) -> list[str]:
        self.rows[s.name] = s
        far = s.span > self.d.row_span
        if not far:
            key = (s.dtype.name, s.fill)
            self.fills[key] = max(self.fills.get(key, 0), s.span)
        name = f"fill_{s.dtype.name}_{fill_name(s.fill)}"
        fields = {"t": self.type(s.dtype), "n": s.name, "b": s.buffer, "base": self.expr(s.base), "fill": name}
        return [x.format(guard=self.guard(s.guard), **fields) for x in (self.d.row_far if far else self.d.row)]

    def _store(self, s: Store) -> str:
        v = s.value
        t = self.type(v.dtype, v.lanes)
        fields = {
            "b": s.buffer,
            "i": self.expr(s.index),
            "v": self.value(v),
            "t": t,
            "lanes": v.lanes,
            "dtype": v.dtype.name,
        }
        count = self.expr(s.count) if s.count is not None else str(v.lanes)
        if s.stride is not None:
            return self.d.strided_store.format(count=count, stride=self.expr(s.stride), **fields)
        if v.lanes == 1:
            return self.d.store.format(**fields)
        if s.count is not None and not affine.nonneg(s.count - v.lanes):
            return self.d.partial_store.format(count=count, **fields)
        return self.d.vector_store.format(**fields)


def fill_name(value: object) -> str:
    """A fill value as a part of an identifier."""
    return "".join(c if c.isalnum() else {"-": "m", ".": "p", "+": "x"}.get(c, "_") for c in str(value))
