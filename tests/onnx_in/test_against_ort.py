"""Operators against ONNX Runtime: older opsets (the node suite has only the newest) and window arithmetic."""

from __future__ import annotations

import itertools
import zlib
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from nets import graph, info, model, node
from onnx import helper

from tang_edge.ir import interp, verify
from tang_edge.onnx_in import read_model

X = (2, 4, 5, 6)


def session_of(m: Any) -> Any:
    """A session that leaves the other cores alone."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(m.SerializeToString(), options, providers=["CPUExecutionProvider"])


def compare(op: str, opset: int, attrs: dict[str, Any], shapes: list[Any], outputs: int = 1, loose: bool = True) -> None:
    """One node on random numbers; shapes (the first is the input) or arrays. Fixed sizes, then symbolic ones."""
    rng = np.random.default_rng(zlib.crc32(repr((op, attrs)).encode()))
    arrays = [s if isinstance(s, np.ndarray) else rng.normal(size=s).astype(np.float32) for s in shapes]
    names = [f"x{k}" for k in range(len(arrays))]
    outs = [f"y{k}" for k in range(outputs)]
    weights = dict(zip(names[1:], arrays[1:], strict=True))
    n = node(op, names, outs, name="it", **attrs)
    untyped = [helper.make_empty_tensor_value_info(o) for o in outs]
    fixed = model(graph([n], [info("x0", arrays[0].shape)], untyped, **weights), opset)
    wants = session_of(fixed).run(None, {"x0": arrays[0]})
    models = [fixed]
    if loose:
        sizes = [f"n{k}" if k != 1 else d for k, d in enumerate(arrays[0].shape)]
        models.append(model(graph([n], [info("x0", sizes)], untyped, **weights), opset))
    for m in models:
        program = read_model(m.SerializeToString())
        verify.verify(program)
        got = interp.run(program, {"x0": arrays[0]})
        for o, want in zip(outs, wants, strict=True):
            assert got[o].shape == want.shape and got[o].dtype == want.dtype
            np.testing.assert_allclose(got[o], want, rtol=1e-4, atol=2e-5)


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


OLD = [
    *[(op, o, {}, [X]) for op in ("Softmax", "LogSoftmax", "Hardmax") for o in (7, 11, 12)],
    *[(op, 11, {"axis": a}, [X]) for op in ("Softmax", "LogSoftmax", "Hardmax") for a in (0, 2, 3, -1)],
    ("Clip", 6, {"min": -0.5, "max": 0.25}, [X]),
    ("Clip", 10, {"max": 0.25}, [X]),
    ("Pad", 10, {"pads": [0, 0, 1, 2, 0, 0, 3, 0], "value": 1.5}, [X]),
    ("Pad", 10, {"pads": [0, 0, 1, 2, 0, 0, 3, 0], "mode": "reflect"}, [X]),
    ("Slice", 9, {"starts": [1, -4], "ends": [9, -1], "axes": [2, 3]}, [X]),
    ("Slice", 10, {}, [X, i64(4, 5), i64(0, -99), i64(2, 3), i64(-1, -2)]),
    ("Upsample", 9, {"mode": "nearest"}, [X, np.array([1, 1, 2, 3], np.float32)]),
    ("Upsample", 9, {"mode": "linear"}, [X, np.array([1, 1, 2, 2], np.float32)]),
    ("Resize", 10, {"mode": "nearest"}, [X, np.array([1, 1, 0.5, 1.5], np.float32)]),
    ("Squeeze", 11, {"axes": [1]}, [(2, 1, 3)]),
    ("Unsqueeze", 11, {"axes": [0, -1]}, [X]),
    ("ReduceSum", 11, {"axes": [1, -1], "keepdims": 0}, [X]),
    ("ReduceMean", 13, {"axes": [2, 3]}, [X]),
    ("ReduceMax", 12, {}, [X]),
    ("Split", 11, {"axis": 1, "split": [1, 3]}, [X], 2),
    ("Split", 13, {"axis": 1}, [X], 2),
    ("Dropout", 10, {"ratio": 0.5}, [X]),
    ("Flatten", 9, {"axis": 0}, [X]),
    ("Flatten", 13, {"axis": -1}, [X]),
    ("BatchNormalization", 9, {}, [X, (4,), (4,), (4,), np.array([1, 2, 0.5, 3], np.float32)]),
    ("Gemm", 7, {"transB": 1, "alpha": 0.5, "beta": 2.0}, [(3, 4), (5, 4), (1, 5)]),
    ("TopK", 10, {"axis": 1}, [X, i64(3)], 2),
    ("LRN", 13, {"size": 3}, [X]),
    ("InstanceNormalization", 6, {}, [X, (4,), (4,)]),
    ("PRelu", 9, {}, [X, (4, 1, 1)]),
    ("Gather", 13, {"axis": 2}, [X, i64(0, 2, 4)]),
    ("Gather", 13, {"axis": 3}, [X, np.array([[5, -1], [0, 2]], np.int64)]),
]  # fmt: skip


@pytest.mark.parametrize("case", OLD, ids=lambda c: f"{c[0]}-{c[1]}-{c[2]}")
def test_older_opsets(case: tuple) -> None:
    compare(*case)


WINDOWS = [
    {"strides": s, "dilations": d, "pads": p}
    for s, d, p in itertools.product(([1, 1], [2, 3]), ([1, 1], [2, 1]), ([0, 0, 0, 0], [1, 0, 2, 1]))
]
AUTO = [{"strides": [2, 3], "auto_pad": a} for a in ("SAME_UPPER", "SAME_LOWER", "VALID")]  # ORT has no dilation here


@pytest.mark.parametrize("attrs", [*WINDOWS, *AUTO], ids=str)
@pytest.mark.parametrize("group", [1, 2, 4])
def test_conv(attrs: dict, group: int) -> None:
    compare("Conv", 11, {"group": group, **attrs}, [(2, 4, 9, 8), (8, 4 // group, 3, 2), (8,)])


@pytest.mark.parametrize("rank", [1, 3])
def test_conv_of_other_ranks(rank: int) -> None:
    compare("Conv", 11, {"strides": [2] * rank}, [(1, 3, *(7,) * rank), (2, 3, *(3,) * rank)])


TRANSPOSED = [
    {"strides": s, "dilations": d, "pads": p, "output_padding": o}
    for s, d, p, o in itertools.product(([1, 1], [2, 3]), ([1, 1], [2, 1]), ([0, 0, 0, 0], [1, 0, 1, 1]), ([0, 0], [1, 0]))
    if o == [0, 0] or s != [1, 1]
]


@pytest.mark.parametrize("attrs", TRANSPOSED, ids=str)
@pytest.mark.parametrize("group", [1, 2])
def test_conv_transpose(attrs: dict, group: int) -> None:
    compare("ConvTranspose", 11, {"group": group, **attrs}, [(2, 4, 5, 4), (4, 3, 3, 2), (3 * group,)])


@pytest.mark.parametrize("attrs", [
    {"strides": [2, 2], "output_shape": [9, 10]},
    {"strides": [2, 2], "output_shape": [10, 9], "auto_pad": "SAME_UPPER"},
    {"strides": [2, 2], "auto_pad": "SAME_UPPER"},
    {"strides": [2, 2], "auto_pad": "SAME_LOWER"},
    {"strides": [2, 2]},
], ids=str)  # fmt: skip
def test_conv_transpose_sizes(attrs: dict) -> None:
    compare("ConvTranspose", 11, attrs, [(1, 2, 5, 5), (2, 3, 3, 3)], 1, "output_shape" not in attrs)


POOLS = [
    {"kernel_shape": [3, 2], "strides": [2, 3], "pads": p, "ceil_mode": c}
    for p, c in itertools.product(([0, 0, 0, 0], [1, 1, 1, 0]), (0, 1))
]


@pytest.mark.parametrize("attrs", [*POOLS, {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"}], ids=str)
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "whole", "LpPool"])
def test_pool(op: str, attrs: dict) -> None:
    opset, extra = 19 if "AveragePool" in op or op == "whole" else 12, {}
    if op == "whole":
        op, extra = "AveragePool", {"count_include_pad": 1}
    if op == "LpPool":
        if attrs.get("ceil_mode"):
            pytest.skip("LpPool has no ceil_mode at this opset")
        attrs = {k: v for k, v in attrs.items() if k != "ceil_mode"}
    compare(op, opset, {**attrs, **extra}, [(1, 2, 8, 9)])


RESIZE_MODES = [
    (mode, how, rounding)
    for mode in ("nearest", "linear", "cubic")
    for how in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
    for rounding in (("floor", "ceil", "round_prefer_floor", "round_prefer_ceil") if mode == "nearest" else ("floor",))
]


@pytest.mark.parametrize("scales", [(2, 3), (0.5, 1.5), (1, 2)], ids=str)
@pytest.mark.parametrize("mode,how,rounding", RESIZE_MODES)
def test_resize(mode: str, how: str, rounding: str, scales: tuple[float, float]) -> None:
    attrs = {"mode": mode, "coordinate_transformation_mode": how, "nearest_mode": rounding}
    none, s = np.zeros(0, np.float32), np.array([1, 1, *scales], np.float32)
    compare("Resize", 13, attrs, [(1, 2, 4, 6), none, s])


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_resize_to_the_size_of_another_tensor(mode: str) -> None:
    nodes = [node("Shape", ["z"], ["s"]), node("Resize", ["x", "", "", "s"], ["y"], mode=mode)]
    m = model(graph(nodes, [info("x", [1, 2, "h", "w"]), info("z", [1, 2, "p", "q"])], [info("y", [1, 2, "p", "q"])]))
    x = np.random.default_rng(0).normal(size=(1, 2, 4, 5)).astype(np.float32)
    feeds = {"x": x, "z": np.zeros((1, 2, 7, 10), np.float32)}
    (want,) = session_of(m).run(None, feeds)
    got = interp.run(read_model(m.SerializeToString()), feeds)["y"]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
