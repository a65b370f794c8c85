"""The benchmark harness with sides made here: what it reports, and what it must refuse to report."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))  # at the end: an installed tang_edge stays the one that is tested

measure = pytest.importorskip("benchmarks.measure", reason="needs onnxruntime")
from benchmarks import report, run, sides  # noqa: E402  (after the path is set)

EFFORT = measure.Effort(rounds=4, block=0.002, most=5, budget=1.0, pause=0.0)


class Fake:
    """A side that doubles its input in `delay` seconds; `fault` makes it wrong in one way."""

    def __init__(self, name: str, delay: float = 0.0, fault: str = "") -> None:
        self.name, self.fault, self.delay = name, fault, delay
        self.feeds: list[Mapping[str, Any]] = [{"x": np.arange(6.0)}, {"x": np.arange(6.0)[::-1].copy()}]
        self.calls = 0
        self._kept: list[Any] = [np.zeros(6)]

    def time(self, runs: int, feed: int) -> list[float]:
        seconds = []
        for _ in range(runs):
            sides.poison(self._kept)
            start = time.perf_counter()
            time.sleep(self.delay)
            self._run(self.feeds[feed]["x"])
            seconds.append(time.perf_counter() - start)
            self.calls += 1
        return seconds

    def _run(self, x: Any) -> None:
        if self.fault == "skips" and self.calls > 5:
            return  # leaves the output buffer as it was
        if self.fault == "cached" and self.calls:
            x = self.feeds[0]["x"]
        self._kept[0][:] = 2 * x + (0.1 if self.fault == "wrong" else 0)

    def outputs(self) -> list[Any]:
        return self._kept

    def close(self) -> None:
        pass


def test_medians_and_turns() -> None:
    fast, slow = Fake("fast", 0.0005), Fake("slow", 0.002)
    answers = measure.reference(fast, 2)
    assert measure.check(slow, answers, 1e-6) == 0
    one, other = measure.measure([fast, slow], answers, 1e-6, EFFORT)
    assert (one.side, other.side) == ("fast", "slow")
    assert 0.0005 <= one.low <= one.median <= one.high
    assert other.median > one.median
    assert one.runs >= EFFORT.rounds and other.runs >= EFFORT.rounds


def test_a_wrong_side_is_refused() -> None:
    answers = measure.reference(Fake("right"), 2)
    with pytest.raises(measure.Disagreement, match="bad is"):
        measure.check(Fake("bad", fault="wrong"), answers, 1e-3)


def test_a_cached_answer_is_refused() -> None:
    answers = measure.reference(Fake("right"), 2)
    with pytest.raises(measure.Disagreement):
        measure.check(Fake("bad", fault="cached"), answers, 1e-3)


def test_an_output_that_is_not_written_during_the_timing_is_refused() -> None:
    right, lazy = Fake("right", 0.0005), Fake("lazy", 0.0005, fault="skips")
    answers = measure.reference(right, 2)
    measure.check(lazy, answers, 1e-3)
    with pytest.raises(measure.Disagreement, match="lazy"):
        measure.measure([right, lazy], answers, 1e-3, EFFORT)


def test_relative_error() -> None:
    one = [np.array([3.0, 4.0])]
    assert measure.relative_error(one, one) == 0
    assert measure.relative_error([np.array([3.0, 4.5])], one) == pytest.approx(0.1)
    assert measure.relative_error([np.array([[3.0, 4.0]])], one) == math.inf
    assert measure.relative_error([np.array([3.0, math.nan])], one) == math.inf
    assert measure.relative_error([], one) == math.inf
    tiny = [np.array([1e-7])]
    assert measure.relative_error([np.array([2e-7])], tiny) < 1e-3  # the floor: both are as good as 0


def _result(case: str, **medians: float) -> dict[str, Any]:
    return {"case": case, "figures": {k: {"median": v} for k, v in medians.items()}, "problems": []}


def test_ratios_means_table_and_plot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = [
        _result("a@1", **{"tang-c-1": 1e-3, "ort-cpu-1": 2e-3, "tang-webgpu": 1e-3, "ort-webgpu": 8e-3}),
        _result("b@1", **{"tang-c-1": 4e-3, "ort-cpu-1": 2e-3, "ort-webgpu": 8e-3}),
    ]
    results[1]["problems"].append("tang-webgpu: [bold] went wrong")
    means = report.means(results)
    assert means["C, 1 thread"] == {"mean": pytest.approx(1.0), "worst": 0.5, "models": 2}
    assert means["WebGPU"] == {"mean": pytest.approx(8.0), "worst": 8.0, "models": 1}
    document = {"machine": {"processor": "test"}, "results": results, "means": means}
    report.table(document)
    out = capsys.readouterr().out
    assert "2.00x" in out and "8.00x" in out and "[bold] went wrong" in out
    pytest.importorskip("matplotlib")
    report.plot(document, tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes()[:4] == b"\x89PNG"


def test_the_mean_of_nothing_is_not_a_number() -> None:
    assert math.isnan(measure.geometric_mean([]))
    assert measure.geometric_mean([2.0, 8.0]) == pytest.approx(4.0)


def test_unknown_models_and_sizes_are_named() -> None:
    assert run.find_size("ppocr-rec")[1].label == "48x320"
    assert run.find_size("ppocr-rec@48x160")[1].shape == (1, 3, 48, 160)
    with pytest.raises(SystemExit, match="unknown model 'nothing'; known: go2-policy"):
        run.find_size("nothing")
    with pytest.raises(SystemExit, match="no size '1x1'; known: 48x320"):
        run.find_size("ppocr-rec@1x1")


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    """A model y = x + x over [1, 45], under the name that the harness looks for."""
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    value = {n: helper.make_tensor_value_info(n, kind, [1, 45]) for n in ("obs", "actions")}
    node = helper.make_node("Add", ["obs", "obs"], ["actions"])
    graph = helper.make_graph([node], "toy", [value["obs"]], [value["actions"]])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    file = tmp_path / "go2-policy.onnx"
    onnx.save(model, file)
    return file


def test_a_worker_answers_like_this_process(toy: Path) -> None:
    feeds = [{"obs": np.full((1, 45), value, np.float32)} for value in (1.0, 2.0)]
    here = sides.OrtCpu(toy, feeds, 1)
    there = sides.OrtWorker(toy, feeds, sys.executable, {}, provider=sides.CPU)
    try:
        answers = measure.reference(here, 2)
        assert measure.check(there, answers, 1e-6) == 0
        assert all(s > 0 for s in there.time(3, 1))
        assert np.array_equal(there.outputs()[0], np.full((1, 45), 4.0, np.float32))
    finally:
        there.close()


def test_a_worker_on_the_wrong_device_is_refused(toy: Path) -> None:
    feeds = [{"obs": np.zeros((1, 45), np.float32)}]
    with pytest.raises(sides.SideError, match=r"CPUExecutionProvider|not available"):
        sides.OrtWorker(toy, feeds, sys.executable, {}, provider=sides.WEBGPU)


def test_a_worker_that_dies_is_told(toy: Path, tmp_path: Path) -> None:
    with pytest.raises(sides.SideError, match=r"ort-worker-1: (FileNotFoundError|NoSuchFile)"):
        sides.OrtWorker(tmp_path / "none.onnx", [], sys.executable, {}, provider=sides.CPU)
    broken = {"PYTHONPATH": str(tmp_path)}
    (tmp_path / "onnxruntime.py").write_text("raise SystemExit('no runtime today')")
    with pytest.raises(sides.SideError, match="the worker ended: no runtime today"):
        sides.OrtWorker(toy, [], sys.executable, broken, provider=sides.CPU)


def test_the_whole_run_with_a_stand_in(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command line end to end; ONNX Runtime stands in for tang-edge."""

    class StandIn(sides.OrtCpu):
        about: dict[str, Any] = {"adapter": "none"}  # noqa: RUF012 (never changed)

        def __init__(self, bundle: Path, feeds: Any, device: str, threads: int) -> None:
            super().__init__(bundle, feeds, threads)
            self.name = f"tang-{device}-{threads}"

    def copy(model: Path, bundle: Path, extra: Any) -> float:
        bundle.write_bytes(model.read_bytes())
        return 0.5

    monkeypatch.setenv("TANG_EDGE_MODELS", str(tmp_path))
    monkeypatch.setattr(run, "TangEdge", StandIn)
    monkeypatch.setattr(run, "pack", copy)
    out = tmp_path / "out.json"
    arguments = ["--models", "go2-policy", "--quick", "--no-webgpu", "--threads", "1", "--json", str(out)]
    assert run.main(arguments) == 0
    document = json.loads(out.read_text())
    (result,) = document["results"]
    assert result["case"] == "go2-policy@1x45" and result["problems"] == []
    assert set(result["figures"]) == {"ort-cpu-1", "tang-c-1"}
    assert document["means"]["C, 1 thread"]["models"] == 1
    assert "C, 1 thread: geometric mean" in capsys.readouterr().out


def test_a_failing_pack_is_a_problem_and_the_peers_are_still_measured(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(model: Path, bundle: Path, extra: Any) -> float:
        raise sides.SideError("pack go2-policy.onnx: no")

    monkeypatch.setenv("TANG_EDGE_MODELS", str(tmp_path))
    monkeypatch.setattr(run, "pack", fails)
    out = tmp_path / "out.json"
    arguments = ["--models", "go2-policy", "--quick", "--no-webgpu", "--threads", "1", "--json", str(out)]
    assert run.main(arguments) == 1
    (result,) = json.loads(out.read_text())["results"]
    assert result["problems"] == ["pack go2-policy.onnx: no"] and set(result["figures"]) == {"ort-cpu-1"}
