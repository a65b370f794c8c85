"""Structure of the acceptance models after the pipeline: how many kernels' worth of binds run at each
inference.

A count may fall; a rise is a regression of fusion and must be explained. Skips visibly where a model is not
fetched.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tang_edge.ir import interp, scalar
from tang_edge.ir.tensor import Bind, Program
from tang_edge.onnx_in import read_model
from tang_edge.rewrite.constants import is_prologue
from tang_edge.rewrite.decide import FusionLimits
from tang_edge.rewrite.graph import tensors_read
from tang_edge.rewrite.pipeline import optimize

FOLDER = Path(os.environ.get("TANG_EDGE_MODELS") or Path(__file__).resolve().parents[2] / "models")

# model: (binds that run, of them with a reduction)
STRUCTURE = {
    "go2-policy": (4, 4),  # one a layer
    "reachy-fk": (7, 7),
    "reachy-fk-dynamic": (7, 7),
    "reachy-ik": (7, 7),
    "reachy-fk-int8": (8, 7),  # one a layer, and the input quantised
    "ppocr-cls": (77, 67),  # 53 convolutions, 9 gated multiplications, 11 pools, a product, softmax in three
    "ppocr-det": (87, 74),
    "ppocr-rec": (80, 70),
    "ddddocr-det": (92, 86),  # 83 convolutions, 3 pools, 4 slices of the focus, 2 resizes
    "oww-melspec": (5, 4),
    "oww-embedding": (25, 25),  # 20 convolutions, 5 pools
    "oww-jarvis": (18, 14),
}


def read(name: str) -> Program:
    path = FOLDER / f"{name}.onnx"
    if not path.exists():
        pytest.skip(f"{path} is not fetched")
    return read_model(path)


def running(program: Program) -> list[Bind]:
    prologue = is_prologue(program)
    return [b for b in program.binds() if b.name not in prologue]


@pytest.mark.parametrize("name", STRUCTURE)
def test_number_of_binds(name: str) -> None:
    binds = running(optimize(read(name)))
    reductions = [b for b in binds if scalar.comprehensions(b.expr)]
    assert (len(binds), len(reductions)) == STRUCTURE[name]
    assert all(len(scalar.comprehensions(b.expr)) == 1 for b in reductions)
    limit = FusionLimits().tensors_read
    assert all(len(tensors_read(b.expr)) <= limit for b in binds)


def test_every_model_node_is_in_an_origin() -> None:
    """`explain` maps each operator that is left to the bind that computes it."""
    before = read("ddddocr-det")
    after = optimize(before)
    seen = {o for b in after.binds() for o in b.origin}
    missing = {o for b in before.binds() for o in b.origin} - seen
    assert not missing


@pytest.mark.parametrize("name", ["ppocr-cls", "ddddocr-det"])
def test_convolutions_read_plain_operands(name: str) -> None:
    """A sum of products loops over two loads: activations and scales sit in epilogues or are stored."""
    for b in running(optimize(read(name))):
        for c in scalar.comprehensions(b.expr):
            lift = c.lifts[0]
            if isinstance(lift, scalar.Op) and lift.name == "mul" and c.monoid.name == "sum":
                assert all(isinstance(a, scalar.Read) for a in lift.args), (b.name, str(lift))


def test_quantised_values_are_those_of_onnx_runtime() -> None:
    """Every u8 tensor that the optimised program stores equals ONNX Runtime's (its QGemm), element for element."""
    ort = pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    program = optimize(read("reachy-fk-int8"))
    model = onnx.load(FOLDER / "reachy-fk-int8.onnx")
    names = [n.output[0] for n in model.graph.node if n.op_type == "QuantizeLinear"]
    model.graph.output.extend(onnx.helper.make_tensor_value_info(n, onnx.TensorProto.UINT8, None) for n in names)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    feeds = {"input": np.random.default_rng(0).uniform(-1.5, 1.5, (64, 7)).astype(np.float32)}
    want = dict(zip(names, session.run(names, feeds), strict=True))
    got = interp.run(program, feeds, keep=set(names))
    stored = [n for n in names if n in got]
    assert len(stored) == 7  # the input and the output of each tanh
    for name in stored:
        np.testing.assert_array_equal(got[name], want[name], err_msg=name)
