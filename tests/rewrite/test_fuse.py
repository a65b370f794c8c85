"""Structure after fusion: what becomes one bind, and what must not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tang_edge.ir import affine, scalar
from tang_edge.ir.affine import as_expr, var
from tang_edge.ir.dtype import f32
from tang_edge.ir.scalar import const, op
from tang_edge.ir.tensor import Alloc, Origin, Store, TensorType, bind
from tang_edge.rewrite.decide import FusionLimits
from tang_edge.rewrite.fuse import fuse, reasons


def names(found) -> list[str]:
    return [b.name for b in found.steps]


def test_conv_batch_norm_swish_residual_is_one_bind(net, checked) -> None:
    net.conv("c", "x", 4)
    net.channel("s", "mul", "c", net.weights("gamma", 4))
    net.channel("t", "add", "s", net.weights("beta", 4))
    net.map("sig", lambda v: 1.0 / (1.0 + op("exp", -v)), "t")
    net.map("act", lambda a, b: a * b, "t", "sig")
    net.map("y", lambda a, b: a + b, "act", "x")
    net.output("y")
    found = checked(net.build())
    assert names(found) == ["y"]
    assert len(found.prologue) == 1  # gamma went into the weights


def test_two_reductions_never_share_a_bind(net, checked) -> None:
    net.map("y", lambda a, b: a + b, net.conv("a", "x", 4), net.conv("b", "x", 4, 1))
    net.output("y")
    found = checked(net.build())
    assert names(found) == ["a", "y"]
    assert all(len(scalar.comprehensions(b.expr)) == 1 for b in found.steps)


def test_a_reduction_with_two_readers_is_computed_once(net, checked) -> None:
    net.conv("c", "x", 4)
    net.output("p", net.relu("p", "c"))
    net.output("q", net.map("q", lambda v: v * 2.0, "c"))
    assert names(checked(net.build())) == ["c", "p", "q"]


def test_squeeze_and_excitation_keeps_the_scaled_input_stored(net, checked) -> None:
    net.relu("r", net.conv("c", "x", 4))
    gate = net.map("g", lambda v: 1.0 / (1.0 + op("exp", -v)), net.mean("m", "r"))
    net.bind("se", net.shape("r"), lambda n, c, h, w: net.read("r", (n, c, h, w)) * net.read(gate, (n, c, 0, 0)))
    net.output("y", net.conv("d", "se", 6, 1))
    assert names(checked(net.build())) == ["r", "g", "se", "d"]


def test_activation_before_a_convolution_is_stored(net, checked) -> None:
    net.output("y", net.conv("c", net.relu("r", "x"), 4))
    assert names(checked(net.build())) == ["r", "c"]


def test_sum_of_squares_takes_its_operand_in(net, checked) -> None:
    net.output("y", net.mean("m", net.map("sq", lambda v: v * v, net.map("p", lambda v: v + 1.0, "x"))))
    assert names(checked(net.build())) == ["m"]


def test_layer_norm_is_three_binds(net, checked) -> None:
    net.mean("mu", "x")
    net.bind("d", net.shape("x"), lambda n, c, h, w: net.read("x", (n, c, h, w)) - net.read("mu", (n, c, 0, 0)))
    net.mean("var", net.map("sq", lambda v: v * v, "d"))
    net.map("sd", lambda v: op("sqrt", v + 1e-5), "var")
    net.bind("y", net.shape("x"), lambda n, c, h, w: net.read("d", (n, c, h, w)) / net.read("sd", (n, c, 0, 0)))
    net.output("y")
    assert names(checked(net.build())) == ["mu", "sd", "y"]


def test_views_between_layers_add_no_bind(net, checked) -> None:
    c = net.conv("c", "x", 6)
    net.bind("t", (1, 8, 8, 6), lambda n, h, w, k: net.read(c, (n, k, h, w)))
    net.bind("s", (1, 8, 8, 2, 3), lambda n, h, w, a, b: net.read("t", (n, h, w, as_expr(a) * 3 + as_expr(b))))
    net.output("y", net.map("y", lambda v: v * v, "s"))
    assert names(checked(net.build())) == ["y"]


def test_a_merged_axis_is_stored_through_the_inverse_view(net, checked) -> None:
    c = net.conv("c", "x", 6)
    net.bind("flat", (1, 6, 64), lambda n, k, i: net.read(c, (n, k, as_expr(i) // 8, as_expr(i) % 8)))
    net.output("y", net.map("y", lambda v: v * v, "flat"))
    (only,) = checked(net.build()).steps
    assert only.store is not None and only.store.tensor == "y"
    assert [str(e) for e in only.store.coords] == ["0", "i1", "8*i2 + i3"]


def test_padding_an_activation_keeps_its_fill(net, checked) -> None:
    """pad(relu(x + 0.5)) is 0 outside, not relu(0.5)."""
    net.map("r", lambda v: op("max", v + 0.5, const(0, f32)), "x")

    def padded(n, c, h, w):
        row = as_expr(h) - 1
        return net.read("r", (n, c, row, w), (row, 7 - row))

    net.output("y", net.bind("y", (1, 4, 10, 8), padded))
    assert names(checked(net.build())) == ["y"]


def test_reads_under_a_guard_stay_in_bounds_inside_a_window(net, checked) -> None:
    """A max over padded windows of x + 1: the interpreter refuses any read out of bounds."""
    net.map("p", lambda v: v + 1.0, "x")

    def window(n, c, h, w):
        r = (var("k", 3),)
        row = as_expr(h) + as_expr(r[0]) - 1
        return scalar.reduce(scalar.max_of(f32), r, net.read("p", (n, c, row, w), (row, 7 - row), -np.inf))

    net.output("y", net.bind("y", (1, 4, 8, 8), window))
    checked(net.build())


def test_broadcast_of_an_expensive_vector_is_stored(net, checked) -> None:
    big = net.input("big", f32, (64, 4096))
    v = net.input("v", f32, (64,))
    net.bind("e", (64,), lambda i: op("exp", op("exp", net.read(v, (i,)))))
    net.output("y", net.bind("y", (64, 4096), lambda i, j: net.read(big, (i, j)) * net.read("e", (i,))))
    assert names(checked(net.build())) == ["e", "y"]


def test_outputs_keep_their_tensors(net, checked) -> None:
    net.output("a", net.relu("r", "x"))
    net.output("b", net.map("n", lambda v: -v, "r"))
    assert names(checked(net.build())) == ["r", "n"]


@pytest.mark.parametrize(("limit", "binds"), [(7, 1), (3, 3)])
def test_tensor_limit(net, limit: int, binds: int) -> None:
    total = "x"
    for k in range(5):
        total = net.map(f"s{k}", lambda a, b: a + b, total, net.input(f"in{k}", f32, (1, 4, 8, 8)))
    net.output("y", total)
    fused = fuse(net.build(), FusionLimits(tensors_read=limit))
    assert len(fused.binds()) == binds
    assert all(len({r.tensor for r in scalar.reads(b.expr)}) <= limit for b in fused.binds())


def test_origins_add_up_in_order(net, checked) -> None:
    for k, name in enumerate(("a", "b", "c")):
        net.origin = (Origin("Relu", name),)
        net.map(name, lambda v: v + 1.0, "x" if k == 0 else "abc"[k - 1])
    net.output("c")
    (only,) = checked(net.build()).steps
    assert [o.node for o in only.origin] == ["a", "b", "c"]


def test_symbolic_sizes(net, checked) -> None:
    n = net.dim("batch", 1, 8)
    z = net.input("z", f32, (n, 5))
    r = var("k", 5)
    w = net.weights("w", 5, 6)
    total = lambda i, j: scalar.reduce(scalar.sum_of(f32), (r,), net.read(z, (i, r)) * net.read(w, (r, j)))  # noqa: E731
    net.bind("mm", (n, 6), total)
    net.bind("t", (6, n), lambda j, i: net.read("mm", (i, j)))
    net.output("y", net.map("y", lambda v: op("tanh", v), "t"))
    assert names(checked(net.build())) == ["y"]
    assert affine.dims(net.shape("y")[1])


def test_a_merge_of_symbolic_axes_costs_no_bind(net, checked) -> None:
    """[n, m, 4] -> [n * m, 4] cannot be a view (division by m): it is a store, and the activation moves to it."""
    n, m = net.dim("n", 1, 8), net.dim("m", 1, 8)
    z = net.input("z", f32, (n, m, 5))
    r, w = var("k", 5), net.weights("w", 5, 4)
    total = lambda i, j, o: scalar.reduce(scalar.sum_of(f32), (r,), net.read(z, (i, j, r)) * net.read(w, (r, o)))  # noqa: E731
    net.bind("mm", (n, m, 4), total)
    net.items.append(Alloc("flat", TensorType(f32, (n * m, affine.const(4)))))
    net.types["flat"] = net.items[-1].type
    body = bind("flat.0", (n, m, 4), lambda *i: net.read("mm", i))
    i, j, o = map(as_expr, body.axes)
    net.items.append(replace(body, store=Store("flat", (i * m + j, o))))
    net.output("y", net.map("y", lambda v: op("tanh", v), "flat"))
    (fused,) = checked(net.build()).steps
    assert fused.store is not None and fused.store.tensor == "y"
    assert [str(e) for e in fused.store.coords] == ["m*i0 + i1", "i2"]


def test_reasons_are_given_for_every_bind(net, checked) -> None:
    net.output("y", net.conv("c", net.relu("r", "x"), 4))
    assert {k: d.fuse for k, d in reasons(checked(net.build()).program).items()} == {"r": False, "c": False}
