"""pack: what it shows, and every refusal of a model."""

from __future__ import annotations

import json

import clikit
import pytest
from clikit import call, facts, refused
from onnx import TensorProto, helper

from tang_edge import compiler
from tang_edge.errors import UnsupportedModel
from tang_edge.onnx_in import read_model


def test_shows_what_it_made(mlp, tmp_path):
    result = call("pack", mlp, "-o", tmp_path / "m.tang", "--target", "browser,cpu-generic")
    assert result.exit_code == 0, result.output
    for words in ("m.tang", "n in 1..64", "x: float32 (n, 6)", "webgpu-browser", "c-cpu-generic", "kernels", "tang-edge run"):
        assert words in result.output


def test_json_is_one_object(mlp, tmp_path):
    made = facts("pack", mlp, "-o", tmp_path / "m.tang", "--target", "cpu-generic", "--dim", "n=4..32:4")
    assert made["dims"] == [{"name": "n", "min": 4, "max": 32, "multiple": 4}]
    assert [v["id"] for v in made["variants"]] == ["c-cpu-generic"]
    assert made["bytes"] == (tmp_path / "m.tang").stat().st_size
    assert len(made["manifest_sha256"]) == 64 and made["seconds"] > 0


def test_default_output_is_the_models_name(mlp, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert call("pack", mlp, "--target", "cpu-generic").exit_code == 0
    assert (tmp_path / "mlp.tang").exists()


def test_a_fixed_dimension_is_none_any_more(mlp, tmp_path):
    assert facts("pack", mlp, "-o", tmp_path / "m.tang", "--target", "cpu-generic", "--dim", "n=3")["dims"] == []


def test_no_self_test(mlp, tmp_path):
    out = tmp_path / "m.tang"
    facts("pack", mlp, "-o", out, "--target", "cpu-generic", "--no-self-test")
    assert facts("inspect", out)["golden"] == []


@pytest.mark.parametrize(("options", "states"), [((), 1), (("--state", "none"), 0), (("--state", "total_in=total_out"), 1)])
def test_states(tmp_path, options, states):
    model, out = clikit.counter(tmp_path / "sum.onnx"), tmp_path / "sum.tang"
    facts("pack", model, "-o", out, "--target", "cpu-generic", *options)
    assert len(facts("inspect", out)["states"]) == states


def test_a_class_that_cannot_is_left_out(tmp_path):
    ports = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, [4]) for name in ("x", "y")]
    model = clikit.save(tmp_path / "double.onnx", [helper.make_node("Neg", ["x"], ["y"], name="n")], ports[:1], ports[1:])
    result = call("pack", model, "-o", tmp_path / "d.tang")
    assert result.exit_code == 0, result.output
    words = " ".join(result.output.split())
    assert "the variant laptop was left out: Neg 'n': f64 cannot be computed" in words and "c-cpu-generic" in words
    assert "f64 cannot be computed" in refused("pack", model, "-o", tmp_path / "e.tang", "--target", "webgpu")
    assert not (tmp_path / "e.tang").exists()


def test_a_state_that_is_none(tmp_path):
    model = clikit.counter(tmp_path / "sum.onnx")
    words = refused("pack", model, "-o", tmp_path / "s.tang", "--state", "x=nonsense")
    assert "nonsense" in words and "total_out" in words
    assert not (tmp_path / "s.tang").exists()


def _bad(tmp_path, data: bytes):
    path = tmp_path / "bad.onnx"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("what", ["text", "empty", "truncated"])
