"""Literals, scales and offsets, hoisting, and which binds run at load."""

from __future__ import annotations

import numpy as np
import pytest

from tang_edge.ir import affine, scalar
from tang_edge.ir.affine import as_expr, var
from tang_edge.ir.dtype import f16, f32, i8
from tang_edge.ir.scalar import Const, cast, op
from tang_edge.ir.tensor import Builder
from tang_edge.rewrite.constants import hoist, is_prologue
from tang_edge.rewrite.cost import op_count
from tang_edge.rewrite.literals import inline_literals


def test_constants_of_one_value_become_literals(net) -> None:
    net.constant("six", np.full((1, 4, 1, 1), 6, np.float32))
    net.channel("y", "mul", "x", net.weights("g", 4))
    net.bind("z", net.shape("x"), lambda *i: op("min", net.read("y", i), net.read("six", (0, i[1], 0, 0))))
    net.output("z")
    program = inline_literals(net.build())
    assert Const in {type(a) for a in program.binds()[-1].expr.args}


def test_zeros_of_both_signs_are_not_one_value(net) -> None:
    net.constant("z", np.asarray([0.0, -0.0, 0.0, 0.0], np.float32))
    net.output("y", net.channel("y", "add", "x", "z"))
    assert {r.tensor for r in scalar.reads(inline_literals(net.build()).binds()[0].expr)} == {"x", "z"}


def test_paddle_chain_costs_one_scale_less(net, checked) -> None:
    """conv, +bias, *scale, +bias, *scale, +bias: one addition is left."""
    net.conv("c", "x", 4)
    last = "c"
    for k, name in enumerate(("add", "mul", "add", "mul", "add")):
        last = net.channel(f"s{k}", name, last, net.weights(f"{name}{k}", 4))
    net.output("y", last)
    found = checked(net.build())
    (bind,) = found.steps
    assert op_count(bind.expr) == 1
    assert len(found.prologue) == 2


def test_scale_of_a_depthwise_convolution_goes_into_its_weights(net, checked) -> None:
    w = net.weights("w", 4, 3)

    def depthwise(n, c, h, x):
        k = var("k", 3)
        col = as_expr(x) + as_expr(k) - 1
        return scalar.reduce(scalar.sum_of(f32), (k,), net.read("x", (n, c, h, col), (col, 7 - col)) * net.read(w, (c, k)))

    net.bind("c", net.shape("x"), depthwise)
    net.output("y", net.channel("y", "mul", "c", net.weights("g", 4)))
    found = checked(net.build())
    assert [b.type.shape for b in found.prologue] == [(affine.const(4), affine.const(3))]
    assert op_count(found.steps[0].expr) == 0


