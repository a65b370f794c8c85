"""The cost of a call: a tiny C model with 7 inputs and 6 outputs may cost 8 microseconds in Python."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import tangkit

import tang_edge
from tang_edge.bundle.write import write

SOURCE = (
    tangkit.ABI
    + r"""
#include <stddef.h>
TANG_EXPORT int32_t tang_abi(void) { return 1; }
TANG_EXPORT int32_t tang_sizes(const int64_t *d, int64_t *s) { (void)d; s[0] = 13 * 256; s[1] = 0; return 0; }
TANG_EXPORT int32_t tang_run(const tang_call *c) {
  if (c->phase == 0) return 0;
  for (int k = 0; k < 6; k++)
    for (int i = 0; i < 4; i++) {
      float a = ((float *)(c->arena + k * 256))[i], b = ((float *)(c->arena + 6 * 256))[i];
      ((float *)(c->arena + (7 + k) * 256))[i] = a + b;
    }
  return 0;
}
TANG_EXPORT void *tang_pool_new(int32_t threads) { (void)threads; return NULL; }
TANG_EXPORT void tang_pool_free(void *pool) { (void)pool; }
"""
)


@pytest.fixture
def tiny(tmp_path, needs_c):
    plan = tangkit.plan()
    names = [f"i{k}" for k in range(7)], [f"o{k}" for k in range(6)]
    plan["dims"] = [{"name": "n", "min": 1, "max": 4, "multiple": 1}]
    for key, part in zip(("inputs", "outputs"), names, strict=True):
        plan[key] = [{"name": n, "dtype": "f32", "shape": ["n"]} for n in part]
    plan["constants"] = []
    kinds = [("input", n) for n in names[0]] + [("output", n) for n in names[1]]
    buffers = [tangkit.buffer(i, n, k, "f32", ["n"], 80, slot=i, io=n) for i, (k, n) in enumerate(kinds)]
    step = {
        **tangkit.c_variant()["steps"][2],
        "writes": {"buffer": 7, "shape": ["n"], "strides": [1], "offset": 0},
    }
    variant = tangkit.c_variant(buffers=buffers, slots=[80] * 13, packed_slots=[], steps=[step])
    members = {"kernels/c-generic.c": SOURCE}
    path = tmp_path / "tiny.tang"
    write(path, name="tiny", plan={**plan, "variants": [variant]}, members=members, remember=True)
    with tang_edge.load(path, device="c", threads=1) as model:
        yield model, {n: np.full(4, k, np.float32) for k, n in enumerate(names[0])}


def test_many_ports(tiny):
    """What a call costs is measured in `benchmarks`; here: that its short way gives the right answers, again and again."""
    model, inputs = tiny
    for _ in range(3):
        assert [v[0] for v in model.run(inputs).values()] == [6, 7, 8, 9, 10, 11]


def test_alternating_sizes_stay_prepared(tiny):
    model, _ = tiny
    cases = [{f"i{k}": np.zeros(n, np.float32) for k in range(7)} for n in (1, 2, 3)]
    for inputs in cases:
        model.run(inputs)
    sizes = model._first._worker._sizes
    ready = [sizes.get((n,)) for n in (1, 2, 3)]
    assert None not in ready
    for inputs in cases:
        model.run(inputs)
    assert all(a is b for a, b in zip(ready, [sizes.get((n,)) for n in (1, 2, 3)], strict=True))


def test_memory_does_not_grow(tiny):
    model, inputs = tiny
    sizes = [{k: v[:n] for k, v in inputs.items()} for n in (1, 2, 3, 4)]

    def many():
        for _ in range(200):
            for case in sizes:
                model.run(case)

    many()
    tracemalloc.start()
    many()
    before = tracemalloc.get_traced_memory()[0]
    many()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 20_000
