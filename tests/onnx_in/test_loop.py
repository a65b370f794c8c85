"""Loop: counted, with a condition, with scan outputs, with tensors from outside; against ONNX Runtime and on C."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tang_edge.errors import UnsupportedModel
from tang_edge.ir import interp
from tang_edge.ir.tensor import Loop, walk
from tang_edge.ir.verify import verify
from tang_edge.onnx_in import import_model
from tang_edge.rewrite.pipeline import optimize

F, INT, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
info = helper.make_tensor_value_info
node = helper.make_node


def body(*, scan: bool = False, cond: str = "pass", uses_turn: bool = True) -> onnx.GraphProto:
    """h' = tanh(h @ w + turn); the condition goes through, is true, or is sum(h') < limit."""
    nodes = [node("MatMul", ["h", "w"], ["m"]), node("Cast", ["turn"], ["tf"], to=F)]
    nodes += [node("Add", ["m", "tf"], ["a"]) if uses_turn else node("Identity", ["m"], ["a"]), node("Tanh", ["a"], ["h_new"])]
    if cond == "pass":
        nodes.append(node("Identity", ["on"], ["on_new"]))
    elif cond == "true":
        nodes.append(node("Constant", [], ["on_new"], value=numpy_helper.from_array(np.asarray(True))))
    else:
        nodes += [node("ReduceSum", ["h_new"], ["s"], keepdims=0), node("Less", ["s", "limit"], ["on_new"])]
    outputs = [info("on_new", B, []), info("h_new", F, [1, 4])]
    if scan:
        nodes.append(node("Mul", ["h_new", "h_new"], ["square"]))
        outputs.append(info("square", F, [1, 4]))
    return helper.make_graph(nodes, "body", [info("turn", INT, []), info("on", B, []), info("h", F, [1, 4])], outputs)


def model(graph: onnx.GraphProto, trip: str, cond: str, *, scan: int = 0) -> onnx.ModelProto:
    """One Loop; `trip` and `cond` are "const", "input" or "" (absent)."""
    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array((rng.normal(size=(4, 4)) / 3).astype(np.float32), "w")]
    inputs = [info("h0", F, [1, 4])]
    for name, how, value in (("trip", trip, np.asarray(5, np.int64)), ("go", cond, np.asarray(True))):
        if how == "const":
            weights.append(numpy_helper.from_array(value, name))
        elif how == "input":
            inputs.append(info(name, INT if name == "trip" else B, []))
    if any("limit" in x.input for x in graph.node):
        inputs.append(info("limit", F, []))
    outputs = ["last", *(["all"] if scan else [])]
    nodes = [
        node("Loop", ["trip" if trip else "", "go" if cond else "", "h0"], outputs, body=graph),
        node("Add", ["last", "h0"], ["y"]),
    ]
    made = [info("y", F, [1, 4]), *([info("all", F, [scan, 1, 4])] if scan else [])]
    whole = helper.make_graph(nodes, "loops", inputs, made, weights)
    return helper.make_model(whole, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


CASES = {
    "counted": (model(body(), "const", ""), {}),
    "counted without its turn": (model(body(uses_turn=False, cond="true"), "const", "const"), {}),
    "count from an input": (model(body(), "input", ""), {"trip": np.asarray(3)}),
    "no turn": (model(body(), "input", ""), {"trip": np.asarray(0)}),
    "condition of the body": (model(body(cond="limit"), "const", "const"), {"limit": np.asarray(1.5, np.float32)}),
    "condition without count": (model(body(cond="limit"), "", "const"), {"limit": np.asarray(2.5, np.float32)}),
    "condition from an input": (
        model(body(cond="limit"), "input", "input"),
        {"limit": np.asarray(9, np.float32), "trip": np.asarray(4), "go": np.asarray(True)},
    ),
    "never": (
        model(body(cond="limit"), "input", "input"),
        {"limit": np.asarray(9, np.float32), "trip": np.asarray(4), "go": np.asarray(False)},
    ),
    "scan": (model(body(scan=True), "const", "", scan=5), {}),
}


def feeds(more):
    return {"h0": np.random.default_rng(1).normal(size=(1, 4)).astype(np.float32), **more}


@pytest.mark.parametrize("name", CASES)
def test_against_onnx_runtime(name, tmp_path):
    ort = pytest.importorskip("onnxruntime")
    proto, more = CASES[name]
    path = tmp_path / "m.onnx"
    onnx.save(proto, path)
    program = import_model(path).program
    assert verify(program) == ()
    want = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feeds(more))
    for p in (program, optimize(program)):
        got = interp.run(p, feeds(more))
        for have, value in zip(got.values(), want, strict=True):
            np.testing.assert_allclose(have, value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_on_c(name, tmp_path):
    from tang_edge import load
    from tang_edge.c_fallback import compile as cc
    from tang_edge.compiler import pack

    if cc.find_compiler() is None:
        pytest.skip("no C compiler")
    proto, more = CASES[name]
    onnx.save(proto, tmp_path / "m.onnx")
    pack(tmp_path / "m.onnx", tmp_path / "m.tang", targets=("cpu-generic",), states=())
    want = interp.run(import_model(tmp_path / "m.onnx").program, feeds(more))
    with load(tmp_path / "m.tang", device="c") as loaded:
        for key, value in loaded.run(feeds(more)).items():
            np.testing.assert_allclose(value, want[key], rtol=1e-5, atol=1e-6)


def carried(name, tmp_path):
    onnx.save(CASES[name][0], tmp_path / "m.onnx")
    (loop,) = [i for i in walk(import_model(tmp_path / "m.onnx").program.items) if isinstance(i, Loop)]
    return len(loop.carried), loop.cond is not None


def test_only_what_is_looked_at_is_carried(tmp_path):
    assert carried("counted", tmp_path) == (2, False)
    assert carried("counted without its turn", tmp_path) == (1, False)
    assert carried("condition of the body", tmp_path) == (3, True)


@pytest.mark.parametrize(
    ("proto", "match"),
    [
        (model(body(scan=True), "input", "", scan=5), "not known"),
        (model(body(scan=True, cond="limit"), "const", "const", scan=5), "not known"),
    ],
)
def test_refusals(proto, match, tmp_path):
    onnx.save(proto, tmp_path / "m.onnx")
    with pytest.raises(UnsupportedModel, match=match):
        import_model(tmp_path / "m.onnx")
