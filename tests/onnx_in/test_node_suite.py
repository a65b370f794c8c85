"""The ONNX project's own node tests, through the importer and the interpreter, with fixed and with symbolic sizes."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, numpy_helper

from tang_edge.errors import UnsupportedModel
from tang_edge.ir import interp, verify
from tang_edge.onnx_in import DimRange, read_model

# Cases that are not run, by name, and why.
SKIPPED = {
    r"resize_downsample_scales_(linear|cubic)_align_corners": "the suite divides by the unrounded output size, "
    "ONNX Runtime and this importer by the real one",
}
# Operators that the importer refuses, and why.
REFUSED = {
    **dict.fromkeys(("Scan", "Loop", "LSTM", "GRU", "RNN"), "recurrences wait for the IR's Scan"),
    "LinearAttention": "its ONNX function is made of Scan",
    **dict.fromkeys(("Compress", "Unique", "NonMaxSuppression"), "the size of the result depends on data"),
    **dict.fromkeys(("Bernoulli", "RandomUniformLike", "RandomNormalLike", "Multinomial"), "random numbers"),
    **dict.fromkeys(("Adagrad", "Adam", "Momentum"), "training"),
    **dict.fromkeys(
        ("OptionalHasElement", "OptionalGetElement", "SequenceMap", "SplitToSequence", "SequenceInsert"),
        "optionals and sequences",
    ),
    **dict.fromkeys(("TfIdfVectorizer", "LabelEncoder", "StringNormalizer", "StringConcat"), "strings"),
    **dict.fromkeys(("TreeEnsemble", "ArrayFeatureExtractor", "Binarizer"), "ai.onnx.ml"),
    **dict.fromkeys(("ImageDecoder", "BitCast", "MelWeightMatrix", "Det", "STFT"), "not derived yet"),
    **dict.fromkeys(("DeformConv", "RoiAlign", "MaxUnpool", "TensorScatter"), "not derived yet"),
}
REFUSED_ATTRIBUTES = {
    r"resize.*antialias": "antialiased resize",
    r"batchnorm_.*training|training_dropout(?!_zero_ratio)": "training",
    r"dft_inverse.*irfft|dft_irfft": "inverse one-sided transforms",
}


@dataclass(frozen=True)
class Case:
    name: str
    model: ModelProto
    inputs: list[Any]
    outputs: list[Any]
    rtol: float
    atol: float


@cache
def all_cases() -> dict[str, Case]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        found = collect_testcases(None)
    out = {}
    for c in found:
        if c.model is not None and c.data_sets:
            ins, outs = ([_array(a) for a in side] for side in c.data_sets[0])
            out[c.name] = Case(c.name, c.model, ins, outs, c.rtol, c.atol)
    return out


def _array(a: Any) -> Any:
    return np.asarray(a) if isinstance(a, (np.generic, int, float, bool)) else a


def operators(model: ModelProto) -> set[str]:
    return {n.op_type for n in model.graph.node}


def why_not(c: Case) -> str | None:
    """Why a case is not run, None when it is."""
    for a in (*c.inputs, *c.outputs):
        if not isinstance(a, np.ndarray):
            return "sequences, optionals, and element types that NumPy lacks"
        if a.dtype.kind not in "fiub":
            return "strings and complex numbers"
    for pattern, reason in (SKIPPED | REFUSED_ATTRIBUTES).items():
        if re.search(pattern, c.name):
            return reason
    return next((REFUSED[op] for op in sorted(operators(c.model)) if op in REFUSED), None)


RUN = [name for name, c in all_cases().items() if why_not(c) is None]


def baked(model: ModelProto, arrays: list[Any], keep: int) -> ModelProto:
    """The model with its inputs from `keep` on turned into initialisers."""
    out = ModelProto()
    out.CopyFrom(model)
    for info, a in list(zip(out.graph.input, arrays, strict=True))[keep:]:
        out.graph.initializer.append(numpy_helper.from_array(a, info.name))
    return out


def symbolic(model: ModelProto) -> ModelProto:
    """The model with every input extent above 1 turned into a named dimension."""
    out = ModelProto()
    out.CopyFrom(model)
    fixed = {i.name for i in out.graph.initializer}
    for info in out.graph.input:
        for k, d in enumerate(info.type.tensor_type.shape.dim):
            if info.name not in fixed and d.dim_value > 1:
                d.ClearField("dim_value")
                d.dim_param = f"{info.name}_{k}"
    return out


def ranges_of(model: ModelProto, arrays: list[Any]) -> dict[str, DimRange]:
    """Ranges for empty axes, for great ones, and (short ones) for vectors and matrices with symbolic sizes."""
    fixed = {i.name for i in model.graph.initializer} | {"axes"}  # "axes" is empty where it means a missing one
    found = {}
    for info, a in zip(model.graph.input, arrays, strict=True):
        for k, (d, n) in enumerate(zip(info.type.tensor_type.shape.dim, a.shape, strict=True)):
            unknown = info.name not in fixed and not d.dim_value
            if unknown and (n == 0 or n > 64 or a.ndim <= 2):
                found[f"{info.name}_{k}"] = DimRange(min(n, 1), max(n, 64) if n else 0)
    return found


def check(c: Case, make: Any) -> int:
    """Run a case; inputs that must be known become constants, as few as possible. Returns how many were left."""
    refusal: UnsupportedModel | None = None
    for keep in (len(c.inputs), 2, 1, 0):
        model = make(baked(c.model, c.inputs, keep))
        ranges = ranges_of(model, c.inputs)
        try:
            program = read_model(model.SerializeToString(), allow_nan=True, dim_ranges=ranges)
            break
        except UnsupportedModel as e:
            refusal = e
    else:
        assert refusal is not None
        raise refusal
    verify.verify(program)
    feeds = dict(zip((i.name for i in c.model.graph.input), c.inputs, strict=True))
    got = interp.run(program, {i.name: feeds[i.name] for i in program.inputs})
    for info, want in zip(c.model.graph.output, c.outputs, strict=True):
        have = got[info.name]
        assert (have.dtype, have.shape) == (want.dtype, want.shape)
        np.testing.assert_allclose(have, want, **tolerance(c, want))
    return keep


def tolerance(c: Case, want: Any) -> dict[str, float]:
    """The suite's, but never below what the dtype can do for results of that size."""
    if want.dtype.kind != "f" or not want.size:
        return {"rtol": c.rtol, "atol": c.atol}
    eps = float(np.finfo(want.dtype).eps)
    finite = np.abs(want[np.isfinite(want)], dtype=np.float64)
    size = float(finite.max()) if finite.size else 0.0
    return {"rtol": max(c.rtol, 4 * eps), "atol": max(c.atol, 4 * eps * size)}


@pytest.mark.parametrize("name", RUN)
def test_case(name: str) -> None:
    check(all_cases()[name], lambda m: m)


@pytest.mark.parametrize("name", RUN[::5])
def test_case_with_symbolic_sizes(name: str) -> None:
    check(all_cases()[name], symbolic)


def test_most_cases_run() -> None:
    assert len(RUN) >= 1400


def test_refusals_are_typed() -> None:
    """Every case left out because of its operators is refused with an error that says so, and not otherwise."""
    checked = 0
    for c in all_cases().values():
        named = [op for op in operators(c.model) if op in REFUSED]
        if named and "expanded" not in c.name and not (operators(c.model) - set(named)):
            with pytest.raises(UnsupportedModel) as info:
                read_model(c.model.SerializeToString())
            assert info.value.remedy
            checked += 1
    assert checked > 50
