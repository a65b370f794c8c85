"""Comparison with ONNX Runtime, where it is installed."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tang_edge.errors import InputError

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far an output is from the reference: relative 2-norm and largest difference, in float64."""

    name: str
    relative: float
    largest: float
    same_shape: bool = True


def run(model: Path, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of ONNX Runtime on the CPU.

    Raises:
        InputError: it is not installed, or it refuses the model or the inputs.
    """
    try:
        ort: Any = importlib.import_module("onnxruntime")
    except ImportError as error:
        raise InputError(
            "--compare-ort needs ONNX Runtime, which is not installed", remedy="Run: pip install onnxruntime"
        ) from error
    try:
        session = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"])
        names = [o.name for o in session.get_outputs()]
        return dict(zip(names, session.run(names, dict(feeds)), strict=True))
    except Exception as error:  # onnxruntime raises kinds of its own, all of them about the model or the inputs
        words = " ".join(str(error).split())[:400]
        raise InputError(f"ONNX Runtime refuses it ({words})", where=str(model)) from error


def compare(have: Mapping[str, Array], wanted: Mapping[str, Array]) -> list[Agreement]:
    """Each output that both have, compared."""
    return [_one(name, array, wanted[name]) for name, array in have.items() if name in wanted]


def _one(name: str, a: Array, b: Array) -> Agreement:
    if a.shape != b.shape:
        return Agreement(name, float("inf"), float("inf"), False)
    x, y = np.asarray(a, np.float64), np.asarray(b, np.float64)
    both = ~(np.isnan(x) & np.isnan(y)) & ~(x == y)
    difference = np.where(both, x - np.where(both, y, 0), 0)
    scale = float(np.linalg.norm(y[np.isfinite(y)]))
    norm = float(np.linalg.norm(difference))
    relative = norm / scale if scale else (0.0 if norm == 0 else float("inf"))
    return Agreement(name, relative, float(np.max(np.abs(difference), initial=0.0)))
