"""The scalar operators: one table. Names, arity, result type and the NumPy function that defines the meaning.

Integer overflow wraps (two's complement); `pow` of integers is that of float64, cast. Integer division truncates toward zero,
x / 0 is 0; `mod` has the divisor's sign and `fmod` the dividend's; shifts by the width or more (or a negative count) leave 0 or
the sign. `round` is half to even. Comparisons with NaN are false except `ne`. min and max return one of the operands, or NaN
when either is NaN; `sign` of NaN is NaN. A cast from float to integer saturates and maps NaN to 0; between integers it wraps;
to bool it tests for non-zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import erf as _erf
from typing import Any, Final

import numpy as np

Array = Any
ARITH, COMPARE, LOGIC, FLOATS, SELECT, CAST, TEST = (
    "arith",
    "compare",
    "logic",
    "float",
    "select",
    "cast",
    "test",
)


@dataclass(frozen=True, slots=True)
class OpInfo:
    """An operator: `family` fixes the types (arith: T,T->T; float: floats only; compare: T,T->bool; logic: bool or int)."""

    name: str
    arity: int
    family: str
    evaluate: Callable[..., Array]
    exact: bool = True  # correctly rounded everywhere, so that it may be folded at pack time
    commutes: bool = False


def _np_div(a: Array, b: Array) -> Array:
    if np.issubdtype(np.asarray(a).dtype, np.floating):
        return np.divide(a, b)
    safe = np.where(b == 0, 1, b)  # x / 0 is 0
    q = np.floor_divide(a, safe)
    inexact = (a - q * safe != 0) & ((a < 0) != (safe < 0))
    return np.where(b == 0, 0, q + inexact).astype(np.asarray(a).dtype)


def _np_mod(a: Array, b: Array) -> Array:
    safe = b if np.issubdtype(np.asarray(b).dtype, np.floating) else np.where(b == 0, 1, b)
    return np.mod(a, safe)


def _np_pow(a: Array, b: Array) -> Array:
    if np.issubdtype(np.asarray(a).dtype, np.floating):
        return np.power(a, b)
    target = np.asarray(a).dtype
    limits, wide = np.iinfo(target), np.power(a.astype(np.float64), b.astype(np.float64))
    inside = (wide >= float(limits.min)) & (wide < float(limits.max) + 1)  # the ends are exact in float64, or round to it
    return np.where(inside, np.where(inside, wide, 0).astype(target), np.where(wide < 0, limits.min, limits.max).astype(target))


_erf_vectorised = np.vectorize(_erf, otypes=[np.float64])


def _np_erf(x: Array) -> Array:
    x = np.asarray(x)
    return _erf_vectorised(x.astype(np.float64)).astype(x.dtype) if x.size else x


def _table(*rows: OpInfo) -> dict[str, OpInfo]:
    return {r.name: r for r in rows}


def _f(name: str, fn: Callable[..., Array], exact: bool = False) -> OpInfo:
    return OpInfo(name, 1, FLOATS, fn, exact)


OPS: Final[dict[str, OpInfo]] = _table(
    OpInfo("add", 2, ARITH, np.add, commutes=True),
    OpInfo("sub", 2, ARITH, np.subtract),
    OpInfo("mul", 2, ARITH, np.multiply, commutes=True),
    OpInfo("div", 2, ARITH, _np_div),
    OpInfo("mod", 2, ARITH, _np_mod),
    OpInfo("fmod", 2, ARITH, np.fmod),
    OpInfo("pow", 2, ARITH, _np_pow, exact=False),
    OpInfo("min", 2, ARITH, np.minimum, commutes=True),
    OpInfo("max", 2, ARITH, np.maximum, commutes=True),
    OpInfo("neg", 1, ARITH, np.negative),
    OpInfo("abs", 1, ARITH, np.abs),
    OpInfo("sign", 1, ARITH, np.sign),
    OpInfo("lt", 2, COMPARE, np.less),
    OpInfo("le", 2, COMPARE, np.less_equal),
    OpInfo("eq", 2, COMPARE, np.equal, commutes=True),
    OpInfo("ne", 2, COMPARE, np.not_equal, commutes=True),
    OpInfo("and", 2, LOGIC, np.bitwise_and, commutes=True),
    OpInfo("or", 2, LOGIC, np.bitwise_or, commutes=True),
    OpInfo("xor", 2, LOGIC, np.bitwise_xor, commutes=True),
    OpInfo("not", 1, LOGIC, np.invert),
    OpInfo("shl", 2, ARITH, np.left_shift),
    OpInfo("shr", 2, ARITH, np.right_shift),
    OpInfo("isnan", 1, TEST, np.isnan),
    OpInfo("isinf", 1, TEST, np.isinf),
    _f("exp", np.exp),
    _f("log", np.log),
    _f("sqrt", np.sqrt, exact=True),
    _f("sin", np.sin),
    _f("cos", np.cos),
    _f("tan", np.tan),
    _f("asin", np.arcsin),
    _f("acos", np.arccos),
    _f("atan", np.arctan),
    _f("sinh", np.sinh),
    _f("cosh", np.cosh),
    _f("tanh", np.tanh),
    _f("asinh", np.arcsinh),
    _f("acosh", np.arccosh),
    _f("atanh", np.arctanh),
    _f("erf", _np_erf),
    _f("floor", np.floor, exact=True),
    _f("ceil", np.ceil, exact=True),
    _f("round", np.rint, exact=True),
    _f("trunc", np.trunc, exact=True),
    OpInfo("select", 3, SELECT, np.where),
    OpInfo("cast", 1, CAST, lambda x: x),  # the target type is on the node: see `interp.cast`
)
