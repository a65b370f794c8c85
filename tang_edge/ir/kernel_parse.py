"""Reads the text form of kernels (see `kernel_text`), node for node. A text that is none raises TextError with its line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from tang_edge.ir.affine import Dim, Expr, Var
from tang_edge.ir.dtype import BY_NAME, DType, boolean
from tang_edge.ir.kernel import (
    Assign,
    Barrier,
    Buffer,
    Calc,
    Declare,
    Extract,
    For,
    Holds,
    Int,
    Kernel,
    Lanes,
    Let,
    LetIndex,
    LetInt,
    Lit,
    Load,
    Ref,
    Row,
    Shared,
    Splat,
    Statement,
    Store,
    Value,
    When,
)
from tang_edge.ir.kernel_text import VERSION
from tang_edge.ir.ops import OPS
from tang_edge.ir.text_lex import Line
from tang_edge.ir.text_scalar import ScalarReader


def parse_kernel(text: str) -> Kernel:
    """The kernel of a text."""
    lines = [Line(t, n) for n, t in enumerate(text.splitlines(), 1) if t.strip()]
    return _Parser(lines).kernel()


class _Parser:
    def __init__(self, lines: list[Line]) -> None:
        self.lines, self.at = lines, 0
        self.dims: dict[str, Dim] = {}
        self.vars: dict[str, Var] = {}
        self.values: dict[str, tuple[DType, int]] = {}
        self.simple: Final[dict[str, Callable[[Line], Statement]]] = {
            "let": lambda x: Let(*self.named(x)),
            "var": lambda x: Declare(*self.named(x)),
            "set": lambda x: Assign(*self.named(x)),
            "int": self.integer,
            "index": self.index,
            "row": self.row,
            "store": self.store,
            "barrier": lambda _: Barrier(),
        }

    # ------------------------------------------------------------ the head

    def kernel(self) -> Kernel:
        """The whole text."""
        self.version()
        line = self.line("kernel")
        key, tag = line.string(), line.string()
        for line in self.every("dim"):
            self.dim(line)
        buffers = tuple(self.buffer(line) for line in self.every("buffer"))
        shared = tuple(self.workgroup(line) for line in self.every("shared"))
        grid = tuple(v for line in self.every("grid") for v in self.axes(line))
        lanes = tuple(v for line in self.every("lanes") for v in self.axes(line))
        body, _ = self.block()
        return Kernel(key, buffers, shared, grid, lanes, body, tag)

    def version(self) -> None:
        if not self.lines:
            raise Line("", 1).error("an empty text")
        line = self.lines[self.at]
        for word in ("tang", "-", "kernel"):
            line.expect(word)
        if line.integer() != VERSION:
            raise line.error(f"this reads version {VERSION} of kernels only")
        line.done()
        self.at += 1

    def line(self, word: str) -> Line:
        if self.at >= len(self.lines):
            raise self.lines[-1].error(f"expected a line '{word}' after this one")
        line = self.lines[self.at]
        line.expect(word)
        self.at += 1
        return line

    def every(self, word: str) -> Iterator[Line]:
        while self.at < len(self.lines) and self.lines[self.at].peek() == ("name", word):
            line = self.line(word)
            yield line
            line.done()

    def dim(self, line: Line) -> None:
        name, lo = line.string(), line.integer()
        line.expect("..")
        hi = line.integer()
        self.dims[name] = Dim(name, lo, hi, line.integer() if line.take("multiple") else 1)

    def buffer(self, line: Line) -> Buffer:
        name, tensor, dt = line.name(), line.string(), self.dtype(line)
        mode = line.take("read", "write")
        if mode is None:
            raise line.error("expected read or write")
        return Buffer(name, tensor, dt, mode == "write", line.integer() if line.take("by") else 1)

    def workgroup(self, line: Line) -> Shared:
        return Shared(line.name(), self.dtype(line), line.integer(), line.integer() if line.take("by") else 1)

    def dtype(self, line: Line) -> DType:
        name = line.name()
        if name not in BY_NAME:
            raise line.error(f"unknown dtype {name!r}")
        return BY_NAME[name]

    # ------------------------------------------------------------ expressions

    def exprs(self, line: Line) -> ScalarReader:
        reader = ScalarReader(line, self.dims, {}, {})
        reader.vars = self.vars
        return reader

    def expr(self, line: Line) -> Expr:
        return self.exprs(line).expr()

    def variable(self, line: Line) -> Var:
        """name < extent, in scope from the next expression on."""
        name = line.name()
        line.expect("<")
        return Var(name, self.expr(line))

    def axes(self, line: Line) -> Iterator[Var]:
        while True:
            v = self.variable(line)
            self.vars[v.name] = v
            yield v
            if not line.take(","):
                return

    def guard(self, line: Line) -> tuple[Expr, ...]:
        out: list[Expr] = []
        while True:
            out.append(self.expr(line))
            line.expect(">=")
            line.expect("0")
            if not line.take(","):
                return tuple(out)

    # ------------------------------------------------------------ statements

    def block(self, *ends: str) -> tuple[tuple[Statement, ...], str]:
        """Statements up to a line that is one of `ends` (or to the end of the text), and that word."""
        variables, values = self.vars, self.values
        self.vars, self.values = dict(variables), dict(values)
        out: list[Statement] = []
        found = ""
        while self.at < len(self.lines):
            line = self.lines[self.at]
            self.at += 1
            word = line.name()
            if word in ends:
                found = word
                line.done()
                break
            out.append(self.statement(word, line))
        else:
            if ends:
                raise self.lines[-1].error(f"expected {' or '.join(ends)} after this line")
        self.vars, self.values = variables, values
        return tuple(out), found

    def statement(self, word: str, line: Line) -> Statement:
        if word == "for":
            return self.loop(line)
        if word == "when":
            return self.when(line)
        if word not in self.simple:
            raise line.error(f"unknown statement {word!r}")
        s = self.simple[word](line)
        line.done()
        return s

    def loop(self, line: Line) -> For:
        v = self.variable(line)
        line.expect("from")
        start = self.expr(line)
        line.expect("to")
        stop = self.expr(line)
        step = line.integer() if line.take("by") else 1
        line.done()
        outer = dict(self.vars)
        self.vars[v.name] = v
        body, _ = self.block("end")
        self.vars = outer
        return For(v, start, stop, body, step)

    def when(self, line: Line) -> When:
        guard = () if line.peek()[0] == "end" else self.guard(line)
        line.done()
        body, end = self.block("else", "end")
        orelse = self.block("end")[0] if end == "else" else ()
        return When(guard, body, orelse)

    def named(self, line: Line) -> tuple[str, Value]:
        name = line.name()
        line.expect("=")
        v = self.value(line)
        self.values[name] = (v.dtype, v.lanes)
        return name, v

    def integer(self, line: Line) -> LetInt:
        v = self.variable(line)
        line.expect("=")
        e = self.expr(line)
        self.vars[v.name] = v
        return LetInt(v, e)

    def index(self, line: Line) -> LetIndex:
        v = self.variable(line)
        line.expect("=")
        x = self.value(line)
        self.vars[v.name] = v
        return LetIndex(v, x)

    def row(self, line: Line) -> Row:
        name, dt, buffer = line.name(), self.dtype(line), line.name()
        line.expect("[")
        base = self.expr(line)
        guard = self.guard(line) if line.take("|") else ()
        line.expect("else")
        fill = self.exprs(line).number(dt)
        line.expect("]")
        line.expect("span")
        return Row(name, buffer, base, guard, fill, line.integer(), dt)

    def store(self, line: Line) -> Store:
        buffer = line.name()
        line.expect("[")
        index = self.expr(line)
        line.expect("]")
        count = self.expr(line) if line.take("count") else None
        stride = self.expr(line) if line.take("stride") else None
        line.expect("=")
        return Store(buffer, index, self.value(line), count, stride)

    # ------------------------------------------------------------ values

    def typed(self, line: Line, text: str) -> tuple[DType, int]:
        """f32 or f32x4."""
        name, _, lanes = text.partition("x")
        if name not in BY_NAME or (lanes and not lanes.isdigit()):
            raise line.error(f"unknown type {text!r}")
        return BY_NAME[name], int(lanes or "1")

    def value(self, line: Line) -> Value:
        """A value."""
        name = line.name()
        if line.take("."):
            return self.node(name, line)
        if not line.take("("):
            if name not in self.values:
                raise line.error(f"{name} is not known here")
            return Ref(name, *self.values[name])
        if name == "holds":
            guard = () if line.peek()[1] == ")" else self.guard(line)
            line.expect(")")
            return Holds(guard, boolean)
        dt, lanes = self.typed(line, name)
        x = self.exprs(line).number(dt)
        line.expect(")")
        return Lit(x, dt, lanes)

    def node(self, name: str, line: Line) -> Value:
        """After the name and the dot: a type and the operands."""
        dt, lanes = self.typed(line, line.name())
        line.expect("(")
        v = self.build(name, dt, lanes, line)
        line.expect(")")
        return v

    def build(self, name: str, dt: DType, lanes: int, line: Line) -> Value:
        match name:
            case "idx":
                return Int(self.expr(line), dt, lanes)
            case "load":
                buffer = line.name()
                line.expect(",")
                index = self.expr(line)
                return Load(buffer, index, dt, lanes, line.name() if line.take(",") else None)
            case "lane":
                v = self.value(line)
                line.expect(",")
                return Extract(v, line.integer(), dt, lanes)
            case "splat":
                return Splat(self.value(line), dt, lanes)
            case "lanes":
                return Lanes(tuple(self.operands(line)), dt, lanes)
            case _ if name in OPS:
                return Calc(name, tuple(self.operands(line)), dt, lanes)
            case _:
                raise line.error(f"unknown operator {name!r}")

    def operands(self, line: Line) -> Iterator[Value]:
        while True:
            yield self.value(line)
            if not line.take(","):
                return


__all__ = ["parse_kernel"]
