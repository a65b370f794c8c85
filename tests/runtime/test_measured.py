"""A dimension whose value a run computes: read from a buffer between the steps, checked, good for that run only."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest

from tang_edge import compiler, load
from tang_edge.bundle import verify as bundle_verify
from tang_edge.bundle import write as bundle_write
from tang_edge.errors import BundleError, DeviceError
from tang_edge.ir import dtype, scalar
from tang_edge.ir.affine import as_expr, dims, var
from tang_edge.ir.scalar import cast, const, op, reduce, sum_of
from tang_edge.ir.tensor import Builder, Program
from tang_edge.schedule import choose, limits, variant

CLASSES = ("browser", "cpu-generic")


def program() -> Program:
    """k = twice the number of positive x; y = the sums of the first k elements of x's running squares; 0 behind them."""
    b = Builder("positive")
    size = b.dim("k", 0, 16, 2)
    x = b.input("x", dtype.f32, [16])
    r = var("r", 16)
    two = scalar.select(op("lt", const(0, dtype.f32), b.read(x, [r])), const(2, dtype.i32), const(0, dtype.i32))
    b.bind("count", [], lambda: cast(reduce(sum_of(dtype.i32), (r,), two), dtype.i64))
    b.bind("part", [size], lambda i: b.read(x, [i]) * b.read(x, [i]))
    q = var("q", size)
    b.bind("total", [], lambda: reduce(sum_of(dtype.f32), (q,), b.read("part", [q])))
    b.bind("y", [16], lambda i: b.read("part", [i], [size - 1 - as_expr(i)]) + b.read("total", []))
    b.output("y")
    b.output("count")
    return b.build()


def expected(x):
    k = 2 * int((x > 0).sum())
    part = np.where(np.arange(16) < k, x * x, 0)
    return part + part.sum(), k


def made(p: Program):
    """The variants of the program, with the reading of k behind the step that counts."""
    found = []
    for name in CLASSES:
        v = variant.build(p, limits.CLASSES[name], choose.Defaults((), None))
        steps = list(v.steps)
        at = [s.bind.name for s in steps].index("count") + 1
        steps.insert(at, variant.Measure(p.dims[0], "count"))
        v = replace(v, steps=tuple(steps))
        found.append(compiler.EMITTERS["webgpu" if name == "browser" else "c"](v, compiler.NOBODY))
    return found


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    found = tmp_path_factory.mktemp("measured") / "m.tang"
    p = program()
    plan, members = compiler.assemble(p, made(p))
    bundle_write.write(found, name="m", plan=plan, members=members, remember=True)
    return found


def inputs(positive: int):
    x = -np.abs(np.random.default_rng(positive).normal(size=16)).astype(np.float32)
    x[:positive] *= -1
    return x


def test_the_size_is_that_of_the_run(path, device):
    assert dims(program().items[1].axes[0].extent)
    with load(path, device=device) as model:
        for positive in (3, 0, 8, 5, 5, 1):
            x = inputs(positive)
            got, (want, k) = model.run({"x": x}), expected(x)
            assert int(got["count"]) == k
            np.testing.assert_allclose(got["y"], want, rtol=1e-5)


def test_a_size_out_of_range_is_an_error_and_the_next_run_goes_on(path, device):
    with load(path, device=device) as model:
        with pytest.raises(DeviceError, match="computed"):
            model.run({"x": inputs(9)})
        x = inputs(4)
        np.testing.assert_allclose(model.run({"x": x})["y"], expected(x)[0], rtol=1e-5)


def test_step_by_step(path, device):
    with load(path, device=device) as model:
        x = inputs(4)
        model.run_steps(0, 0, {"x": x})
        for k in range(len(model.steps)):
            model.run_steps(k, k + 1)
        np.testing.assert_allclose(model.read_step(len(model.steps) - 1), expected(x)[0], rtol=1e-5)


def loop_of(step):
    return {"loop": {"trip": 2, "cond": None, "body": [step]}}


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda p: p["outputs"][0].update(shape=["k"]), "read during the run"),
        (lambda p: p["variants"][0]["steps"][1]["dim"].update(name="n"), "must be one of"),
        (lambda p: p["variants"][0]["steps"][1]["dim"].update({"from": 99}), "no such buffer"),
        (lambda p: p["variants"][0]["steps"].append(loop_of(p["variants"][0]["steps"][1])), "top"),
    ],
)
def test_refusals(change, match):
    p = program()
    plan = {**compiler.assemble(p, made(p))[0], "constants": [], "golden": []}
    bundle_verify.parse_plan(copy.deepcopy(plan))
    change(plan)
    with pytest.raises(BundleError, match=match):
        bundle_verify.parse_plan(plan)
