"""Each invariant violated once; what cannot be proved is listed; guards and clamps are proved."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from tang_edge.errors import CompilerBug
from tang_edge.ir import affine, scalar
from tang_edge.ir.affine import Dim, Opaque, as_expr, var
from tang_edge.ir.dtype import boolean, f16, f32, i8, i32
from tang_edge.ir.scalar import Comprehension, Const, Get, Idx, Monoid, Op, Read, St, View, const, sum_of
from tang_edge.ir.tensor import (
    Alloc,
    Bind,
    Builder,
    Carry,
    Constant,
    Constraint,
    If,
    Loop,
    State,
    Store,
    TensorType,
    out_axes,
)
from tang_edge.ir.text_parse import parse_program
from tang_edge.ir.verify import verify

AXIS = out_axes([4])
X = scalar.read("x", [AXIS[0]], f32)
R = var("r0_0", 4)
ADD = sum_of(f32)


def base():
    """x f32[4], n declared; y = x."""
    b = Builder("p")
    n = b.dim("n", 1, 8)
    b.input("x", f32, [4])
    b.input("v", f32, [n])
    b.input("flag", boolean, [])
    b.items.append(Bind("y", AXIS, X))
    b.output("y")
    return b.build()


P = base()


def item(*items):
    return P.with_items((*P.items, *items))


def expr(x):
    return item(Bind("z", AXIS, x))


def in_lift(x):
    return expr(Get(Comprehension((R,), ADD, (x,)), 0))


def monoid(*identity, combine):
    m = Monoid("m", identity, combine, False, False)
    return expr(Get(Comprehension((R,), m, tuple(X for _ in identity)), 0))


HIDDEN = Dim("hidden", 1, 4, 1)
FLAT = TensorType(f32, (affine.const(4),))
THEN = (Bind("b", AXIS, X),)

VIOLATIONS = [
    (1, item(Bind("y", AXIS, X))),
    (1, item(Alloc("x", FLAT))),
    (1, replace(P, constants=(Constant("x", np.zeros(1)),))),
    (2, expr(scalar.read("later", [AXIS[0]], f32))),
    (2, item(If("flag", THEN, THEN, ()), Bind("z", AXIS, scalar.read("b", [AXIS[0]], f32)))),
    (3, expr(scalar.read("x", [AXIS[0], 0], f32))),
    (4, expr(scalar.read("x", [AXIS[0]], f16))),
    (5, item(Bind("z", (var("j", 4),), const(0, f32)))),
    (5, item(Bind("z", (var("i0", 4), var("i1", as_expr(AXIS[0]) + 1)), const(0, f32)))),
    (6, expr(scalar.read("x", [var("i1", 4)], f32))),
    (7, expr(scalar.read("x", [as_expr(AXIS[0]) + 4], f32))),
    (8, expr(Read("x", View((as_expr(AXIS[0]),), (as_expr(AXIS[0]) - 1,), None), f32))),
    (8, expr(Read("x", View((as_expr(AXIS[0]),), (), const(0, f32)), f32))),
    (8, expr(Read("x", View((as_expr(AXIS[0]),), (as_expr(AXIS[0]) - 1,), const(0, i32)), f32))),
    (9, expr(Get(Comprehension((R,), ADD, (X, X)), 0))),
    (9, in_lift(Idx(as_expr(R), i32))),
    (9, monoid(const(0, f32), combine=())),
    (9, monoid(const(0, f32), combine=(St("l", 0, i32),))),
    (10, expr(St("l", 0, f32))),
    (10, monoid(const(0, f32), combine=(St("l", 1, f32),))),
    (10, monoid(const(0, f32), combine=(Op("cast", (St("l", 0, i32),), f32),))),
    (10, monoid(const(0, f32), combine=(X,))),
    (12, expr(Op("add", (X,), f32))),
    (12, expr(Op("add", (X, const(1, f16)), f32))),
    (12, expr(Op("lt", (X, X), f32))),
    (12, expr(Op("wow", (X,), f32))),
    (12, expr(Op("exp", (Idx(as_expr(AXIS[0]), i32),), i32))),
    (12, expr(Op("and", (X, X), f32))),
    (12, expr(Op("select", (X, X, X), f32))),
    (13, item(Bind("z", out_axes([-2]), const(0, f32)))),
    (14, item(Bind("z", AXIS, X, Store("x", (as_expr(AXIS[0]),))))),
    (14, item(Alloc("a", FLAT), Bind("z", AXIS, const(0, i32), Store("a", (as_expr(AXIS[0]),))))),
    (14, item(Alloc("a", FLAT), Bind("z", AXIS, X, Store("a", (as_expr(var("i1", 4)),))))),
    (14, item(Alloc("a", FLAT), Bind("z", AXIS, X, Store("a", (as_expr(AXIS[0]) + 9,))))),
    (16, item(If("x", THEN, THEN, ("b",)))),
    (16, item(If("flag", THEN, (), ("b",)))),
    (16, item(If("flag", THEN, (Bind("b", AXIS, const(0, i32)),), ("b",)))),
    (2, item(If("nothing", THEN, THEN, ("b",)))),
    (2, item(Loop("nothing", None, (), ()))),
    (22, item(Loop("x", None, (), ()))),
    (22, item(Loop(affine.const(2), "flag", (), ()))),
    (22, item(Loop(affine.const(2), None, (Carry("y", "x", "b"),), THEN))),
    (22, item(Loop(affine.const(2), None, (Carry("c", "x", "x"),), THEN))),
    (22, item(Loop(affine.const(2), None, (Carry("c", "flag", "b"),), THEN))),
    (17, expr(Idx(as_expr(HIDDEN), i32))),
    (17, replace(P, constraints=(Constraint(as_expr(HIDDEN), affine.const(1), "why"),))),
    (17, replace(P, constraints=(Constraint(as_expr(AXIS[0]), affine.const(1), "why"),))),
    (17, replace(P, dims=(*P.dims, Dim("n", 1, 9, 1)))),
    (18, replace(P, outputs=(("y", "nothing"),))),
    (18, replace(P, outputs=(("y", "y"), ("y", "x")))),
    (18, replace(P, states=(State("x", "z"),))),
    (18, replace(P, states=(State("v", "y"),))),
    (19, expr(Get(Comprehension((var("k", 4),), ADD, (X,)), 0))),
    (19, expr(Get(Comprehension((R, var("r0_1", as_expr(R) + 1)), ADD, (X,)), 0))),
    (20, expr(scalar.read("x", [as_expr(AXIS[0]) * as_expr(AXIS[0])], f32))),
    (21, expr(Op("cast", (Const(300, i8),), f32))),
    (21, expr(Const(1, f32))),
    (21, expr(Const(0.1, f32))),
    (21, expr(Op("cast", (Idx(as_expr(AXIS[0]), i8),), f32))),
    (21, expr(scalar.read("x", [as_expr(Opaque(X, 0, 3))], f32))),
]


@pytest.mark.parametrize(("number", "program"), VIOLATIONS)
def test_violation(number, program):
    with pytest.raises(CompilerBug, match=f"invariant {number}:"):
        verify(program)


def test_a_component_that_does_not_exist():
    with pytest.raises(IndexError):  # a Get cannot even tell its dtype
        verify(expr(Get(Comprehension((R,), ADD, (X,)), 1)))
    part = Op("cast", (Get(Comprehension((R,), ADD, (X,)), -1),), f32)
    with pytest.raises(CompilerBug, match="invariant 11:"):
        verify(expr(part))


def test_all_invariants_are_listed_and_violated():
    import tang_edge.ir.verify as module

    listed = {int(line[:2]) for line in module.__doc__.splitlines() if line[:2].strip().isdigit()}
    assert listed == set(range(1, 23))
    assert {n for n, _ in VIOLATIONS} | {11, 15} == listed  # 15 is only ever unproved


def test_a_good_program_has_nothing_unproved():
    assert verify(P) == ()
    both = (Bind("b", AXIS, X), Bind("c", AXIS, scalar.read("b", [AXIS[0]], f32)))
    after = Bind("z", AXIS, scalar.read("b", [AXIS[0]], f32))
    assert verify(item(If("flag", both, THEN, ("b",)), after)) == ()


def test_unproved():
    n = as_expr(P.dims[0])
    found = verify(expr(scalar.read("v", [AXIS[0]], f32)))
    assert [(u.invariant, u.where, u.expr) for u in found] == [(7, "z", n - 1 - as_expr(AXIS[0]))]
    assert "not proved" in str(found[0])
    found = verify(item(Bind("z", out_axes([n - 2]), const(0, f32))))
    assert [u.invariant for u in found] == [13]
    half = Bind("z", out_axes([2]), const(0, f32), Store("a", (as_expr(out_axes([2])[0]),)))
    assert [u.invariant for u in verify(item(Alloc("a", FLAT), half))] == [15]


PROVED = [
    # name, declarations, bind
    ("symbolic pad", "x[i0 - 2 | i0 - 2 >= 0, n - i0 + 1 >= 0 else 0.0]", "n + 4"),
    ("strided", "x[2*i0]", "((n + 1) // 2)"),
    ("strided window", "max.f32(r0_0 < 3: x[2*i0 + r0_0 | n - 2*i0 - r0_0 - 1 >= 0 else -inf])", "n"),
    ("upsampled", "x[(i0 // 3)]", "3*n"),
    ("resized", "x[((2*i0) // 3)]", "n"),
    ("flipped", "x[n - i0 - 1]", "n"),
    ("deconvolution", "x[((i0 + 1) // 2) | 2*n - i0 - 2 >= 0, -((i0 + 1) % 2) >= 0 else 0.0]", "2*n"),
    ("edge", "x[max(min(i0 - 2, n - 1), 0)]", "n + 4"),
    ("prefix", "sum.f32(r0_0 < i0 + 1: x[i0 - r0_0])", "n"),
    ("gather", "x[[max(min(i64(x[i0]), idx(n - 1)), i64(0)) in 0..8]]", "n"),
    ("nested", "x[[max(min(k[(i0 // 2)], idx(n - 1)), i64(0)) in 0..8]]", "2*n"),
    ("doubled", "x[i0 + 2 | n - i0 - 4 >= 0 else 0.0]", "n"),
]


@pytest.mark.parametrize(("what", "body", "extent"), PROVED, ids=[p[0] for p in PROVED])
def test_proved(what, body, extent):
    text = f"dim n 1..9\ninput x f32[n]\ninput k i64[n]\nbind y f32[i0 < {extent}] = {body}\noutput y = y\n"
    assert verify(parse_program("tang-ir 1\nprogram p\n" + text)) == ()


def test_speed():
    b = Builder("long")
    n = b.dim("n", 1, 64)
    current = b.input("x", f32, [1, 8, n, n])
    k, c = [var("a", 3), var("b", 3)], var("c", 8)
    for step in range(150):
        b.constant(f"w{step}", np.zeros((8, 8, 3, 3), np.float32))

        def conv(b_, o, h, w, x=current, step=step):
            rows = [as_expr(h) + as_expr(k[0]) - 1, as_expr(w) + as_expr(k[1]) - 1]
            guard = [g for e in rows for g in (e, n - 1 - e)]
            read = b.read(x, [b_, c, *rows], guard)
            return scalar.reduce(ADD, [c, *k], read * b.read(f"w{step}", [o, c, *k]))

        b.bind(f"c{step}", [1, 8, n, n], conv)
        current = b.bind(f"r{step}", [1, 8, n, n], lambda *i, s=step: scalar.op("exp", b.read(f"c{s}", i)))
    b.output(current)
    p = b.build()
    start = time.perf_counter()
    assert verify(p) == ()
    assert time.perf_counter() - start < 2  # 0.1 s on a desktop: 300 binds
