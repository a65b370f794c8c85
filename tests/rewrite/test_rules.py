"""Every equation of the rule table holds bit for bit, special values included, for each dtype that fits."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tang_edge.ir import affine, interp, scalar
from tang_edge.ir.dtype import DType, boolean, f32, i32, u8
from tang_edge.ir.ops import ARITH, LOGIC, OPS
from tang_edge.ir.scalar import Scalar
from tang_edge.ir.tensor import Array, Builder
from tang_edge.rewrite.algebra import RULES
from tang_edge.rewrite.rules import Rule, Term, build

FLOATS = [0.0, -0.0, 1.0, -1.5, 3.25, 1e30, -1e-30, np.inf, -np.inf, np.nan]
VALUES: dict[DType, Array] = {
    f32: np.asarray(FLOATS, np.float32),
    i32: np.asarray([0, 1, -1, 7, -8, 2**31 - 1, -(2**31)], np.int32),
    u8: np.asarray([0, 1, 2, 255], np.uint8),
    boolean: np.asarray([False, True]),
}
LITERALS: dict[DType, list[float]] = {f32: [2.0, -0.5, 8.0, 0.0], i32: [3, -2], u8: [4], boolean: [True]}
ALLOWED = {"Int": (i32, u8), "Float": (f32,), "Bool": (boolean,)}


def variables(t: Term) -> dict[str, Term]:
    """The variables of a pattern by position."""
    found = {str(t.value): t} if t.head == "var" else {}
    for a in t.args:
        found |= variables(a)
    return found


def operators(t: Term) -> set[str]:
    """The operators of a pattern."""
    own = {t.head} if t.args else set()
    return own.union(*(operators(a) for a in t.args))


def defined(rule: Rule, dtypes: tuple[DType, ...]) -> bool:
    """NumPy has no arithmetic on booleans and no logic on floats."""
    families = {OPS[name].family for name in operators(rule.left)}
    if boolean in dtypes and ARITH in families:
        return False
    return not (f32 in dtypes and LOGIC in families)


def choices(v: Term, dtype: DType, grid: Array) -> list[Scalar]:
    """What a variable may stand for: literals, or one axis of a grid of special values."""
    if v.kind == "Lit":
        return [scalar.const(c, dtype) for c in LITERALS[dtype]]
    return [scalar.read(f"x{v.value}", [affine.var("i0", grid.size)], dtype)]


def instances(rule: Rule) -> list[tuple[dict[str, Scalar], dict[str, Array], Scalar]]:
    """Bindings of every well-typed instance of the left side, the inputs, and the left side itself."""
    left = variables(rule.left)
    out = []
    for dtypes in itertools.product(*(ALLOWED.get(v.kind, tuple(VALUES)) for v in left.values())):
        if not defined(rule, dtypes):
            continue
        grids = np.meshgrid(*(VALUES[d] for d in dtypes), indexing="ij")
        flat = {k: g.ravel().astype(d.numpy) for (k, g), d in zip(zip(left, grids, strict=True), dtypes, strict=True)}
        picks = [choices(v, d, flat[k]) for (k, v), d in zip(left.items(), dtypes, strict=True)]
        for values in itertools.product(*picks):
            bound = dict(zip(left, values, strict=True))
            for like in dict.fromkeys(values):
                try:
                    lhs = build(rule.left, bound, like)
                except TypeError:
                    continue
                if rule.guard is None or rule.guard(bound):
                    out.append((bound, {f"x{k}": a for k, a in flat.items()}, lhs))
    return out


def value(x: Scalar, inputs: dict[str, Array]) -> Array:
    """The scalar at every point of the inputs."""
    b = Builder("rule")
    n = next(iter(inputs.values())).size
    for name, a in inputs.items():
        b.input(name, next(d for d in VALUES if np.dtype(d.numpy) == a.dtype), (n,))
    b.bind("y", (n,), lambda i: x)
    b.output("y")
    return interp.run(b.build(), inputs)["y"]


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.equation)
def test_equation_holds_bit_for_bit(rule: Rule) -> None:
    found = instances(rule)
    assert found, "no well-typed instance"
    checked = 0
    for bound, inputs, lhs in found:
        rhs = rule.apply(lhs)
        if rhs is None:  # the literals of this instance match another rule's guard only
            continue
        assert rhs.dtype is lhs.dtype
        a, b = value(lhs, inputs), value(rhs, inputs)
        same = a.view(np.uint8).reshape(a.size, -1) == b.view(np.uint8).reshape(b.size, -1)
        nan = np.isnan(a) & np.isnan(b) if a.dtype.kind == "f" else np.zeros(a.shape, bool)
        assert (same.all(axis=1) | nan).all(), (rule.equation, str(lhs), str(rhs), bound)
        checked += 1
    assert checked


def test_a_rule_needs_its_literal() -> None:
    x = scalar.read("x", [affine.const(0)], f32)
    add_zero = next(r for r in RULES if r.equation == "x + -0.0 = x")
    assert add_zero.apply(x + -0.0) is x
    assert add_zero.apply(x + 0.0) is None
