"""The text form: what is printed reads back as the same program, and is linear in the graph."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tang_edge.ir import affine, scalar
from tang_edge.ir.affine import Opaque, as_expr, var
from tang_edge.ir.dtype import BY_NAME, boolean, f16, f32, f64, i8, i32, i64, u8
from tang_edge.ir.scalar import Get, Monoid, St, comprehension, const, op, reduce, select, sum_of
from tang_edge.ir.tensor import (
    Alloc,
    Bind,
    Builder,
    Constraint,
    If,
    Origin,
    State,
    Store,
    TensorType,
    out_axes,
)
from tang_edge.ir.text import canonical_bind, number, print_program, same_program, structural_key, weights_of
from tang_edge.ir.text_parse import TextError, parse_program

N, M = affine.dim("n", 1, 9), affine.dim("batch size", 8, 64, 8)
AXES = out_axes([N, M, 5])
NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), min_size=1, max_size=6)
NAMES |= st.sampled_from(["i0", "r0_0", "inf", "f32", "max", "x", "monoid0", "l0", "else", "a b", '"', "\\", "\n"])


def roundtrip(p):
    text = print_program(p)
    back = parse_program(text, weights_of(p))
    assert same_program(back, p), text
    assert print_program(back) == text
    assert same_program(parse_program(print_program(p, weights=True)), p)
    return text


@st.composite
def expressions(draw, axes, depth=2):
    if depth == 0 or draw(st.booleans()):
        leaf = draw(st.sampled_from([*axes, N, M, 1]))
        return as_expr(leaf) * draw(st.integers(-4, 4)) + draw(st.integers(-9, 9))
    a, b = draw(expressions(axes, depth - 1)), draw(expressions(axes, depth - 1))
    kind = draw(st.sampled_from(["+", "-", "//", "%", "min", "max", "dim"]))
    k = draw(st.integers(2, 7))
    return {
        "+": lambda: a + b,
        "-": lambda: a - b,
        "//": lambda: affine.floordiv(a, k),
        "%": lambda: affine.mod(a, k),
        "min": lambda: affine.minimum(a, b),
        "max": lambda: affine.maximum(a, b),
        "dim": lambda: a * N,
    }[kind]()


VARIANCE = Monoid(
    "odd name",
    (const(0, f32), const(0, f32)),
    (St("l", 0, f32) + St("r", 0, f32), op("max", St("l", 1, f32), St("r", 1, f32) * St("l", 0, f32))),
    True,
    False,
)


@st.composite
def scalars(draw, axes=AXES, depth=4, tensor="x"):
    def sub(more=()):
        return draw(scalars((*axes, *more), depth - 1, tensor))

    if depth == 0:
        return const(draw(st.floats(width=32)), f32)
    kind = draw(st.sampled_from(["const", "idx", "op", "un", "read", "sum", "arg", "own", "select", "gather", "cast"]))
    match kind:
        case "const":
            return const(draw(st.floats(width=32)), f32)
        case "idx":
            return scalar.cast(scalar.idx(draw(expressions(axes)), draw(st.sampled_from([i32, i64]))), f32)
        case "op":
            name = draw(st.sampled_from(["add", "sub", "mul", "div", "min", "max", "pow"]))
            a = sub()
            return op(name, a, a if draw(st.booleans()) else sub())
        case "un":
            return op(draw(st.sampled_from(["exp", "neg", "floor"])), sub())
        case "select":
            return select(op(draw(st.sampled_from(["lt", "le", "eq", "ne"])), sub(), sub()), sub(), sub())
        case "cast":
            dt = draw(st.sampled_from([f16, f64, i8, u8, i64, boolean]))
            return scalar.cast(scalar.cast(sub(), dt), f32)
        case "read":
            guard = draw(st.lists(expressions(axes, 1), max_size=2))
            coords = [draw(expressions(axes)), draw(expressions(axes, 1))]
            return scalar.read(tensor, coords, f32, guard, const(draw(st.floats(width=32)), f32))
        case "gather":
            return scalar.read(tensor, [as_expr(Opaque(scalar.cast(sub(), i64), 0, 7)), N], f32)
        case _:
            fresh = [var(f"q{depth}{k}", draw(expressions(axes, 1))) for k in range(draw(st.integers(1, 2)))]
            if kind == "sum":
                return reduce(draw(st.sampled_from([sum_of, scalar.min_of]))(f32), fresh, sub(fresh))
            m = VARIANCE if kind == "own" else scalar.argmax_of(f32)
            second = sub(fresh) if kind == "own" else scalar.idx(fresh[0])
            c = comprehension(fresh, m, [sub(fresh), second])
            return Get(c, 0) + scalar.cast(Get(c, 1), f32)


@settings(max_examples=150, deadline=None)
@given(scalars())
def test_random_binds_read_back(x):
    b = Builder("p")
    b.dim("n", 1, 9)
    b.dim("batch size", 8, 64, 8)
    b.input("x", f32, [N, 8])
    b.items.append(Bind("y", AXES, x, None, (Origin("Op", "a/b:0"),)))
    b.output("y")
    roundtrip(b.build())


@settings(max_examples=60, deadline=None)
@given(scalars(tensor="weird name"))
def test_keys_ignore_names_and_origins(x):
    types = {"weird name": TensorType(f32, (N, as_expr(8))), "other": TensorType(f32, (N, as_expr(8)))}

    def renamed(y):
        if isinstance(y, scalar.Read):
            y = scalar.rebuild(y, renamed)
            return scalar.Read("other", y.view, y.dtype)
        return scalar.rebuild(y, renamed)

    one = Bind("y", AXES, x, None, (Origin("A", "a"),))
    two = Bind("z", AXES, renamed(x), None, (Origin("B", "b"),))
    assert structural_key(one, types) == structural_key(two, types)
    assert "weird" not in canonical_bind(one, types)


@settings(max_examples=60, deadline=None)
@given(st.lists(NAMES, min_size=4, max_size=4, unique=True), NAMES)
def test_any_name(names, node):
    x, w, y, z = names
    b = Builder(node)
    n = b.dim(z, 1, 5)
    b.input(x, f32, [n])
    b.constant(w, np.arange(3, dtype=np.int8))
    b.origin = (Origin(node, node), Origin("Conv", ""))
    b.bind(y, [n], lambda i: b.read(x, [i]) + scalar.cast(b.read(w, [0]), f32))
    b.output(node, y)
    roundtrip(b.build())


@given(st.floats(), st.sampled_from([f16, f32, f64]))
def test_float_literals(value, dt):
    c = const(value, dt)
    text = number(c.value, dt)
    back = float(np.asarray(text, dtype=dt.numpy))
    assert (np.array_equal(back, c.value, equal_nan=True) and np.signbit(back) == np.signbit(c.value)) or back != back


@pytest.mark.parametrize("dt", BY_NAME.values(), ids=str)
def test_constants(dt):
    rng = np.random.default_rng(2)
    for shape in ((), (0, 3), (2, 3), (40,)):
        b = Builder("c")
        b.constant("w", rng.integers(0, 2, shape).astype(dt.numpy))
        b.output("w")
        text = roundtrip(b.build())
        assert ("sha256:" in text) == (shape == (40,))


def test_control_state_and_stores():
    b = Builder("all")
    n = b.dim("n", 1, 9)
    b.input("x", f32, [n])
    b.input("c", boolean, [])
    b.items.append(Alloc("a", TensorType(f32, (2 * n,))))
    axes = out_axes([n])
    b.items.append(Bind("s", axes, b.read("x", [axes[0]]), Store("a", (as_expr(axes[0]) * 2 + 1,))))
    then = (Bind("r", axes, b.read("x", [axes[0]]) * 2),)
    inner = If("c", then, (Bind("r", axes, b.read("x", [axes[0]]) * 3),), ("r",))
    outer = (inner, Bind("q", axes, scalar.read("r", [axes[0]], f32)))
    b.items.append(If("c", outer, (Bind("q", axes, b.read("x", [axes[0]])),), ("q",), (Origin("If", "i"),)))
    b.output("q")
    b.output("else", "a")
    b.states.append(State("x", "q"))
    b.constraints.append(Constraint(n, affine.floordiv(n + 1, 2) + 1, 'a "reason"'))
    text = roundtrip(b.build())
    assert 'output "else" = a' in text


def test_text_is_linear_in_the_graph():
    b = Builder("deep")
    b.input("x", f32, [4])

    def body(i):
        x = b.read("x", [i])
        for _ in range(60):
            x = op("tanh", x + x * x)
        return x

    b.bind("y", [4], body)
    b.output("y")
    assert len(roundtrip(b.build())) < 6000


def test_readable():
    b = Builder("mm")
    n = b.dim("n", 1, 64)
    b.input("x", f32, [n, 7])
    b.input("w", f32, [7, 5])
    b.origin = (Origin("Gemm", "g"),)
    k = var("k", 7)
    b.bind("y", [n, 5], lambda i, j: reduce(sum_of(f32), [k], b.read("x", [i, k]) * b.read("w", [k, j])))
    line = 'bind y f32[i0 < n, i1 < 5] = sum.f32(r0_0 < 7: x[i0, r0_0] * w[r0_0, i1]) @ Gemm "g"'
    assert line in roundtrip(b.build()).splitlines()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("bind y f32[i0 < 3] = x[i0]", "line 3: tensor 'x' is not bound"),
        ("input x f32[n]", "unknown axis or dimension 'n'"),
        ("input x f33[2]", "unknown dtype"),
        ("input x f32[2]\nbind y f32[i0 < 2] = x[i0] + i32(1)", "line 4: add of"),
        ("input x f32[2]\nbind y i32[i0 < 2] = x[i0]", "declared i32"),
        ("input x f32[2]\nbind y f32[i0 < 2] = wow(x[i0])", "unknown word 'wow'"),
        ("input x f32[2]\nbind y f32[i0 < 2] = x[i0] x", "unexpected 'x'"),
        ("input x f32[2]\nbind y f32[i0 < 2] = %0", "%0 is not defined"),
        ("input x f32[2]\nbind y f32[i0 < 2] where\n  %0 = x[i0]", "ends inside a bind"),
        ("input c bool[]\nif c -> y", "ends before 'else'"),
        (f"const w f32[40] = sha256:{'0' * 64}", "no array given"),
        ("const w f32[2] = [1.0]", "reshape"),
        ("nonsense 1", "unknown statement 'nonsense'"),
        ("input x f32[2]\nbind y f32[i0 < 2] = $", "cannot read"),
        ("input x f32[2]\nbind y f32[] = argmax.f32(r0_0 < 2: x[r0_0], idx(r0_0))", "component"),
    ],
)
def test_errors_name_the_line(body, message):
    with pytest.raises(ValueError, match=message):
        parse_program("tang-ir 1\nprogram p\n" + body)


def test_versions():
    with pytest.raises(TextError, match="version 2"):
        parse_program("tang-ir 2\nprogram p\n")
    with pytest.raises(TextError, match="expected 'tang'"):
        parse_program("")
    assert parse_program("tang-ir 1\n\n# a comment\nprogram p\n").name == "p"
