"""The same model and options give the same bytes: whatever the hash seed, and on every Python that is here.

On one machine the whole file is equal. Between Pythons (with other NumPys) plan, kernels and weights are; self-test vectors may
round in another way where their sums come from another BLAS. tests/web/test_compiler.py compares with Python under WebAssembly.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tang_edge import vectors
from tang_edge.onnx_in import DimRange, import_model
from tang_edge.rewrite.pipeline import optimize

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = """
import json, sys
from tang_edge.bundle.read import open_bundle
from tang_edge.compiler import pack
from tang_edge.onnx_in import DimRange
options = {"dims": {"n": DimRange(1, 64)}, "remember": False}
pack(sys.argv[1], sys.argv[2], targets=("laptop", "browser"), golden="golden" in sys.argv, **options)
with open_bundle(sys.argv[2]) as bundle:
    plan = json.loads(bytes(bundle.member("plan.json")))
    files = {name: bundle.manifest.files[name][0] for name in bundle.names if not name.startswith(("golden/", "plan.json"))}
    print(json.dumps([plan, files]))
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """Convolution, normalisation, a branch of views, a product, softmax, and a recurrent pair of names."""
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.normal(size=(8, 3, 3, 3)),
        "scale": rng.uniform(0.5, 1, 8),
        "bias": rng.normal(size=8),
        "mean": rng.normal(size=8),
        "var": rng.uniform(0.5, 1, 8),
        "fc": rng.normal(size=(8, 5)),
        "h": rng.normal(size=(5, 5)),
    }
    f = TensorProto.FLOAT
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("BatchNormalization", ["c", "scale", "bias", "mean", "var"], ["b"]),
        helper.make_node("Relu", ["b"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["g"]),
        helper.make_node("Flatten", ["g"], ["flat"]),
        helper.make_node("MatMul", ["flat", "fc"], ["m"]),
        helper.make_node("MatMul", ["state", "h"], ["sh"]),
        helper.make_node("Add", ["m", "sh"], ["sum"]),
        helper.make_node("Tanh", ["sum"], ["state_out"]),
        helper.make_node("Softmax", ["state_out"], ["y"], axis=-1),
        helper.make_node("Transpose", ["r"], ["t"], perm=[0, 2, 3, 1]),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", f, ["n", 3, 16, 12]), helper.make_tensor_value_info("state", f, ["n", 5])],
        [
            helper.make_tensor_value_info("y", f, ["n", 5]),
            helper.make_tensor_value_info("state_out", f, ["n", 5]),
            helper.make_tensor_value_info("t", f, ["n", 8, 6, 8]),
        ],
        [numpy_helper.from_array(v.astype(np.float32), k) for k, v in weights.items()],
    )
    path = tmp_path_factory.mktemp("model") / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def pack(python: str, seed: int, model: Path, out: Path, *more: str):
    """What another process packs: the plan, and the hashes of kernels and weights."""
    environment = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": str(ROOT)}
    command = [python, "-c", SCRIPT, str(model), str(out), *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_the_same_bytes_whatever_the_hash_seed(model, tmp_path):
    files = [tmp_path / f"{seed}.tang" for seed in (1, 2)]
    for seed, file in enumerate(files, 1):
        pack(sys.executable, seed, model, file, "golden")
    assert files[0].read_bytes() == files[1].read_bytes()


def other_pythons() -> list[str]:
    """Interpreters besides this one that can pack; TANG_EDGE_TEST_PYTHONS names more, separated by colons."""
    given = [p for p in os.environ.get("TANG_EDGE_TEST_PYTHONS", "").split(":") if p]
    named = [p for minor in (11, 12, 13, 14) if (p := shutil.which(f"python3.{minor}"))]
    found = {}
    for python in [*given, *named]:
        done = subprocess.run(
            [python, "-c", "import numpy, onnx, sys; print(sys.version_info[:2], numpy.__version__)"],
            capture_output=True,
            text=True,
        )
        if done.returncode == 0:
            found.setdefault(done.stdout, python)
    found.pop(f"{sys.version_info[:2]} {np.__version__}\n", None)
    return list(found.values())


def test_the_same_plan_kernels_and_weights_on_other_pythons(model, tmp_path):
    others = other_pythons()
    if not others:
        pytest.skip("no other Python with numpy and onnx here (TANG_EDGE_TEST_PYTHONS=/path/to/python:...)")
    mine = pack(sys.executable, 1, model, tmp_path / "mine.tang")
    for python in others:
        plan, files = pack(python, 3, model, tmp_path / "theirs.tang")
        assert plan == mine[0] and files == mine[1], python


def test_the_tolerance_is_the_same_in_another_order_of_sums(model, monkeypatch):
    """It stands in the plan, and no two machines' BLAS sum alike: outputs differ in their last bits, the tolerance does not."""
    source = import_model(model, dim_ranges={"n": DimRange(1, 64)}).program
    program = optimize(source)
    one = vectors.golden_vectors(source, program)
    product = np.matmul
    monkeypatch.setattr(np, "matmul", lambda a, b: product(a[..., ::-1], b[..., ::-1, :]))
    other = vectors.golden_vectors(source, program)
    assert any(not np.array_equal(v, other.arrays[k]) for k, v in one.arrays.items() if k.startswith("step/")), "no sum moved"
    assert (one.rtol, one.atol) == (other.rtol, other.atol)


def test_powers_of_two_are_exact():
    for k in range(-60, 8):
        assert vectors.power_above(2.0**k) == 2.0**k
        assert vectors.power_above(np.nextafter(2.0**k, 9e9)) == 2.0 ** (k + 1)
        assert vectors.power_above(np.nextafter(2.0**k, 0)) == 2.0**k
