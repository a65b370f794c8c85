"""Every case file through every backend; its structure after rewriting; its text and its invariants."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from tang_edge.ir.text import print_program, same_program, weights_of
from tang_edge.ir.text_parse import parse_program
from tang_edge.ir.verify import verify


def _loader():  # the tests are no package: load the module by its path, once
    name = "tang_edge_test_cases_loader"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / "cases" / "loader.py")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


loader = _loader()
CASES = loader.cases()
every_case = pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)


@every_case
@pytest.mark.parametrize("backend", loader.BACKENDS, ids=lambda b: b.name)
def test_values(case, backend):
    if reason := backend.missing():
        pytest.skip(f"{backend.name}: {reason}")
    for inputs in case.runs:
        got, expected = backend.run(case, inputs), case.expected(inputs)
        for name, want in expected.items():
            assert got[name].shape == want.shape, name
            if want.dtype.kind != "f":
                np.testing.assert_array_equal(got[name], want, err_msg=name)
                continue
            rtol = case.rtol(backend.exact)
            finite = np.abs(want[np.isfinite(want)])
            np.testing.assert_allclose(got[name].astype(np.float64), want, rtol, rtol * finite.max(initial=0), err_msg=name)


@every_case
def test_structure(case):
    optimize = loader.optimizer()
    if not case.structure:
        pytest.skip("the case states no structure")
    if optimize is None:
        pytest.skip("tang_edge.rewrite.pipeline is not there")
    found = loader.structure_of(optimize(case.program))
    for what, relation, count in case.structure:
        assert found[what] <= count if relation == "<=" else found[what] == count, (what, found)


@every_case
def test_invariants_are_proved(case):
    assert verify(case.program) == ()


@every_case
def test_text_reads_back(case):
    text = print_program(case.program)
    assert same_program(parse_program(text, weights_of(case.program)), case.program)
    assert same_program(parse_program(print_program(case.program, weights=True)), case.program)
