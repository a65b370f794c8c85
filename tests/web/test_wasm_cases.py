"""The case files on WebAssembly under Node: every set of inputs, by every alternate of the kernels."""

from __future__ import annotations

import judging
import numpy as np
import pytest
import wasmkit
import webkit

pytestmark = pytest.mark.device


loader = judging.case_loader()
CASES = loader.cases()


@pytest.fixture(scope="module")
def answers(web_dist, tmp_path_factory):
    """By case: the outputs of every run by every alternate."""
    if reason := wasmkit.missing() or wasmkit.node_missing():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("cases")
    bundles = {c.name: wasmkit.write_bundle(loader.optimizer()(c.program), folder / f"{c.name}.tang") for c in CASES}
    tasks = [{"bundle": str(bundles[c.name]), "runs": [webkit.encoded(x) for x in c.runs]} for c in CASES]
    return dict(zip(bundles, wasmkit.under_node(web_dist, tasks), strict=True))


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_values(case, answers):
    answer = answers[case.name]
    assert "error" not in answer, answer["error"]
    assert len(answer["results"]) % len(case.runs) == 0
    rtol = case.rtol(exact=False)
    for k, outputs in enumerate(answer["results"]):
        got, message = webkit.decoded(outputs), f"alternate {k // len(case.runs)}"
        for name, want in case.expected(case.runs[k % len(case.runs)]).items():
            assert got[name].shape == want.shape, name
            if want.dtype.kind != "f":
                np.testing.assert_array_equal(got[name], want, err_msg=f"{name}, {message}")
                continue
            finite = np.abs(want[np.isfinite(want)])
            np.testing.assert_allclose(
                got[name].astype(np.float64), want, rtol, rtol * finite.max(initial=0), err_msg=f"{name}, {message}"
            )
