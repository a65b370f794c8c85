"""Random programs through every class, alternate and thread count, against the interpreter, in poisoned memory."""

from __future__ import annotations

import os

import devicekit
import numpy as np
import pytest
import random_nets

from tang_edge.c_fallback import compile as cc
from tang_edge.ir import interp
from tang_edge.ir.verify import verify
from tang_edge.rewrite.pipeline import optimize

SEEDS = range(int(os.environ.get("TANG_EDGE_FUZZ_FROM", "0")), int(os.environ.get("TANG_EDGE_FUZZ_TO", "24")))
SIZES = [(8, 1), (4, 23), (40, 40), (12, 7), (4, 2)]


def sizes_of(program, count):
    """Sizes smaller and greater than tiles; h is a multiple of 4, which every program allows."""
    return [{d.name: dict(h=h, w=w)[d.name] for d in program.dims} for h, w in SIZES[:count]]


def compare(program, device, feeds, want, what):
    got = device.run(feeds)
    for name, value in want.items():
        problem = devicekit.difference(got[name], value, devicekit.tolerance_of(program))
        assert not problem, f"{what}: {name}: {problem}\n{device.first_wrong(program, feeds)}"
    return got


def check(program, device, sizes, seed):
    """All alternates at all sizes."""
    for k in range(device.alternates):
        device.choose(k)
        for at in sizes:
            feeds = devicekit.random_feeds(program, at, seed)
            want = interp.run(program, feeds, floats="f64")
            compare(program, device, feeds, want, f"{device.model.report.variant}, alternate {k}, sizes {at}")


def program_of(seed):
    program = random_nets.make(seed)
    verify(program)
    return optimize(program) if seed % 2 else program


@pytest.mark.device
@pytest.mark.parametrize("name", ["cpu-generic", "cpu-x86-64-v3", "cpu-x86-64-v4"])
@pytest.mark.parametrize("seed", SEEDS)
def test_c(seed, name, tmp_path):
    if devicekit.missing("c"):
        pytest.skip(devicekit.missing("c"))
    if name not in cc.cpu_classes():
        pytest.skip(f"this processor is no {name}")
    program = program_of(seed)
    devicekit.write_bundle(program, [name], tmp_path / "m.tang")
    one = devicekit.Device(tmp_path / "m.tang", "c")
    check(program, one, sizes_of(program, 5), seed)
    one.choose(0)
    two = devicekit.Device(tmp_path / "m.tang", "c", threads=2)
    at = sizes_of(program, 3)[2]
    feeds = devicekit.random_feeds(program, at, seed)
    for a, b in zip(one.run(feeds).values(), two.run(feeds).values(), strict=True):
        np.testing.assert_array_equal(a, b)
    one.close()
    two.close()


@pytest.mark.device
@pytest.mark.parametrize("seed", SEEDS)
def test_webgpu(seed, tmp_path):
    if devicekit.missing("webgpu"):
        pytest.skip(devicekit.missing("webgpu"))
    program = random_nets.make(seed, halves=False)
    program = optimize(program) if seed % 2 else program
    devicekit.write_bundle(program, ["browser"], tmp_path / "m.tang")
    device = devicekit.Device(tmp_path / "m.tang", "webgpu")
    check(program, device, sizes_of(program, 4), seed)
    device.close()
