"""The measurement in the browser, on a small model: every side answers right and gets its figures. No times are asserted."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("playwright")
pytest.importorskip("onnxruntime")
pytest.importorskip("starlette")

from benchmarks import web
from tests.models import real_inputs

pytestmark = [pytest.mark.device, pytest.mark.slow]


def test_all_sides_of_a_small_model(tmp_path: Path) -> None:
    if not real_inputs.model_path("go2-policy").exists():
        pytest.skip("go2-policy is not fetched")
    if shutil.which("npm") is None or not any(map(shutil.which, ("chromium", "chrome"))):
        pytest.skip("npm or Chromium is missing")
    out = tmp_path / "web.json"
    assert web.main(["--models", "go2-policy", "--quick", "--cold", "1", "--json", str(out)]) == 0
    document = json.loads(out.read_text())
    (result,) = document["results"]
    assert result["problems"] == []
    assert set(result["figures"]) == set(result["cold"]) == set(web.SIDES)
    assert all(f["median"] > 0 and f["runs"] > 0 for f in result["figures"].values())
    for pair in ("WebGPU", "WebAssembly"):
        assert document["means"][pair]["runtime_bytes"] >= 100  # bytes are counted, not timed
