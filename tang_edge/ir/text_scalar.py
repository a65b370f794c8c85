"""Reads integer and scalar expressions of the text form, node for node: nothing is simplified."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from tang_edge.ir import affine, scalar
from tang_edge.ir.affine import Dim, Div, Expr, Max, Min, Mod, Opaque, Var
from tang_edge.ir.dtype import BY_NAME, DType, boolean, i64
from tang_edge.ir.ops import OPS
from tang_edge.ir.scalar import Comprehension, Const, Get, Idx, Monoid, Op, Read, Scalar, St, View
from tang_edge.ir.tensor import TensorType
from tang_edge.ir.text import INFIX, known_monoids
from tang_edge.ir.text_lex import Line

_OPERATORS: Final = {(sign, level): name for name, (sign, level) in INFIX.items()}
_LEVELS: Final = {level: tuple(s for s, at in _OPERATORS if at == level) for level in (1, 2, 3)}
_SPECIAL: Final = {"inf": float("inf"), "nan": float("nan")}


class ScalarReader:
    """Reads expressions. `vars`: the axes in scope, `definitions`: the %n, `state`: the dtypes of St."""

    def __init__(
        self,
        line: Line,
        dims: Mapping[str, Dim],
        types: Mapping[str, TensorType],
        monoids: Mapping[str, Monoid],
    ) -> None:
        self.line, self.dims, self.types, self.monoids = line, dims, types, monoids
        self.vars: dict[str, Var] = {}
        self.definitions: Mapping[str, Scalar | Comprehension] = {}
        self.state: tuple[DType, ...] = ()

    # ------------------------------------------------------------ integer expressions

    def expr(self) -> Expr:
        """A sum of products of atoms."""
        negative = self.line.take("-") is not None
        total = self._term() * (-1 if negative else 1)
        while sign := self.line.take("+", "-"):
            total = total + self._term() * (1 if sign == "+" else -1)
        return total

    def _term(self) -> Expr:
        product = self._factor()
        while self.line.take("*"):
            product = product * self._factor()
        return product

    def _factor(self) -> Expr:
        kind, text = self.line.peek()
        if kind == "number":
            return affine.const(self.line.integer())
        if self.line.take("("):
            return self._parenthesis()
        if self.line.take("["):
            value = self.scalar()
            self.line.expect("in")
            lo = self.line.integer()
            self.line.expect("..")
            hi = self.line.integer()
            self.line.expect("]")
            return affine.as_expr(Opaque(value, lo, hi))
        if text in ("min", "max") and self.line.peek(1)[1] == "(":
            self.line.next()
            self.line.expect("(")
            a = self.expr()
            self.line.expect(",")
            b = self.expr()
            self.line.expect(")")
            return affine.as_expr(Min(a, b) if text == "min" else Max(a, b))
        return affine.as_expr(self._symbol(self.line.name(), quoted=kind == "string"))

    def _symbol(self, name: str, quoted: bool) -> Var | Dim:
        if name in self.vars and not quoted:
            return self.vars[name]
        if name not in self.dims:
            raise self.line.error(f"unknown axis or dimension {name!r}")
        return self.dims[name]

    def _parenthesis(self) -> Expr:
        """After "(": (e // k), (e % k), (n/m) or (e)."""
        e = self.expr()
        sign = self.line.take("//", "%", "/")
        if sign is not None:
            k = self.line.integer()
            if sign != "/":
                e = affine.as_expr(Div(e, k) if sign == "//" else Mod(e, k))
        self.line.expect(")")
        return e

    def axes(self, end: str, visible: bool = False) -> tuple[Var, ...]:
        """name < extent, ... up to `end`. With `visible`, each is in scope for the extents after it."""
        out: list[Var] = []
        while not self.line.take(end):
            name = self.line.name()
            self.line.expect("<")
            out.append(Var(name, self.expr()))
            if visible:
                self.vars[name] = out[-1]
            self.line.take(",")
        return tuple(out)

    # ------------------------------------------------------------ scalars

    def scalar(self) -> Scalar:
        """A scalar expression."""
        x = self.definition()
        if isinstance(x, Comprehension):
            raise self.line.error("a component (.0, .1, ...) of the comprehension is missing")
        return x

    def definition(self) -> Scalar | Comprehension:
        """A scalar expression, or a comprehension of several components."""
        return self._level(1)

    def _level(self, level: int) -> Scalar | Comprehension:
        if level > 3:
            return self._primary()
        x = self._level(level + 1)
        while sign := self.line.take(*_LEVELS[level]):
            y = self._level(level + 1)
            if isinstance(x, Comprehension) or isinstance(y, Comprehension):
                raise self.line.error("a component of a comprehension is missing")
            x = self._op(_OPERATORS[sign, level], (x, y))
        return x

    def _op(self, name: str, args: tuple[Scalar, ...]) -> Scalar:
        try:
            return scalar.op(name, *args)
        except TypeError as e:
            raise self.line.error(str(e)) from e

    def _primary(self) -> Scalar | Comprehension:
        kind, text = self.line.peek()
        after = self.line.peek(1)[1]
        if self.line.take("("):
            x = self.scalar()
            self.line.expect(")")
            return x
        if kind == "ref":
            self.line.next()
            if text not in self.definitions:
                raise self.line.error(f"{text} is not defined")
            return self._component(self.definitions[text])
        if after == "[":
            return self._read(self.line.name())
        if kind != "name":
            raise self.line.error(f"expected an expression, found {text!r}")
        self.line.next()
        return self._word(text, after)

    def _word(self, text: str, after: str) -> Scalar | Comprehension:
        if self.state and text[0] in "lr" and text[1:].isdigit() and int(text[1:]) < len(self.state):
            return St(text[0], int(text[1:]), self.state[int(text[1:])])
        if text == "idx":
            dt = self._dtype() if self.line.take(".") else i64
            self.line.expect("(")
            e = self.expr()
            self.line.expect(")")
            return Idx(e, dt)
        if text in BY_NAME:
            return self._literal_or_cast(BY_NAME[text])
        if after == "." or text in self.monoids:
            return self._comprehension(text)
        if text not in OPS:
            raise self.line.error(f"unknown word {text!r}")
        self.line.expect("(")
        args = [self.scalar()]
        while self.line.take(","):
            args.append(self.scalar())
        self.line.expect(")")
        return self._op(text, tuple(args))

    def _dtype(self) -> DType:
        name = self.line.next()[1]
        if name not in BY_NAME:
            raise self.line.error(f"unknown dtype {name!r}")
        return BY_NAME[name]

    def _literal_or_cast(self, dt: DType) -> Scalar:
        self.line.expect("(")
        kind, text = self.line.peek()
        literal = kind == "number" or text in ("-", "inf", "nan", "true", "false")
        x: Scalar = Const(self.number(dt), dt) if literal else Op("cast", (self.scalar(),), dt)
        self.line.expect(")")
        return x

    def number(self, dt: DType) -> int | float | bool:
        """A literal of a dtype."""
        if dt is boolean:
            word = self.line.take("true", "false")
            if word is None:
                raise self.line.error("expected true or false")
            return word == "true"
        if not dt.is_float:
            return self.line.integer()
        negative = self.line.take("-") is not None
        kind, text = self.line.next()
        if kind != "number" and text not in _SPECIAL:
            raise self.line.error(f"expected a number, found {text!r}")
        value = _SPECIAL[text] if text in _SPECIAL else float(np.asarray(text, dtype=dt.numpy))
        return -value if negative else value

    def _component(self, x: Scalar | Comprehension) -> Scalar | Comprehension:
        if isinstance(x, Comprehension) and self.line.take("."):
            return Get(x, self.line.integer())
        return x

    def _comprehension(self, name: str) -> Scalar | Comprehension:
        monoid = self.monoids.get(name)
        if self.line.take("."):
            monoid = known_monoids(self._dtype()).get(name)
        if monoid is None:
            raise self.line.error(f"unknown monoid {name!r}")
        self.line.expect("(")
        outer = self.vars
        axes = self.axes(":")
        self.vars = outer | {a.name: a for a in axes}
        lifts = [self.scalar()]
        while self.line.take(","):
            lifts.append(self.scalar())
        self.vars = outer
        self.line.expect(")")
        c = Comprehension(axes, monoid, tuple(lifts))
        return self._component(c) if len(monoid.identity) > 1 else Get(c, 0)

    def _read(self, tensor: str) -> Scalar:
        if tensor not in self.types:
            raise self.line.error(f"tensor {tensor!r} is not bound before it is read")
        dt = self.types[tensor].dtype
        self.line.expect("[")
        coords: list[Expr] = []
        guard: list[Expr] = []
        fill: Const | None = None
        while not self.line.take("]"):
            if self.line.take("|"):
                guard, fill = self._guard(dt)
                continue
            coords.append(self.expr())
            self.line.take(",")
        return Read(tensor, View(tuple(coords), tuple(guard), fill), dt)

    def _guard(self, dt: DType) -> tuple[list[Expr], Const | None]:
        guard: list[Expr] = []
        while not guard or self.line.take(","):
            guard.append(self.expr())
            self.line.expect(">=")
            if self.line.integer() != 0:
                raise self.line.error("a guard is an expression >= 0")
        return guard, Const(self.number(dt), dt) if self.line.take("else") else None
