"""Weights cut into parts, binds divided that read too many tensors: the same answers, in the structure asked for."""

from __future__ import annotations

import pytest

from tang_edge.ir import affine, scalar
from tang_edge.ir.dtype import f32, i64
from tang_edge.ir.tensor import Alloc
from tang_edge.rewrite import parts
from tang_edge.rewrite.decide import FusionLimits
from tang_edge.rewrite.graph import tensors_read

ROWS, WIDTH = 101, 16


@pytest.fixture(params=(3, 9))
def small_bindings(request, monkeypatch) -> int:
    """A binding so small that the table takes that many parts."""
    monkeypatch.setattr(parts, "LARGEST", 4 * WIDTH * -(-ROWS // request.param))
    return request.param


def looked_up(net, table: str):
    ids = net.input("ids", i64, (5,))
    return net.bind(
        "e", (5, WIDTH), lambda i, j: net.read(table, (scalar.gather_index(net.read(ids, (i,)), affine.const(ROWS)), j))
    )


def test_a_table_is_looked_up_in_its_parts(net, checked, small_bindings: int) -> None:
    net.output("y", looked_up(net, net.weights("table", ROWS, WIDTH)))
    found = checked(net.build())
    assert sum(c.name.startswith("table|part") for c in found.program.constants) >= small_bindings
    assert all(parts.stored_bytes(c) <= parts.LARGEST for c in found.program.constants)
    assert all(len(tensors_read(b.expr)) <= FusionLimits().tensors_read for b in found.program.binds())


def test_a_tied_table_is_multiplied_part_by_part(net, checked, small_bindings: int) -> None:
    """The rows are an axis of the output: each part writes its columns, and no point selects."""
    table = net.weights("table", ROWS, WIDTH)
    e = looked_up(net, table)

    def logits(i, v):
        r = affine.var("r", WIDTH)
        return scalar.reduce(scalar.sum_of(f32), [r], net.read(e, (i, r)) * net.read(table, (v, r)))

    net.output("y", net.bind("y", (5, ROWS), logits))
    found = checked(net.build())
    assert sum(isinstance(i, Alloc) for i in found.program.items) == 1
    stored = [b for b in found.program.binds() if b.store is not None]
    assert len(stored) == small_bindings
    assert all(not r.view.guard for b in stored for r in scalar.reads(b.expr))


def test_a_reduced_axis_is_cut_where_no_output_has_one(net, checked, monkeypatch) -> None:
    monkeypatch.setattr(parts, "LARGEST", 4 * 64)
    w = net.weights("w", 3 * 64)

    def total(i):
        r = affine.var("r", 3 * 64)
        return scalar.reduce(scalar.sum_of(f32), [r], net.read(w, (r,)) * net.read("s", (i,)))

    net.input("s", f32, (4,))
    net.output("y", net.bind("y", (4,), total))
    assert {c.name for c in checked(net.build()).program.constants} == {"w|part0", "w|part1", "w|part2"}


@pytest.mark.parametrize("many", (8, 20, 60))
def test_a_sum_and_a_concatenation_of_many_tensors(net, checked, many: int) -> None:
    xs = [net.input(f"x{k}", f32, (2, 3)) for k in range(many)]
    net.output("cat", net.concat("cat", xs, 1))

    def total(*vs):
        out = vs[0]
        for v in vs[1:]:
            out = out + v * v
        return out

    net.output("sum", net.map("sum", total, *xs))
    found = checked(net.build())
    assert all(len(tensors_read(b.expr)) <= FusionLimits().tensors_read for b in found.program.binds())


def test_a_reduction_of_a_product_of_many_tensors(net, checked) -> None:
    xs = [net.input(f"x{k}", f32, (2, 3)) for k in range(12)]

    def body(i):
        r = affine.var("r", 3)
        v = net.read(xs[0], (i, r))
        for x in xs[1:]:
            v = v + net.read(x, (i, r))
        return scalar.reduce(scalar.sum_of(f32), [r], v)

    net.output("y", net.bind("y", (2,), body))
    found = checked(net.build())
    assert all(len(tensors_read(b.expr)) <= FusionLimits().tensors_read for b in found.program.binds())
