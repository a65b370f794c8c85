"""A compiler that the user names is used or refused, never passed over in silence; small loops run on the caller alone."""

from __future__ import annotations

import numpy as np
import pytest

from tang_edge.c_fallback import compile as cc
from tang_edge.c_fallback.library import Library, work
from tang_edge.errors import DeviceError
from tang_edge.ir import scalar, tensor
from tang_edge.ir.dtype import f32
from tang_edge.schedule import choose, variant
from tang_edge.schedule.limits import CLASSES


@pytest.fixture
def fresh_search(monkeypatch):
    cc.find_compiler.cache_clear()
    yield monkeypatch
    cc.find_compiler.cache_clear()


def test_a_compiler_that_does_not_work_is_an_error(fresh_search) -> None:
    fresh_search.setenv("TANG_EDGE_CC", "/nowhere/cc -O2")
    with pytest.raises(DeviceError, match=r"TANG_EDGE_CC=/nowhere/cc -O2: is no working C compiler\. Correct it or unset it"):
        cc.find_compiler()


def test_work_counts_multiply_adds_and_decides_about_threads() -> None:
    b = tensor.Builder("mlp")
    n = b.dim("n", 1, 64)
    b.input("x", f32, (n, 100))
    b.constant("w", np.ones((100, 10), np.float32))
    r = scalar.fresh(100)
    b.bind("y", (n, 10), lambda i, j: scalar.reduce(scalar.sum_of(f32), [r], b.read("x", [i, r]) * b.read("w", [r, j])))
    b.output("y")
    program = b.build()
    assert work(program.binds()[0]) is n * 1000
    text = Library(variant.build(program, CLASSES["cpu-generic"], choose.Defaults())).text()
    assert "tang_for(1000 * D0 < TANG_ALONE ? 0 : x->pool," in text
