"""The acceptance models: what is found out about their sizes, and their answers against ONNX Runtime."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from tang_edge.errors import UnsupportedModel
from tang_edge.ir import affine, interp, verify
from tang_edge.onnx_in import DimRange, Imported, import_model

# model -> (the shapes of its input to try, the number of constraints that stay)
MODELS = {
    "go2-policy": ([(1, 45)], 0),
    "reachy-fk": ([(1, 7)], 0),
    "reachy-fk-dynamic": ([(1, 7), (5, 7)], 0),
    "reachy-ik": ([(1, 6)], 0),
    "reachy-fk-int8": ([(1, 7), (3, 7)], 0),
    "ppocr-cls": ([(1, 3, 48, 96), (2, 3, 33, 40)], 0),
    "ppocr-det": ([(1, 3, 64, 96), (2, 3, 32, 64)], 0),
    "ppocr-rec": ([(1, 3, 48, 80), (2, 3, 40, 33)], 1),
    "ddddocr-det": ([(1, 3, 416, 416)], 0),
    "oww-melspec": ([(1, 1280), (2, 700)], 0),
    "oww-embedding": ([(2, 76, 32, 1)], 0),
    "oww-jarvis": ([(1, 16, 96)], 0),
}


def path_of(model: str) -> Path:
    folder = Path(os.environ.get("TANG_EDGE_MODELS") or Path(__file__).resolve().parents[2] / "models")
    path = folder / f"{model}.onnx"
    if not path.is_file():
        pytest.skip(f"{path} is missing: run `make models`")
    return path


def load(model: str) -> Imported:
    return import_model(path_of(model))


@pytest.mark.parametrize("model", MODELS)
def test_imports_and_every_read_is_proved_in_bounds(model: str) -> None:
    program = load(model).program
    assert len(program.constraints) == MODELS[model][1]
    assert verify.verify(program) == ()
    assert all(b.origin for b in program.binds())


@pytest.mark.parametrize("model", MODELS)
def test_agrees_with_onnx_runtime(model: str) -> None:
    path = path_of(model)
    program = import_model(path).program
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    for shape in MODELS[model][0]:
        feeds = {program.inputs[0].name: rng.normal(size=shape).astype(np.float32)}
        got = interp.run(program, feeds)
        for info, want in zip(session.get_outputs(), session.run(None, feeds), strict=True):
            have = got[info.name]
            assert have.shape == want.shape
            # ONNX Runtime's logistic function is only good to 1e-7 near 0
            atol = max(1e-6, 1e-5 * float(np.abs(want).max()))
            np.testing.assert_allclose(have, want, rtol=1e-4, atol=atol)


def test_detector_sizes_are_multiples_of_32() -> None:
    found = load("ppocr-det")
    assert [str(found.ranges[n]) for n in ("x_2", "x_3")] == ["32..4096:32"] * 2
    assert [n.split(" (")[0] for n in found.notes] == ["x_2: multiple of 32", "x_3: multiple of 32"]


def test_recogniser_height_is_pinned() -> None:
    found = load("ppocr-rec")
    (c,) = found.program.constraints
    assert c.right.constant == 1 and c.why.startswith("Concat")
    assert affine.evaluate(c.left, {"x_2": 48}) == 1
    assert str(found.ranges["x_2"]) == "33..80"
    types = found.program.types()
    assert types["flatten_14.tmp_0"].shape[1].constant == 120


def test_a_given_range_is_kept_and_a_wrong_one_refused() -> None:
    path = path_of("ppocr-rec")
    found = import_model(path, dim_ranges={"x_2": DimRange(48, 48)})
    assert found.program.constraints == () and found.program.inputs[0].type.shape[2].constant == 48
    with pytest.raises(UnsupportedModel, match="Concat 'p2o"):
        import_model(path, dim_ranges={"x_2": DimRange(320, 320)})


def test_import_is_deterministic() -> None:
    path = path_of("ppocr-cls")
    assert str(import_model(path).program.items) == str(import_model(path).program.items)
