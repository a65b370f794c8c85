"""What the tests of both devices share: the case files, and the answers of a model compared with ONNX Runtime."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import webkit

# ONNX Runtime's logistic has an absolute error of a unit in the last place of 1.0 (tests/models/test_acceptance.py)
LOGISTIC = {"ppocr-det": 2.0**-22, "oww-jarvis": 2.0**-22}


def case_loader() -> Any:
    """tests/cases/loader.py, loaded by its path once: the tests are no package."""
    name = "tang_edge_test_cases_loader"
    if name not in sys.modules:
        path = Path(__file__).parents[1] / "cases" / "loader.py"
        spec = importlib.util.spec_from_file_location(name, path)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def agree(name: str, source: Path, runs: list, made: list, rtol: float) -> None:
    """Fail unless the outputs of every run are those of ONNX Runtime, in name, order, dtype, shape and value."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    for feeds, outputs in zip(runs, made, strict=True):
        got = webkit.decoded(outputs)
        assert list(got) == names
        for key, want in zip(names, session.run(None, dict(feeds)), strict=True):
            assert got[key].dtype == want.dtype and got[key].shape == want.shape
            size = float(np.sqrt(np.mean(np.square(want, dtype=np.float64)))) if want.size else 0.0
            floor = 2 * rtol * size + LOGISTIC.get(name, 0.0)
            np.testing.assert_allclose(got[key], want, rtol=2 * rtol, atol=floor)
