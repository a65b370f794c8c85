"""Weights as lists of numbers: read as bytes where protobuf is pure Python, with the same result."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from onnx import TensorProto, helper

from tang_edge.onnx_in import import_model, packed

N = 1500


def model(kind: int, numbers, extra=()) -> bytes:
    """y = x + Cast(w), with w as a list of numbers."""
    w = helper.make_tensor("w", kind, (N,), numbers)
    nodes = [helper.make_node("Cast", ["w"], ["c"], to=TensorProto.FLOAT), helper.make_node("Add", ["x", "c"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "lists",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [N])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [N])],
        [w, *extra],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()


def weights(raw: bytes) -> dict[str, np.ndarray]:
    return {c.name: np.asarray(c.data) for c in import_model(raw).program.constants}


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64])
def test_the_same_weights(kind, monkeypatch):
    numbers = np.arange(N) - 7 if kind == TensorProto.INT64 else np.random.default_rng(0).normal(size=N)
    raw = model(kind, numbers.tolist())
    expected = weights(raw)
    monkeypatch.setattr(packed.api_implementation, "Type", lambda: "python")
    changed = packed.quick(raw)
    assert len(changed) == len(raw)
    assert sum(a != b for a, b in zip(changed, raw, strict=True)) == (kind != TensorProto.INT64)
    found = weights(raw)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].dtype == value.dtype and np.array_equal(found[name], value)


def test_short_lists_and_damage_are_left_alone(monkeypatch):
    monkeypatch.setattr(packed.api_implementation, "Type", lambda: "python")
    few = helper.make_tensor("few", TensorProto.FLOAT, (3,), [1.0, 2.0, 3.0])
    raw = model(TensorProto.FLOAT, [0.5] * N, [few])
    assert sum(a != b for a, b in zip(packed.quick(raw), raw, strict=True)) == 1
    for cut in range(0, len(raw), 97):
        assert packed.quick(raw[:cut]) == raw[:cut]
    rng = np.random.default_rng(1)
    for _ in range(200):
        noise = bytearray(raw)
        noise[int(rng.integers(len(raw)))] = int(rng.integers(256))
        assert len(packed.quick(bytes(noise))) == len(raw)


def test_without_c_no_list_is_read():
    """In a Python whose protobuf is the pure one."""
    code = """
import sys
from tang_edge.onnx_in.load import load
model, _, _ = load(sys.stdin.buffer.read())
t = model.graph.initializer[0]
print(len(t.raw_data), len(t.float_data))
"""
    w = helper.make_tensor("w", TensorProto.FLOAT, (N, 700), np.ones(N * 700).tolist())
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "many",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, N])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 700])],
        [w],
    )
    raw = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()
    environment = {**os.environ, "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"}
    done = subprocess.run([sys.executable, "-c", code], input=raw, capture_output=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    assert done.stdout.split() == [str(N * 700 * 4).encode(), b"0"]