def test_not_an_onnx_file(mlp, tmp_path, what):
    whole = mlp.read_bytes()
    data = {"text": b"hello, I am no model\n", "empty": b"", "truncated": whole[: len(whole) // 2]}[what]
    words = refused("pack", _bad(tmp_path, data), "-o", tmp_path / "bad.tang")
    assert "bad.onnx" in words
    assert list(tmp_path.iterdir()) == [tmp_path / "bad.onnx"]


def test_no_such_file(tmp_path):
    assert "gone.onnx" in refused("pack", tmp_path / "gone.onnx", "-o", tmp_path / "g.tang")


def test_all_unknown_operators_at_once(tmp_path):
    words = refused("pack", clikit.unknown(tmp_path / "u.onnx"), "-o", tmp_path / "u.tang")
    assert "Frobnicate" in words and "Twiddle" in words
    assert not (tmp_path / "u.tang").exists()


def test_shapes_that_contradict_name_the_node(tmp_path):
    words = refused("pack", clikit.misfit(tmp_path / "m.onnx"), "-o", tmp_path / "m.tang")
    assert "product" in words


def test_nan_weights_need_a_word(tmp_path):
    model = clikit.with_nan(tmp_path / "nan.onnx")
    assert "NaN" in refused("pack", model, "-o", tmp_path / "n.tang")
    assert call("pack", model, "-o", tmp_path / "n.tang", "--allow-nan", "--target", "cpu-generic").exit_code == 0


def test_a_dimension_that_the_model_has_not(mlp, tmp_path):
    words = refused("pack", mlp, "-o", tmp_path / "m.tang", "--dim", "width=3")
    assert "'width'" in words and "n" in words


@pytest.mark.parametrize("text", ["n", "n=", "n=a..b", "n=1-4", "=4", "n=-1"])
def test_ranges_that_are_none_are_usage_errors(mlp, tmp_path, text):
    result = call("pack", mlp, "-o", tmp_path / "m.tang", "--dim", text)
    assert result.exit_code == 2 and "--dim" in result.output


def test_an_empty_range(mlp, tmp_path):
    assert "8..4" in refused("pack", mlp, "-o", tmp_path / "m.tang", "--dim", "n=8..4")


def test_an_unknown_target_names_the_known(mlp, tmp_path):
    words = refused("pack", mlp, "-o", tmp_path / "m.tang", "--target", "toaster")
    assert "toaster" in words and "laptop" in words


def test_a_folder_that_cannot_be_written(mlp, tmp_path):
    assert "nowhere" in refused("pack", mlp, "-o", tmp_path / "nowhere" / "m.tang", "--target", "cpu-generic")


def test_errors_as_json(tmp_path):
    result = call("pack", clikit.unknown(tmp_path / "u.onnx"), "-o", tmp_path / "u.tang", "--json")
    assert result.exit_code == 1
    error = json.loads(result.stdout)["error"]
    assert error["kind"] == "UnsupportedModel" and error["exit_code"] == 1
    assert "Frobnicate" in error["message"]


@pytest.mark.usefixtures("needs_c")
def test_prebuilt_libraries(mlp, tmp_path, monkeypatch):
    out = tmp_path / "m.tang"
    facts("pack", mlp, "-o", out, "--target", "cpu-generic", "--prebuild", "host")
    (variant,) = facts("inspect", out)["variants"]
    assert len(variant["prebuilt"]) == 1
    from tang_edge.c_fallback import compile as cc

    monkeypatch.setattr(cc, "find_compiler", lambda: None)
    assert facts("run", out, "--device", "c", "--repeat", 1)["report"]["device"] == "c"


def test_a_triple_that_is_none(mlp, tmp_path):
    words = refused("pack", mlp, "-o", tmp_path / "m.tang", "--prebuild", "toaster-linux")
    assert "toaster-linux" in words and "x86_64-linux-gnu" in words
    assert not (tmp_path / "m.tang").exists()


def test_a_tensor_too_large_to_hold_is_named(tmp_path) -> None:
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("Relu", ["x"], ["y"])],
            "huge",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1 << 40])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1 << 40])],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    with pytest.raises(UnsupportedModel, match=r"tensor 'x'.*1,099,511,627,776 elements"):
        compiler.pack_program(read_model(model.SerializeToString()), tmp_path / "huge.tang")
    assert not list(tmp_path.iterdir())
