"""Size expressions: a tiny total integer language that Python, JavaScript and C evaluate alike.

``E := int | "dim" | ["+",E...] | ["*",E...] | ["-",E,E] | ["//",E,int>0] | ["%",E,int>0] | ["max",E...]
| ["min",E...]``, with floor semantics. Every value met on the way stays within plus or minus 2**53 - 1, the
integers that JavaScript holds exactly; anything beyond is a BundleError, as is a malformed expression.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeAlias

from tang_edge.errors import BundleError

Expr: TypeAlias = "int | str | Sequence[Expr]"

LIMIT = 2**53 - 1
MAX_NODES = 4096
MAX_DEPTH = 64

_VARIADIC = ("+", "*", "max", "min")
_BY_CONSTANT = ("//", "%")


def is_int(value: object) -> bool:
    """Whether ``value`` is an integer of JSON (a bool is not)."""
    return isinstance(value, int) and not isinstance(value, bool)


def validate(expr: object, names: Collection[str], where: str = "expression") -> None:
    """Check that ``expr`` is a well-formed size expression over the dimension ``names``.

    Raises:
        BundleError: it is not; ``where`` says which expression.
    """
    _walk(expr, names, where, 0, [0])


def _walk(expr: object, names: Collection[str], where: str, depth: int, count: list[int]) -> None:
    count[0] += 1
    if count[0] > MAX_NODES or depth > MAX_DEPTH:
        raise BundleError(f"size expression is larger than {MAX_NODES} nodes or {MAX_DEPTH} levels", where=where)
    if isinstance(expr, bool):
        raise BundleError("size expression is a boolean", where=where)
    if isinstance(expr, int):
        if abs(expr) > LIMIT:
            raise BundleError(f"integer {str(expr)[:30]} is beyond 2**53 - 1", where=where)
        return
    if isinstance(expr, str):
        if expr not in names:
            raise BundleError(f"unknown dimension {expr[:60]!r}", where=where)
        return
    if not isinstance(expr, (list, tuple)) or not expr or not isinstance(expr[0], str):
        raise BundleError(f"not a size expression: {type(expr).__name__}", where=where)
    op, args = expr[0], expr[1:]
    _check_arity(op, args, where)
    for arg in args:
        _walk(arg, names, where, depth + 1, count)


def _check_arity(op: str, args: Sequence[object], where: str) -> None:
    if op in _VARIADIC:
        if not args:
            raise BundleError(f"operator {op!r} has no operands", where=where)
    elif op == "-":
        if len(args) != 2:
            raise BundleError("operator '-' takes two operands", where=where)
    elif op in _BY_CONSTANT:
        if len(args) != 2 or not is_int(args[1]) or args[1] <= 0:  # type: ignore[operator]
            raise BundleError(f"operator {op!r} takes an operand and a positive integer", where=where)
    else:
        raise BundleError(f"unknown operator {op[:20]!r} in a size expression", where=where)


def evaluate(expr: Expr, dims: Mapping[str, int]) -> int:
    """The value of a valid ``expr`` for the dimension values ``dims``."""
    return compile_expr(expr)(dims)


def compile_expr(expr: Expr) -> Callable[[Mapping[str, int]], int]:
    """A function from dimension values to the value of ``expr`` (which has passed :func:`validate`).

    The function raises BundleError where a value leaves the exact range.
    """
    if isinstance(expr, int):
        value = expr
        return lambda dims: value
    if isinstance(expr, str):
        name = expr
        return lambda dims: dims[name]
    op = expr[0]
    args = [compile_expr(e) for e in expr[1:]]
    if all(is_int(e) for e in expr[1:]):
        folded = _guard(_apply(op, [f({}) for f in args]))
        return lambda dims: folded
    return lambda dims: _guard(_apply(op, [f(dims) for f in args]))


def _apply(op: Expr, values: list[int]) -> int:
    if op == "+":
        return sum(values)
    if op == "*":
        return math.prod(values)
    if op == "-":
        return values[0] - values[1]
    if op == "//":
        return values[0] // values[1]
    if op == "%":
        return values[0] % values[1]
    if op == "max":
        return max(values)
    if op == "min":
        return min(values)
    raise BundleError(f"unknown operator {op!r} in a size expression")


def _guard(value: int) -> int:
    if -LIMIT <= value <= LIMIT:
        return value
    raise BundleError("a size is beyond 2**53 - 1", where="size expression")


def names_of(expr: Expr) -> frozenset[str]:
    """The dimension names that a valid ``expr`` mentions."""
    if isinstance(expr, int):
        return frozenset()
    if isinstance(expr, str):
        return frozenset((expr,))
    return frozenset().union(*(names_of(e) for e in expr[1:]))


def show(expr: Expr) -> str:
    """``expr`` as a person writes it: ``["+", "n", 1]`` is ``(n + 1)``."""
    if isinstance(expr, (int, str)):
        return str(expr)
    args = [show(e) for e in expr[1:]]
    if expr[0] in ("max", "min"):
        return f"{expr[0]}({', '.join(args)})"
    return "(" + f" {expr[0]} ".join(args) + ")"
