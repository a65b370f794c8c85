"""The self-test's tolerance follows how well a model is conditioned at its own test vector."""

from __future__ import annotations

import pytest

from tang_edge import vectors
from tang_edge.ir import tensor
from tang_edge.ir.dtype import f32


def _program(offset: float) -> tensor.Program:
    b = tensor.Builder("cancels")
    b.input("x", f32, (64,))
    b.bind("h", (64,), lambda i: b.read("x", [i]) + offset)
    b.bind("y", (64,), lambda i: b.read("h", [i]) - offset)
    b.output("y")
    return b.build()


@pytest.mark.parametrize(("offset", "least", "most"), [(1.0, 1e-5, 1e-5), (1e6, 0.05, 1.0)])
def test_cancellation_widens_it(offset: float, least: float, most: float) -> None:
    program = _program(offset)
    made = vectors.golden_vectors(program, program)
    assert least <= made.rtol <= most and made.atol == made.rtol