def test_scale_reaches_weights_read_at_a_remainder(net, checked) -> None:
    """A transposed convolution of stride 2: weights at i % 2 are two columns, however many i there are."""
    w = net.weights("w", 4, 2)
    net.bind(
        "c",
        (1, 4, 8, 8),
        lambda n, c, h, x: scalar.reduce(
            scalar.sum_of(f32),
            (k := var("k", 4),),
            net.read("x", (n, k, h, as_expr(x) // 2)) * net.read(w, (k, as_expr(x) % 2)),
        ),
    )
    net.output("y", net.map("y", lambda v: v * 3.0, "c"))
    found = checked(net.build())
    assert [b.type.shape for b in found.prologue] == [(affine.const(4), affine.const(2))]


def test_a_shared_value_is_not_scaled_twice(net, checked) -> None:
    """t = c * g + b is used by the gate and by the product: its scale and offset stay one computation."""
    net.conv("c", "x", 4)
    net.channel("t", "add", net.channel("s", "mul", "c", net.weights("g", 4)), net.weights("b", 4))
    gate = net.map("gate", lambda v: op("max", op("min", v + 3.0, scalar.const(6, f32)), scalar.const(0, f32)), "t")
    net.output("y", net.map("y", lambda a, b: a * b, "t", gate))
    (bind,) = checked(net.build()).steps
    assert op_count(bind.expr) == 5


def test_equal_parts_are_hoisted_once(net, checked) -> None:
    g, h = net.weights("g", 4), net.weights("h", 4)
    total = lambda *i: net.read("x", i) / (net.read(g, (i[1],)) + net.read(h, (i[1],)))  # noqa: E731
    net.output("a", net.bind("a", net.shape("x"), total))
    net.output("b", net.bind("b", net.shape("x"), lambda *i: -total(*i)))
    assert len(checked(net.build()).prologue) == 1


def test_casts_of_weights_are_not_copied(net, checked) -> None:
    net.constant("w", np.arange(4, dtype=np.float16))
    net.output("y", net.bind("y", net.shape("x"), lambda *i: net.read("x", i) * cast(net.read("w", (i[1],)), f32)))
    assert net.types["w"].dtype is f16
    assert not checked(net.build()).prologue


def test_an_outer_product_larger_than_its_sources_stays(net) -> None:
    a, b = net.weights("a", 300), net.weights("b", 400)
    big = net.input("big", f32, (300, 400))
    net.bind("y", (300, 400), lambda i, j: net.read(big, (i, j)) + net.read(a, (i,)) * net.read(b, (j,)))
    net.output("y")
    assert len(hoist(net.build()).binds()) == 1


def test_prologue_is_transitive_and_leaves_outputs_and_sizes_alone() -> None:
    b = Builder("p")
    n = b.dim("n", 1, 9)
    b.constant("w", np.ones((3,), np.float32))
    b.bind("one", (3,), lambda i: b.read("w", (i,)) + 1.0)
    b.bind("two", (3,), lambda i: b.read("one", (i,)) + 1.0)
    b.bind("sized", (n, 3), lambda i, j: b.read("two", (j,)))
    b.bind("out", (3,), lambda i: b.read("two", (i,)))
    b.output("out")
    assert is_prologue(b.build()) == {"one", "two"}


@pytest.mark.parametrize("length", [16, 2000])
def test_quantised_product_is_summed_in_integers(net, checked, length: int) -> None:
    """In i32, or in f32 while every partial sum is an integer below 2^24: then floats add exactly as well."""
    q = net.input("q", i8, (2, length))
    rng = np.random.default_rng(1)
    net.constant("w", rng.integers(-128, 128, (length, 5)).astype(np.int8))
    net.constant("sw", rng.uniform(0.01, 0.1, 5).astype(np.float32))
    net.bind(
        "dq",
        (2, length),
        lambda i, k: cast(op("sub", cast(net.read(q, (i, k)), f32), scalar.const(3, f32)), f32) * 0.05,
    )
    net.bind("dw", (length, 5), lambda k, j: cast(net.read("w", (k, j)), f32) * net.read("sw", (j,)))
    r = var("k", length)
    net.bind(
        "y",
        (2, 5),
        lambda i, j: scalar.reduce(scalar.sum_of(f32), (r,), net.read("dq", (i, r)) * net.read("dw", (r, j))),
    )
    net.output("y")
    (bind,) = checked(net.build(), rtol=1e-5).steps
    (c,) = scalar.comprehensions(bind.expr)
    assert c.monoid.identity[0].dtype.is_float == (length * 131 * 128 <= 1 << 24)
    assert {x.tensor for x in scalar.reads(c.lifts[0])} == {"q", "w"} or length == 16  # the cast weights may be hoisted
    assert not {"sw", "dq", "dw"} & {x.tensor for x in scalar.reads(c.lifts[0])}


def test_long_quantised_sums_stay_in_floats(net, checked) -> None:
    """2^31 / (255 * 255) is 33,025 terms: one more might overflow."""
    q = net.input("q", i8, (200_000,))
    r = var("k", 200_000)
    cq = lambda: cast(net.read(q, (r,)), f32)  # noqa: E731
    net.output("y", net.bind("y", (), lambda: scalar.reduce(scalar.sum_of(f32), (r,), cq() * cq())))
    (bind,) = checked(net.build()).steps
    (c,) = scalar.comprehensions(bind.expr)
    assert c.monoid.identity[0].dtype is f32


def test_the_scale_of_an_operand_leaves_the_sum(net, checked) -> None:
    """Attention scores: q is a view of a projection that has other readers, times a number."""
    z = net.input("z", f32, (6, 24))
    net.bind("q", (6, 8), lambda i, d: net.read(z, (i, d)) * 0.25)
    r = var("d", 8)
    score = lambda i, j: scalar.reduce(  # noqa: E731
        scalar.sum_of(f32), (r,), net.read("q", (i, r)) * net.read(z, (j, as_expr(r) + 8))
    )
    net.output("y", net.bind("y", (6, 6), score))
    (bind,) = checked(net.build()).steps
    assert op_count(bind.expr) == 1


def test_a_scaled_tensor_with_another_use_stays(net, checked) -> None:
    net.map("s", lambda v: v * 0.3, "x")
    net.output("y", net.conv("y", "s", 2))
    net.output("s")
    assert [b.name for b in checked(net.build()).steps] == ["s", "y"]
