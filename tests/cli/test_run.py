"""run: inputs, the report, comparison, and every refusal."""

from __future__ import annotations

import clikit
import numpy as np
import pytest
from clikit import call, facts, refused

pytestmark = pytest.mark.usefixtures("needs_c")
C = ("--device", "c", "--threads", "1", "--repeat", "2")


def test_shows_device_outputs_and_time(bundle):
    result = call("run", bundle, *C)
    assert result.exit_code == 0, result.output
    for words in ("device", "c-cpu-generic", "self-test  passed", "float32", "1x4", "median", "n=1"):
        assert words in result.output


def test_least_sizes_and_the_same_numbers_each_time(bundle):
    one, two = facts("run", bundle, *C), facts("run", bundle, *C)
    assert one["dims"] == {"n": 1}
    assert one["outputs"] == two["outputs"]
    assert len(one["seconds"]) == 2 and one["min_seconds"] <= one["median_seconds"]
    assert facts("run", bundle, *C, "--seed", 1)["outputs"] != one["outputs"]


def test_sizes_asked_for(bundle):
    assert facts("run", bundle, *C, "--dims", "n=5")["outputs"]["y"]["shape"] == [5, 4]


@pytest.mark.parametrize("kind", ["npy", "npz", "single", "all"])
def test_arrays_from_files_and_saved(bundle, mlp, tmp_path, kind):
    x = np.random.default_rng(3).standard_normal((3, 6)).astype(np.float32)
    path = tmp_path / ("x.npy" if kind == "npy" else "x.npz")
    if kind == "npy":
        np.save(path, x)
    else:
        np.savez(path, **({"other": x} if kind == "single" else {"x": x}))
    saved = tmp_path / "out.npz"
    given = path if kind == "all" else f"x={path}"
    made = facts("run", bundle, *C, "--input", given, "--save", saved)
    assert made["dims"] == {"n": 3}
    with np.load(saved) as outputs:
        assert outputs["y"].shape == (3, 4) and outputs["y"].dtype == np.float32
        worst = np.unravel_index(np.argmax(outputs["y"]), (3, 4))
        assert made["outputs"]["y"]["argmax"] == [int(k) for k in worst]


def test_agrees_with_onnx_runtime(bundle, mlp):
    pytest.importorskip("onnxruntime")
    (compared,) = facts("run", bundle, *C, "--compare-ort", mlp)["compared"]
    assert compared["name"] == "y" and compared["relative"] < 1e-6
    assert "against ONNX Runtime" in call("run", bundle, *C, "--compare-ort", mlp).output


def test_onnx_runtime_refuses_a_file(bundle, tmp_path):
    pytest.importorskip("onnxruntime")
    (tmp_path / "no.onnx").write_bytes(b"no model")
    assert "no.onnx" in refused("run", bundle, *C, "--compare-ort", tmp_path / "no.onnx")


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_pictures(pictures, tmp_path, layout):
    image = pytest.importorskip("PIL.Image")
    pixels = np.zeros((4, 6, 3), np.uint8) + np.array([255, 51, 0], np.uint8)
    image.fromarray(pixels).save(tmp_path / "p.png")
    made = facts("run", pictures[layout], *C, "--input", f"image={tmp_path / 'p.png'}")
    assert made["dims"] == {"b": 1, "h": 4, "w": 6}
    np.testing.assert_allclose(made["outputs"]["mean"]["first"][:3], [1, 0.2, 0], atol=1e-6)
    sized = ("--dims", "h=8,w=3,b=2")
    assert facts("run", pictures[layout], *C, "--input", f"image={tmp_path / 'p.png'}", *sized)["dims"] == {
        "b": 2,
        "h": 8,
        "w": 3,
    }


def test_a_picture_for_an_input_that_is_none(bundle, tmp_path):
    pytest.importorskip("PIL.Image").new("RGB", (4, 4)).save(tmp_path / "p.png")
    words = refused("run", bundle, *C, "--input", f"x={tmp_path / 'p.png'}")
    assert "'x'" in words and ".npy" in words


def _given(tmp_path, array) -> str:
    np.save(tmp_path / "x.npy", array)
    return f"x={tmp_path / 'x.npy'}"


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((2, 6)), "float64"),
        (np.zeros((2, 7), np.float32), "must be 6"),
        (np.zeros(6, np.float32), "1 axes"),
        (np.zeros((65, 6), np.float32), "1..64"),
    ],
)
def test_arrays_that_the_model_does_not_take(bundle, tmp_path, array, words):
    said = refused("run", bundle, *C, "--input", _given(tmp_path, array))
    assert words in said and "'x'" in said


def test_unknown_names(bundle, tmp_path):
    said = refused("run", bundle, *C, "--input", "image=random")
    assert "'image'" in said and "'x'" in said
    assert "'width'" in refused("run", bundle, *C, "--dims", "width=3")


def test_sizes_against_files(bundle, tmp_path):
    given = _given(tmp_path, np.zeros((2, 6), np.float32))
    assert "--dims says 3" in refused("run", bundle, *C, "--input", given, "--dims", "n=3")


def test_sizes_out_of_range(bundle):
    assert "1..64" in refused("run", bundle, *C, "--dims", "n=99")


@pytest.mark.parametrize("name", ["gone.npy", "bad.npy", "bad.npz", "x.txt"])
def test_files_that_cannot_be_read(bundle, tmp_path, name):
    if name != "gone.npy":
        (tmp_path / name).write_text("nothing useful")
    assert name in refused("run", bundle, *C, "--input", f"x={tmp_path / name}")


def test_usage(bundle):
    assert call("run", bundle, "--input", "x").exit_code == 2
    assert call("run", bundle, "--dims", "n=many").exit_code == 2
    assert call("run", bundle, "--threads", "0").exit_code == 2
    assert call("run").exit_code == 2
    assert "auto, webgpu, c" in refused("run", bundle, "--device", "toaster")


def test_a_bundle_of_a_stranger_needs_trust(bundle, monkeypatch, tmp_path):
    monkeypatch.setenv("TANG_EDGE_CONFIG", str(tmp_path / "another-user"))
    assert "trust" in refused("run", bundle, *C)
    assert call("run", bundle, *C, "--trust").exit_code == 0


def test_no_device_is_exit_code_3(bundle, monkeypatch):
    from tang_edge.c_fallback import compile as cc

    monkeypatch.setattr(cc, "find_compiler", lambda: None)
    said = refused("run", bundle, "--device", "c", code=3)
    assert "C compiler" in said and "pip install" in said


def test_states_are_left_to_the_session(tmp_path):
    model, out = clikit.counter(tmp_path / "sum.onnx"), tmp_path / "sum.tang"
    assert call("pack", model, "-o", out, "--target", "cpu-generic").exit_code == 0
    made = facts("run", out, *C)
    assert list(made["inputs"]) == ["x"] and list(made["outputs"]) == ["y"]


@pytest.mark.device
def test_webgpu(bundle):
    from tang_edge.wgsl import gpu

    found, reason = gpu.adapters()
    if not found:
        pytest.skip(reason)
    made = facts("run", bundle, "--device", "webgpu", "--repeat", 1)
    assert made["report"]["device"] == "webgpu"
    same = facts("run", bundle, *C)["outputs"]["y"]
    np.testing.assert_allclose(made["outputs"]["y"]["first"], same["first"], rtol=1e-5)
