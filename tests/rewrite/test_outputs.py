"""Outputs that share a tensor get one each; bundles of such programs run."""

from __future__ import annotations

import numpy as np

from tang_edge.ir import dtype, interp
from tang_edge.ir.tensor import Builder, Program
from tang_edge.ir.verify import verify
from tang_edge.rewrite.outputs import own_outputs


def shared() -> Program:
    b = Builder("shared")
    n = b.dim("n", 1, 16)
    x = b.input("x", dtype.f32, [n, 3])
    w = b.constant("w", np.arange(3, dtype=np.float32))
    y = b.bind("y", [n, 3], lambda i, j: b.read(x, [i, j]) * b.read(w, [j]))
    b.bind("v", [3], lambda j: b.read(w, [j]) + b.read(w, [j]))
    b.output("first", y)
    b.output("second", y)
    b.output("x out", x)
    b.output("w", w)
    b.output("v")
    return b.build()


def test_each_output_has_its_tensor():
    program = own_outputs(shared())
    assert verify(program) == ()
    tensors = [t for _, t in program.outputs]
    assert len(set(tensors)) == len(tensors) and not {"x", "w"} & set(tensors)
    assert [name for name, _ in program.outputs] == ["first", "second", "x out", "w", "v"]
    feeds = {"x": np.ones((2, 3), np.float32)}
    want, got = interp.run(shared(), feeds), interp.run(program, feeds)
    for name in want:
        np.testing.assert_array_equal(got[name], want[name])


def test_nothing_to_do_is_the_same_program():
    b = Builder("plain")
    x = b.input("x", dtype.f32, [4])
    b.bind("y", [4], lambda i: b.read(x, [i]) + b.read(x, [i]))
    b.output("y")
    program = b.build()
    assert own_outputs(program) is program
