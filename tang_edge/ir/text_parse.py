"""Reads the text form of tensor programs (see `text`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tang_edge.ir.affine import Dim, Expr, Var
from tang_edge.ir.dtype import BY_NAME
from tang_edge.ir.scalar import Comprehension, Const, Monoid, Scalar
from tang_edge.ir.tensor import (
    Alloc,
    Array,
    Bind,
    Carry,
    Constant,
    Constraint,
    If,
    Input,
    Item,
    Loop,
    Origin,
    Program,
    State,
    Store,
    TensorType,
)
from tang_edge.ir.text_lex import Line, TextError
from tang_edge.ir.text_scalar import ScalarReader

__all__ = ["TextError", "parse_program"]

VERSIONS = (1,)


def parse_program(text: str, weights: Mapping[str, Array] | None = None) -> Program:
    """The program of a text. `weights` gives, by digest, the arrays that the text leaves out.

    Raises TextError, with the line, for a text that is no program or whose weights are missing. Blank lines
    and lines that begin with # are skipped.
    """
    return _Reader(text, weights or {}).program()


class _Reader:
    def __init__(self, text: str, weights: Mapping[str, Array]) -> None:
        rows = [(k + 1, row) for k, row in enumerate(text.splitlines())]
        self.rows = [Line(r, k) for k, r in rows if r.strip() and not r.lstrip().startswith("#")]
        self.at = 0
        self.weights = weights
        self.types: dict[str, TensorType] = {}
        self.dims: dict[str, Dim] = {}
        self.monoids: dict[str, Monoid] = {}
        self.result = Program("", (), (), (), (), ())

    def program(self) -> Program:
        """The whole text."""
        self._version()
        items: list[Item] = []
        while self.at < len(self.rows):
            line = self.rows[self.at]
            word = line.peek()[1]
            if word in ("bind", "alloc", "if", "loop"):
                items.append(self.item())
            else:
                self.at += 1
                line.next()
                self.statement(word, line)
                line.done()
        return replace(self.result, items=tuple(items))

    def _version(self) -> None:
        first = self.rows[0] if self.rows else Line("", 1)
        for word in ("tang", "-", "ir"):
            first.expect(word)
        version = first.integer()
        if version not in VERSIONS:
            raise first.error(f"version {version} of the text; this reads {VERSIONS}")
        first.done()
        self.at = 1

    def statement(self, word: str, line: Line) -> None:
        """A line outside items."""
        r = self.result
        match word:
            case "program":
                self.result = replace(r, name=line.name())
            case "math":
                line.expect("strict")
                self.result = replace(r, finite_math=False)
            case "dim":
                self.result = replace(r, dims=(*r.dims, self.dim(line)))
            case "constraint":
                self.result = replace(r, constraints=(*r.constraints, self.constraint(line)))
            case "input":
                given = Input(line.name(), self.type(line))
                self.types[given.name] = given.type
                self.result = replace(r, inputs=(*r.inputs, given))
            case "const":
                self.result = replace(r, constants=(*r.constants, self.constant(line)))
            case "monoid":
                self.monoid(line)
            case "output":
                self.result = replace(r, outputs=(*r.outputs, self.pair(line)))
            case "state":
                self.result = replace(r, states=(*r.states, State(*self.pair(line))))
            case _:
                raise line.error(f"unknown statement {word!r}")

    def scalars(self, line: Line) -> ScalarReader:
        """A reader of expressions on a line."""
        return ScalarReader(line, self.dims, self.types, self.monoids)

    def pair(self, line: Line) -> tuple[str, str]:
        """name = name."""
        left = line.name()
        line.expect("=")
        return left, line.name()

    def dim(self, line: Line) -> Dim:
        """A named dimension."""
        name, lo = line.name(), line.integer()
        line.expect("..")
        hi = line.integer()
        d = Dim(name, lo, hi, line.integer() if line.take("multiple") else 1)
        self.dims[name] = d
        return d

    def constraint(self, line: Line) -> Constraint:
        """An equality between sizes."""
        reader = self.scalars(line)
        left = reader.expr()
        line.expect("==")
        right = reader.expr()
        line.expect("because")
        return Constraint(left, right, line.string())

    def type(self, line: Line) -> TensorType:
        """dtype[extent, ...]."""
        dt = BY_NAME.get(line.next()[1])
        if dt is None:
            raise line.error("unknown dtype")
        line.expect("[")
        shape: list[Expr] = []
        while not line.take("]"):
            shape.append(self.scalars(line).expr())
            line.take(",")
        return TensorType(dt, tuple(shape))

    def constant(self, line: Line) -> Constant:
        """A constant with its values, or their digest."""
        name, t = line.name(), self.type(line)
        shape = [e.constant for e in t.shape]
        line.expect("=")
        kind, text = line.peek()
        if kind == "digest":
            line.next()
            data = self.weights.get(text.removeprefix("sha256:"))
            if data is None:
                raise line.error(f"no array given for the digest of constant {name}")
        else:
            data = np.asarray(self.values(line, t), dtype=t.dtype.numpy).reshape([n or 0 for n in shape])
        if list(data.shape) != shape or data.dtype != np.dtype(t.dtype.numpy):
            raise line.error(f"constant {name}: array of {data.dtype} {data.shape} for {t}")
        self.types[name] = t
        return Constant(name, data)

    def values(self, line: Line, t: TensorType) -> list[int | float | bool]:
        """[number, ...]."""
        line.expect("[")
        out: list[int | float | bool] = []
        while not line.take("]"):
            out.append(self.scalars(line).number(t.dtype))
            line.take(",")
        return out

    def monoid(self, line: Line) -> None:
        """A declared monoid."""
        name, own = line.name(), line.string()
        commutative, exact = bool(line.take("commutative")), bool(line.take("exact"))
        reader = self.scalars(line)
        line.expect("(")
        identity: list[Const] = []
        while not line.take(")"):
            value = reader.scalar()
            if not isinstance(value, Const):
                raise line.error("an identity is a literal")
            identity.append(value)
            line.take(",")
        line.expect("=")
        reader.state = tuple(c.dtype for c in identity)
        combine = [reader.scalar()]
        while line.take(","):
            combine.append(reader.scalar())
        self.monoids[name] = Monoid(own, tuple(identity), tuple(combine), commutative, exact)

    # ------------------------------------------------------------ items

    def item(self) -> Item:
        """The item that begins at the current line."""
        line = self.rows[self.at]
        self.at += 1
        match line.next()[1]:
            case "bind":
                return self.bind(line)
            case "alloc":
                made = Alloc(line.name(), self.type(line))
                self.types[made.name] = made.type
                line.done()
                return made
            case "loop":
                return self.loop(line)
            case _:
                return self.branches(line)

    def branches(self, line: Line) -> If:
        """An If with its branches."""
        cond = line.name()
        line.expect("->")
        results: list[str] = []
        while line.peek()[0] in ("name", "string"):
            results.append(line.name())
            line.take(",")
        origin = self.origins(line)
        then = self.branch("else")
        return If(cond, then, self.branch("end"), tuple(results), origin)

    def loop(self, line: Line) -> Loop:
        """A Loop with its body."""
        trip = line.name() if line.take("of") else self.scalars(line).expr()
        cond = line.name() if line.take("while") else None
        line.expect(":")
        carried: list[Carry] = []
        while line.peek()[0] in ("name", "string"):
            name, initial = self.pair(line)
            line.expect("->")
            carried.append(Carry(name, initial, line.name()))
            if initial not in self.types:
                raise line.error(f"unknown tensor {initial}")
            self.types[name] = self.types[initial]
            line.take(",")
        origin = self.origins(line)
        return Loop(trip, cond, tuple(carried), self.branch("end"), origin)

    def branch(self, last: str) -> tuple[Item, ...]:
        """Items up to the line `last`, which is consumed."""
        items: list[Item] = []
        while self.at < len(self.rows):
            if self.rows[self.at].take(last):
                self.rows[self.at].done()
                self.at += 1
                return tuple(items)
            items.append(self.item())
        raise TextError(f"the text ends before {last!r}")

    def bind(self, line: Line) -> Bind:
        """A bind, with its definitions."""
        name = line.name()
        dt = BY_NAME.get(line.next()[1])
        line.expect("[")
        reader = self.scalars(line)
        axes = reader.axes("]")
        reader.vars = {a.name: a for a in axes}
        store = self.store(line, reader)
        definitions: dict[str, Scalar | Comprehension] = {}
        if line.take("where"):
            line.done()
            line = self.definitions(axes, definitions)
        line.expect("=")
        reader = self.scalars(line)
        reader.vars, reader.definitions = {a.name: a for a in axes}, definitions
        expr = reader.scalar()
        if expr.dtype is not dt:
            raise line.error(f"{name} is declared {dt} but its expression is {expr.dtype}")
        made = Bind(name, axes, expr, store, self.origins(line))
        if store is None:
            self.types[name] = made.type
        return made

    def store(self, line: Line, reader: ScalarReader) -> Store | None:
        """-> tensor[coordinate, ...], where there is one."""
        if not line.take("->"):
            return None
        tensor = line.name()
        line.expect("[")
        coords: list[Expr] = []
        while not line.take("]"):
            coords.append(reader.expr())
            line.take(",")
        return Store(tensor, tuple(coords))

    def definitions(self, axes: tuple[Var, ...], known: dict[str, Scalar | Comprehension]) -> Line:
        """Reads `%n [axes] = e` lines into `known`; returns the line after them."""
        while self.at < len(self.rows):
            line = self.rows[self.at]
            self.at += 1
            kind, ref = line.peek()
            if kind != "ref":
                return line
            line.next()
            reader = self.scalars(line)
            reader.vars, reader.definitions = {a.name: a for a in axes}, known
            if line.take("["):
                reader.axes("]", visible=True)
            line.expect("=")
            known[ref] = reader.definition()
            line.done()
        raise TextError("the text ends inside a bind")

    def origins(self, line: Line) -> tuple[Origin, ...]:
        """The model nodes at the end of an item's line."""
        out: list[Origin] = []
        while line.take("@"):
            out.append(Origin(line.name(), line.string()))
        line.done()
        return tuple(out)
