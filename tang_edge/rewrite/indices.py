"""Integer values that are functions of axes alone: folded into affine expressions, comparisons decided.

idx(a) + idx(b) = idx(a + b)
idx(a) < idx(b) = true when b - a - 1 >= 0 is proved, false when a - b >= 0 is
"""

from __future__ import annotations

from tang_edge.ir import affine, scalar
from tang_edge.ir.affine import Expr, Opaque
from tang_edge.ir.dtype import DType, boolean, i32, i64
from tang_edge.ir.scalar import Const, Idx, Op, Scalar

_AFFINE = frozenset({"add", "sub", "mul", "neg"})
_COMPARE = frozenset({"lt", "le", "eq", "ne"})


def as_index(x: Scalar) -> Expr | None:
    """The integer expression that x is, or None when x depends on data or is not an i32 or i64."""
    if x.dtype not in (i32, i64):
        return None
    if isinstance(x, Idx):
        return x.e
    return affine.const(int(x.value)) if isinstance(x, Const) else None


def index(e: Expr, dtype: DType) -> Scalar | None:
    """e as a value: a literal when it is constant; None when it might overflow the dtype."""
    lo, hi = affine.bounds(e)
    if lo < dtype.limits()[0] or hi > dtype.limits()[1]:
        return None
    return scalar.const(lo, dtype) if e.constant is not None else Idx(e, dtype)


def fold_index(x: Op) -> Scalar | None:
    """x as an Idx, a literal or a decided comparison; None where nothing is known."""
    if x.name == "cast":
        inner = as_index(x.args[0])
        return index(inner, x.dtype) if inner is not None and x.dtype in (i32, i64) else None
    es = [as_index(a) for a in x.args]
    if any(e is None for e in es):
        return None
    a, b = (es[0], es[1]) if len(es) == 2 else (es[0], None)
    if a is None:
        return None
    if x.name in _COMPARE and b is not None:
        return decided(x.name, a, b)
    e = _combine(x.name, a, b)
    return None if e is None else index(e, x.dtype)


def _combine(name: str, a: Expr, b: Expr | None) -> Expr | None:
    if name == "neg":
        return -a
    if b is None:
        return None
    k = b.constant
    match name:
        case "add":
            return a + b
        case "sub":
            return a - b
        case "mul":
            return a * b
        case "mod" if k is not None and k > 0:
            return affine.mod(a, k)
        case "div" if k is not None and k > 0 and affine.nonneg(a):
            return affine.floordiv(a, k)
        case "min" | "max":
            first_less = affine.nonneg(b - a)
            if first_less or affine.nonneg(a - b):
                return a if first_less == (name == "min") else b
    return None


def decided(name: str, a: Expr, b: Expr) -> Scalar | None:
    """The truth of a comparison as a literal, when bounds prove it."""
    d = b - a
    less, not_less = affine.nonneg(d - 1), affine.nonneg(-d)
    more, not_more = affine.nonneg(-d - 1), affine.nonneg(d)
    yes, no = {
        "lt": (less, not_less),
        "le": (not_more, more),
        "eq": (not_less and not_more, less or more),
        "ne": (less or more, not_less and not_more),
    }[name]
    return scalar.const(True, boolean) if yes else scalar.const(False, boolean) if no else None


def plain(a: affine.Atom) -> Expr | None:
    """The affine value of a computed coordinate that does not depend on data; None for other atoms."""
    return as_index(a.value) if isinstance(a, Opaque) else None
