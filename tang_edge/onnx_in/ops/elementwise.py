"""Operators of one tensor, element by element: activations, roundings, tests, casts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from tang_edge.ir import dtype
from tang_edge.ir.dtype import DType
from tang_edge.ir.scalar import Scalar, cast, const, op, select
from tang_edge.onnx_in.node import Node
from tang_edge.onnx_in.table import operator
from tang_edge.onnx_in.values import ONNX_DTYPES, onnx_type_name

Unary = Callable[[Scalar], Scalar]

_DIRECT: Final = {
    name: name.lower()
    for name in (
        *("Exp", "Log", "Sqrt", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Tanh"),
        *("Asinh", "Acosh", "Atanh", "Erf", "Floor", "Ceil", "Round", "Abs", "Neg", "Sign", "Not", "IsNaN"),
    )
}


@operator(*_DIRECT)
def _direct(n: Node) -> None:
    n.map(n.x(), lambda x: op(_DIRECT[n.op], x))


@operator("BitwiseNot", since=18)
def _bitwise_not(n: Node) -> None:
    n.map(n.x(), lambda x: op("not", x))


def relu(x: Scalar) -> Scalar:
    """max(x, 0)."""
    return op("max", x, const(0, x.dtype))


def sigmoid(x: Scalar) -> Scalar:
    """1 / (1 + exp(-x))."""
    return 1 / (1 + op("exp", -x))


def softplus(x: Scalar) -> Scalar:
    """log(1 + exp(x)) without overflow: max(x, 0) + log(1 + exp(-|x|))."""
    return relu(x) + op("log", 1 + op("exp", -op("abs", x)))


def unit_clip(x: Scalar) -> Scalar:
    """x clipped to [0, 1]."""
    return op("max", const(0, x.dtype), op("min", const(1, x.dtype), x))


def negative(x: Scalar, below: Scalar, above: Scalar) -> Scalar:
    """`below` where x < 0, else `above`."""
    return select(op("lt", x, const(0, x.dtype)), below, above)


def _gelu(x: Scalar, approximate: str) -> Scalar:
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))
        return 0.5 * x * (1 + op("tanh", inner))
    return 0.5 * x * (1 + op("erf", x * math.sqrt(0.5)))


# name -> function of the element and the attributes (given as float), and those attributes' defaults
_ACTIVATIONS: Final[dict[str, tuple[Callable[..., Scalar], dict[str, float]]]] = {
    "Relu": (relu, {}),
    "Sigmoid": (sigmoid, {}),
    "Softplus": (softplus, {}),
    "Softsign": (lambda x: x / (1 + op("abs", x)), {}),
    "Reciprocal": (lambda x: 1 / x, {}),
    "HardSwish": (lambda x: x * unit_clip(x * (1 / 6) + 0.5), {}),
    "Mish": (lambda x: x * op("tanh", softplus(x)), {}),
    "LeakyRelu": (lambda x, alpha: negative(x, alpha * x, x), {"alpha": 0.01}),
    "Elu": (lambda x, alpha: negative(x, alpha * (op("exp", x) - 1), x), {"alpha": 1.0}),
    "Selu": (
        lambda x, alpha, gamma: gamma * negative(x, alpha * op("exp", x) - alpha, x),
        {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875},
    ),
    "Celu": (lambda x, alpha: negative(x, alpha * (op("exp", x / alpha) - 1), x), {"alpha": 1.0}),
    "HardSigmoid": (lambda x, alpha, beta: unit_clip(alpha * x + beta), {"alpha": 0.2, "beta": 0.5}),
    "ThresholdedRelu": (
        lambda x, alpha: select(op("lt", const(alpha, x.dtype), x), x, const(0, x.dtype)),
        {"alpha": 1.0},
    ),
    "Swish": (lambda x, alpha: x * sigmoid(alpha * x), {"alpha": 1.0}),
    "Shrink": (
        lambda x, bias, lambd: negative(
            x + lambd, x + bias, select(op("lt", const(lambd, x.dtype), x), x - bias, const(0, x.dtype))
        ),
        {"bias": 0.0, "lambd": 0.5},
    ),
}


@operator(*_ACTIVATIONS)
def _activation(n: Node) -> None:
    fn, defaults = _ACTIVATIONS[n.op]
    attrs = {name: float(n.attr(name, default)) for name, default in defaults.items()}
    n.map(n.x(), lambda x: in_f32(x, lambda y: fn(y, **attrs)))


def in_f32(x: Scalar, fn: Unary) -> Scalar:
    """fn computed in f32 for integers and f16, the result in the dtype of x."""
    if x.dtype.is_float and x.dtype is not dtype.f16:
        return fn(x)
    if x.dtype.is_int and fn is relu:
        return fn(x)
    return cast(fn(cast(x, dtype.f32)), x.dtype)


@operator("Gelu", since=20)
def _gelu_operator(n: Node) -> None:
    kind = n.attr("approximate", "none")
    n.map(n.x(), lambda x: in_f32(x, lambda y: _gelu(y, kind)))


@operator("PRelu")
def _prelu(n: Node) -> None:
    x, slope = n.x(0), n.x(1)
    if slope.rank == 1 and x.rank > 2 and n.opset < 7:
        n.fail("a slope per channel at this opset", "Convert the model to opset 7 or later")
    n.emit(x.shape, lambda c: negative(n.at(x, c), n.pick(slope, c) * n.at(x, c), n.at(x, c)))


@operator("IsInf", since=10)
def _isinf(n: Node) -> None:
    up, down = n.attr("detect_positive", 1), n.attr("detect_negative", 1)

    def test(x: Scalar) -> Scalar:
        zero, infinite = const(0, x.dtype), op("isinf", x)
        if up and down:
            return infinite
        if not up and not down:
            return const(False, dtype.boolean)
        return op("and", infinite, op("lt", zero, x) if up else op("lt", x, zero))

    n.map(n.x(), test)


def target_dtype(n: Node, elem_type: int) -> DType:
    """The dtype of an ONNX element type; UnsupportedModel for those that the IR lacks."""
    if elem_type not in ONNX_DTYPES:
        n.fail(f"element type {onnx_type_name(elem_type)}", "Export with float, integer or bool tensors")
    return ONNX_DTYPES[elem_type]


@operator("Cast")
def _cast(n: Node) -> None:
    convert(n, target_dtype(n, int(n.attr("to"))))


@operator("CastLike", since=15)
def _cast_like(n: Node) -> None:
    convert(n, n.x(1).dtype)


def convert(n: Node, to: DType) -> None:
    """Bind output 0 to input 0 in another dtype (the same value when it has it)."""
    x = n.x()
    if x.dtype is to:
        n.alias(x)
    elif x.data is not None and x.data.size == 1 and to.is_float:
        n.give(x.data.astype(to.numpy), to)
    else:
        n.map(n.x(), lambda x: cast(x, to))


@operator("Clip")
def _clip(n: Node) -> None:
    low: Any = n.attr("min") if n.opset < 11 else n.opt(1)
    high: Any = n.attr("max") if n.opset < 11 else n.opt(2)

    def bound(limit: Any, x: Scalar, name: str, sign: int) -> Scalar:
        if limit is None:
            return x
        value = limit if isinstance(limit, float) else None
        if value is None and limit.data is not None:
            value = limit.data.ravel()[0].item()
        if value is not None and x.dtype.is_float and value == sign * math.inf:
            return x  # no bound at all
        y = const(value, x.dtype) if value is not None else n.single(limit)
        return op(name, x, y)

    n.map(n.x(), lambda x: bound(high, bound(low, x, "max", -1), "min", 1))


@operator("Identity", "Dropout")
def _identity(n: Node) -> None:
    if n.op == "Dropout" and n.opt(2) is not None:
        training = n.constant(2, "training_mode")
        ratio = n.constant(1, "ratio") if n.opt(1) is not None else None
        if training is not None and bool(training.any()) and (ratio is None or bool(ratio.any())):
            n.fail("training mode", "Export the model for inference")
    n.alias(n.x())
    if n.wants(1):
        n.emit(n.x().shape, lambda c: const(True, dtype.boolean), 1)
