"""Loops on the devices: the interpreter's answers, whole when steps run one by one, in one submission where they can."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from tang_edge import load
from tang_edge.bundle import format as fmt
from tang_edge.compiler import pack_program
from tang_edge.ir import interp

TARGETS = ("webgpu", "cpu-x86-64-v3", "cpu-generic")


def cases():
    name = "tang_edge_test_cases_loader"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[1] / "cases" / "loader.py")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    loader = sys.modules[name]
    return {n: loader.load(loader.FOLDER / f"{n}.te") for n in ("loop", "loop_while")}


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    folder = tmp_path_factory.mktemp("loops")
    made = {}
    for name, case in cases().items():
        made[name] = folder / f"{name}.tang"
        pack_program(case.program, made[name], targets=TARGETS)
    return made


def close(got, want):
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("name", ["loop", "loop_while"])
def test_answers(bundles, device, name):
    case = cases()[name]
    with load(bundles[name], device=device) as model:
        assert model.report.self_test.outcome == "passed"
        for feeds in (*case.runs, case.runs[0]):
            close(model.run(feeds), interp.run(case.program, feeds))


@pytest.mark.parametrize("name", ["loop", "loop_while"])
def test_steps_one_by_one(bundles, device, name):
    case = cases()[name]
    feeds = case.runs[0]
    want = interp.run(case.program, feeds, keep={"s", "a", "v"})
    with load(bundles[name], device=device) as model:
        (loop,) = [s for s in model.steps if isinstance(s, fmt.LoopStep)]
        assert [s.index for s in model.steps if isinstance(s, fmt.Step)] == [
            k for k, s in enumerate(model.steps) if isinstance(s, fmt.Step)
        ]
        model.run_steps(0, 0, feeds)
        for k in range(len(model.steps)):
            model.run_steps(k, k + 1)
        writer = next(s for s in model.steps if isinstance(s, fmt.Step) and s.name in ("a|start", "v|start"))
        close({"last": model.read_step(writer.index)}, {"last": want[writer.name[0]]})
        assert loop.index < loop.end <= len(model.steps)


def test_a_counted_loop_is_one_submission(bundles, needs_webgpu):
    feeds = cases()["loop"].runs[0]
    with load(bundles["loop"], device="webgpu") as model:
        model.run(feeds)
        before = model._engine.submissions
        model.run(feeds)
        assert model._engine.submissions == before + 1
