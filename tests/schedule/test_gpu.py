"""The default schedules for WebGPU: which alternates a bind has, in which order."""

from __future__ import annotations

import pytest

from tang_edge.ir import affine, scalar
from tang_edge.ir.affine import as_expr, var
from tang_edge.ir.dtype import f32
from tang_edge.ir.tensor import Bind
from tang_edge.schedule import gpu
from tang_edge.schedule.addresses import place
from tang_edge.schedule.limits import CLASSES
from tang_edge.schedule.nest import Kind
from tang_edge.schedule.split import turns, within_turns


def depthwise(channels: int) -> tuple[Bind, dict[str, object]]:
    """Five taps along x, the channels innermost in memory."""
    x, c, k = var("i0", 96), var("i1", channels), var("k", 5)
    lift = scalar.read("x", [as_expr(x) + as_expr(k), c], f32) * scalar.read("w", [k, c], f32)
    bind = Bind("y", (x, c), scalar.reduce(scalar.sum_of(f32), [k], lift))
    types = {"x": (100, channels), "w": (5, channels), "y": (96, channels)}
    places = {n: place(Bind(n, tuple(var(f"i{k}", e) for k, e in enumerate(s)), bind.expr).type) for n, s in types.items()}
    return bind, places


@pytest.mark.parametrize("channels", [88, 200])
def test_depthwise_has_a_tile_for_cpu_adapters_behind_that_for_gpus(channels):
    bind, places = depthwise(channels)
    limits = CLASSES["browser"]
    found = dict(gpu.options(bind, places, {"w"}, limits))
    assert list(found) == ["vectors", "registers", "points"]
    loops = {kind: [x for x in found["registers"].nests[0].loops if x.kind is kind] for kind in Kind}
    assert [x.var.extent.constant for x in loops[Kind.UNROLL] if x.var.extent.constant != 1] == [limits.tile[0]]
    lanes = [x.var.extent.constant for x in found["vectors"].nests[0].loops if x.kind is Kind.LANE]
    assert channels // 4 in lanes  # none of them idle


def test_two_passes_keep_every_invocation_within_the_turns():
    n = affine.dim("n", 1, 1 << 20)
    r = var("r", n)
    bind = Bind("y", (), scalar.reduce(scalar.sum_of(f32), [r], scalar.read("x", [r], f32)))
    parts, whole = within_turns(bind, 65535)
    assert [p.name for p in parts] == ["y|part"]
    assert max(turns(b.expr) for b in (*parts, whole)) <= 65535
