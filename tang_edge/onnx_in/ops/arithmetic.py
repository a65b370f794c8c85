"""Operators of several tensors, element by element, with NumPy broadcasting."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Final

from tang_edge.ir import dtype
from tang_edge.ir.affine import Expr
from tang_edge.ir.scalar import Const, Scalar, cast, op, select
from tang_edge.onnx_in.node import Node
from tang_edge.onnx_in.table import operator

Binary = Callable[[Scalar, Scalar], Scalar]


def _named(name: str) -> Binary:
    return lambda a, b: op(name, a, b)


_BINARY: Final[dict[str, Binary]] = {
    "Add": _named("add"),
    "Sub": _named("sub"),
    "Mul": _named("mul"),
    "Div": _named("div"),
    "And": _named("and"),
    "Or": _named("or"),
    "Xor": _named("xor"),
    "BitwiseAnd": _named("and"),
    "BitwiseOr": _named("or"),
    "BitwiseXor": _named("xor"),
    "Equal": _named("eq"),
    "Less": _named("lt"),
    "LessOrEqual": _named("le"),
    "Greater": lambda a, b: op("lt", b, a),
    "GreaterOrEqual": lambda a, b: op("le", b, a),
}


def binary(n: Node, fn: Binary) -> None:
    """Bind output 0 to fn of inputs 0 and 1, broadcast."""
    a, b = n.x(0), n.x(1)
    n.emit(n.broadcast(a, b), lambda c: fn(n.pick(a, c), n.pick(b, c)))


@operator(*_BINARY, since=7)
def _binary(n: Node) -> None:
    binary(n, _BINARY[n.op])


@operator("Pow", since=7)
def _pow(n: Node) -> None:
    binary(n, power)


def power(x: Scalar, e: Scalar) -> Scalar:
    """x to the power e in the dtype of x; small constant exponents become products and roots."""
    if isinstance(e, Const) and x.dtype.is_float:
        value = float(e.value)
        if value in (1.0, 2.0, 3.0, 4.0):
            return reduce(lambda a, _: a * x, range(int(value) - 1), x) if value < 4 else (x * x) * (x * x)
        if value == 0.5:
            return op("sqrt", x)
        if value == -1.0:
            return 1 / x
    if x.dtype is e.dtype:
        return op("pow", x, e)
    if x.dtype.is_float:
        return op("pow", x, cast(e, x.dtype))
    wide = e.dtype if e.dtype.is_float else dtype.i64
    return cast(op("pow", cast(x, wide), cast(e, wide)), x.dtype)


@operator("Mod", since=10)
def _mod(n: Node) -> None:
    binary(n, _named("fmod" if n.attr("fmod", 0) else "mod"))


@operator("BitShift", since=11)
def _shift(n: Node) -> None:
    binary(n, _named("shl" if n.attr("direction") == "LEFT" else "shr"))


_VARIADIC: Final = {"Sum": "add", "Mean": "add", "Max": "max", "Min": "min"}


@operator(*_VARIADIC, since=6)
def _variadic(n: Node) -> None:
    values = n.all_inputs()
    shape = n.broadcast(*values)

    def body(c: list[Expr]) -> Scalar:
        total = reduce(_named(_VARIADIC[n.op]), [n.pick(v, c) for v in values])
        return total / len(values) if n.op == "Mean" and len(values) > 1 else total

    n.emit(shape, body)


@operator("Where", since=9)
def _where(n: Node) -> None:
    cond, a, b = n.x(0), n.x(1), n.x(2)
    n.emit(n.broadcast(cond, a, b), lambda c: select(n.pick(cond, c), n.pick(a, c), n.pick(b, c)))
