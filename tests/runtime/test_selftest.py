"""The self-test and what follows from it: demotion by name, refusal, and honest reports."""

from __future__ import annotations

import numpy as np
import pytest
import tangkit

import tang_edge
from tang_edge.bundle.write import GoldenVectors
from tang_edge.errors import BundleError, DeviceError
from tang_edge.runtime import selftest


def test_a_wrong_alternate_is_demoted_by_name(tmp_path, device):
    path = tangkit.make(tmp_path / "bad.tang", bad=1.0)
    with tang_edge.load(path, device=device) as model:
        assert model.report.self_test.outcome == "passed after demotions"
        (demotion,) = model.report.demotions
        assert (demotion.step, demotion.name, demotion.refused, demotion.used) == (
            0,
            "scaled",
            "fast",
            "safe",
        )
        assert demotion.origin == ("node_scaled",)
        inputs = tangkit.arrays(9)
        np.testing.assert_allclose(model.run(inputs)["y"], tangkit.expected(inputs)["y"], rtol=1e-5, atol=1e-5)
        assert "scaled: fast -> safe" in str(model.report)
    with tang_edge.load(path, device=device, self_test=False) as model:
        assert model.report.self_test.outcome.startswith("skipped")
        assert not model.report.demotions
        assert abs(model.run(tangkit.arrays(2))["y"] - tangkit.expected(tangkit.arrays(2))["y"]).max() > 0.9


def _golden(change):
    good = tangkit.golden()
    arrays = {k: v.copy() for k, v in good.arrays.items()}
    change(arrays)
    return GoldenVectors(good.dims, arrays, good.rtol, good.atol)


def test_no_alternate_left(tmp_path, device):
    def change(arrays):
        arrays["out/y"][0, 0] += 1
        arrays["step/y"][0] += 1

    path = tangkit.make(tmp_path / "g.tang", golden=[_golden(change)])
    with pytest.raises(DeviceError, match=r"Step 1 \(y\).*no alternate left.*node_y"):
        tang_edge.load(path, device=device)


def test_where_no_single_step_departs_all_are_made_safe(tmp_path, device):
    def forget(arrays):
        for key in [k for k in arrays if k.startswith("step/")]:
            del arrays[key]

    path = tangkit.make(tmp_path / "g.tang", bad=2.0, golden=[_golden(forget)])
    with tang_edge.load(path, device=device) as model:
        assert [d.name for d in model.report.demotions] == ["scaled"]
        assert "no single step" in model.report.demotions[0].why

    def spoil(arrays):
        forget(arrays)
        arrays["out/y"][0, 0] += 1

    path = tangkit.make(tmp_path / "h.tang", golden=[_golden(spoil)])
    with pytest.raises(DeviceError, match="no step departs"):
        tang_edge.load(path, device=device)


def test_full_runs_every_vector(tmp_path, device):
    path = tangkit.make(tmp_path / "f.tang", golden=[tangkit.golden(2), tangkit.golden(40)])
    with tang_edge.load(path, device=device, self_test="full") as model:
        assert model.report.self_test.vectors == 2
        assert model.report.self_test.runs == 3
        assert 0 <= model.report.self_test.worst <= 1
    with tang_edge.load(path, device=device) as model:
        assert model.report.self_test.vectors == 1


def test_without_vectors_the_report_says_so(tmp_path, device):
    path = tangkit.make(tmp_path / "n.tang", golden=[])
    with tang_edge.load(path, device=device) as model:
        assert model.report.self_test.outcome == "skipped: the bundle holds no golden vectors"


def test_golden_that_lacks_an_input(tmp_path, device):
    path = tangkit.make(tmp_path / "n.tang", golden=[_golden(lambda arrays: arrays.pop("in/b"))])
    with pytest.raises(BundleError, match=r"golden/0\.safetensors: lacks the input 'b'"):
        tang_edge.load(path, device=device)


def test_steps_that_are_not_reproducible_are_demoted(tmp_path, needs_c):
    source = tangkit.C_MODEL.replace("choice == 0 ? BAD : 0.0f", "choice == 0 ? FLAKY * 1e-7f : 0.0f")
    source = source.replace("  static float FLAKY = 0;\n", "").replace(
        "static void add(", "static float FLAKY = 0;\nstatic void add("
    )
    path = tangkit.make(tmp_path / "f.tang", wgsl=False, members={"kernels/c-generic.c": source})
    with tang_edge.load(path, device="c") as model:
        (demotion,) = model.report.demotions
        assert demotion.name == "scaled"
        assert "different bits" in demotion.why


@pytest.mark.parametrize(
    ("have", "want", "limit"),
    [
        ([1.0, np.nan], [1.0, np.nan], 0),
        ([1.0, np.nan], [1.0, 2.0], np.inf),
        ([np.inf], [np.inf], 0),
        ([np.inf], [-np.inf], np.inf),
        ([1.0], [1.5], 0.5),
        ([], [], 0),
    ],
)
def test_ratio(have, want, limit):
    golden = tang_edge.bundle.format.Golden({}, "", 0.0, 1.0)
    assert selftest.ratio(np.array(have), np.array(want), golden) == limit
