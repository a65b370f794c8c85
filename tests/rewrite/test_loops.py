"""Loops under the passes: bodies are optimised, reductions stay outside, unused loops go; what they carry becomes binds."""

from __future__ import annotations

from dataclasses import replace

from tang_edge.ir import affine
from tang_edge.ir.tensor import Alloc, Bind, Loop, Program, walk
from tang_edge.ir.text_parse import parse_program
from tang_edge.rewrite.loops import explicit_carries
from tang_edge.rewrite.pipeline import optimize

TEXT = """tang-ir 1
program p
const n i64[] = [4]
input x f32[3, 3]
input h0 f32[3]
bind g f32[i0 < 3, i1 < 3] = sum.f32(r0_0 < 3: x[i0, r0_0] * x[r0_0, i1])
bind s f32[i0 < 3] = h0[i0] * f32(2.0)
loop of n : h = h0 -> h1 @ Loop "l"
  bind t f32[i0 < 3] = sum.f32(r0_0 < 3: g[i0, r0_0] * h[r0_0])
  bind u f32[i0 < 3] = tanh(t[i0])
  bind h1 f32[i0 < 3] = u[i0] + s[i0]
end
bind y f32[i0 < 3] = h[i0] + f32(1.0)
output y = y
output s = s
"""


def program() -> Program:
    return parse_program(TEXT)


def test_bodies_are_fused_and_reductions_stay_outside():
    after = optimize(program())
    (loop,) = [i for i in after.items if isinstance(i, Loop)]
    assert [i.name for i in loop.body if isinstance(i, Bind)] == ["h1"]
    assert "g" in {i.name for i in after.items if isinstance(i, Bind)}


def test_an_unused_loop_goes():
    unused = replace(program(), outputs=(("s", "s"),))
    assert not [i for i in walk(optimize(unused).items) if isinstance(i, Loop)]


def test_carried_tensors_become_binds():
    made = explicit_carries(program())
    (loop,) = [i for i in made.items if isinstance(i, Loop)]
    assert loop.carried == () and loop.trip == affine.const(4)
    assert [i.name for i in made.items if isinstance(i, Alloc)] == ["h"]
    stores = [(b.name, b.store.tensor) for b in made.binds() if b.store]
    assert stores == [("h|start", "h"), ("h|turn", "h")] and loop.body[-1].name == "h|turn"
