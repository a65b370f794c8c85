"""A bundle whose outputs share tensors, are inputs or are constants."""

from __future__ import annotations

import numpy as np

from tang_edge import load
from tang_edge.compiler import pack_program
from tang_edge.ir import dtype, interp
from tang_edge.ir.tensor import Builder, Program


def shared() -> Program:
    b = Builder("shared")
    n = b.dim("n", 1, 16)
    x = b.input("x", dtype.f32, [n, 3])
    w = b.constant("w", np.arange(3, dtype=np.float32))
    y = b.bind("y", [n, 3], lambda i, j: b.read(x, [i, j]) * b.read(w, [j]))
    b.bind("v", [3], lambda j: b.read(w, [j]) + b.read(w, [j]))
    for name, tensor in (("first", y), ("second", y), ("x out", x), ("w", w), ("v", "v")):
        b.output(name, tensor)
    return b.build()


def test_a_bundle_gives_all_of_them(tmp_path, device):
    pack_program(shared(), tmp_path / "m.tang", targets=("webgpu", "cpu-x86-64-v3", "cpu-generic"))
    feeds = {"x": np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)}
    want = interp.run(shared(), feeds)
    with load(tmp_path / "m.tang", device=device) as model:
        for _ in range(2):
            got = model.run(feeds)
            assert list(got) == list(want)
            for name in want:
                np.testing.assert_allclose(got[name], want[name], rtol=1e-6, err_msg=name)
