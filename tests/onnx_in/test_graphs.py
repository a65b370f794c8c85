"""Graphs as exporters write them: odd orders, shared names, branches, functions, symbolic sizes, reshapes."""

from __future__ import annotations

import numpy as np
import pytest
from nets import f32, graph, info, model, net, node, run
from onnx import TensorProto, helper

from tang_edge.errors import InputError, UnsupportedModel
from tang_edge.ir import interp
from tang_edge.ir.affine import const, dim
from tang_edge.ir.scalar import Op, Read
from tang_edge.ir.tensor import Alloc, Bind, If
from tang_edge.onnx_in import DimRange, import_model, read_model
from tang_edge.onnx_in.reshape import exact_quotient, refine


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def test_unsorted_nodes_and_initialisers_listed_as_inputs() -> None:
    nodes = [node("Add", ["a", "w"], ["y"]), node("Relu", ["x"], ["a"])]
    raw = net(nodes, {"x": [3], "w": [3], "unused": [9]}, ["y"], w=f32(3))
    p = read_model(raw)
    assert [i.name for i in p.inputs] == ["x", "unused"]
    assert run(p, x=-f32(3), unused=f32(9)).tolist() == [0, 1, 2]


def test_dimension_names_and_ranges() -> None:
    nodes = [node("Concat", ["x", "z"], ["c"], axis=0), node("Relu", ["c"], ["y"])]
    raw = net(nodes, {"x": ["batch", "?", "w.0"], "z": ["batch", "?", "w.0"]}, ["y"])
    found = import_model(raw)
    assert list(found.ranges) == ["batch", "x_1", "x_2", "z_1"]
    assert str(found.ranges["batch"]) == "1..64" and str(found.ranges["x_2"]) == "1..4096"
    (c,) = found.program.constraints
    assert {str(c.left), str(c.right)} == {"x_1", "z_1"} and c.why == "Concat 'c'"
    with pytest.raises(InputError):
        run(found.program, x=f32(2, 3, 1), z=f32(2, 4, 1))
    fixed = read_model(raw, dim_ranges={"batch": DimRange(2, 2), "w.0": DimRange(1, 8)})
    assert fixed.inputs[0].type.shape[0].constant == 2


def test_multiples_are_inferred() -> None:
    down = {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}
    up = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    nodes = [
        node("MaxPool", ["x"], ["half"], **down),
        node("MaxPool", ["half"], ["quarter"], **down),
        node("Resize", ["quarter", "", "scales"], ["again"], **up),
        node("Add", ["x", "again"], ["y"], name="skip"),
    ]
    raw = net(nodes, {"x": [1, 1, "h", "w"]}, ["y"], scales=np.array([1, 1, 4, 4], np.float32))
    found = import_model(raw)
    assert found.program.constraints == ()
    assert found.notes[0] == "h: multiple of 4 (implied by Add 'skip')"
    loose = import_model(raw, dim_ranges={"h": DimRange(1, 64), "w": DimRange(1, 64)})
    assert len(loose.program.constraints) == 2


def test_outputs_that_are_inputs_constants_or_shared() -> None:
    nodes = [node("Identity", ["x"], ["a"]), node("Identity", ["w"], ["b"]), node("Relu", ["x"], ["r"])]
    nodes.append(node("Identity", ["r"], ["s"]))
    p = read_model(net(nodes, {"x": [2]}, ["a", "b", "r", "s"], w=f32(2) + 5))
    got = interp.run(p, {"x": f32(2) - 1})
    assert {k: v.tolist() for k, v in got.items()} == {"a": [-1, 0], "b": [5, 6], "r": [0, 0], "s": [0, 0]}
    tensors = [t for _, t in p.outputs]
    assert len(set(tensors)) == 4 and all(t in {b.name for b in p.binds()} for t in tensors)


def branch(op: str, *reads: str) -> object:
    return graph([node(op, list(reads), ["out"])], [], [info("out", [3])])


def test_if_binds_the_same_names_in_both_branches() -> None:
    nodes = [
        node("ReduceSum", ["x"], ["s"], keepdims=0),
        node("Greater", ["s", "zero"], ["c"]),
        node("If", ["c"], ["y"], then_branch=branch("Relu", "x"), else_branch=branch("Identity", "x")),
    ]
    p = read_model(net(nodes, {"x": [3]}, ["y"], zero=np.float32(0)))
    (item,) = [i for i in p.items if isinstance(i, If)]
    assert item.results == ("y",)
    for b in (item.then, item.orelse):
        assert [i.name for i in b if isinstance(i, Bind)][-1] == "y"
    assert run(p, x=np.array([-1, 0, 2], np.float32)).tolist() == [0, 0, 2]
    assert run(p, x=np.array([-1, 0, 0], np.float32)).tolist() == [-1, 0, 0]


def test_static_condition_is_folded() -> None:
    fork = node("If", ["c"], ["y"], then_branch=branch("Relu", "x"), else_branch=branch("Neg", "x"))
    p = read_model(net([fork], {"x": [3]}, ["y"], c=np.array(False)))
    assert not any(isinstance(i, If) for i in p.items)
    assert run(p, x=f32(3)).tolist() == [0, -1, -2]


def test_local_functions_and_onnx_functions() -> None:
    body = [node("Mul", ["a", "a"], ["b"]), node("Add", ["b", "a"], ["c"])]
    fn = helper.make_function("mine", "Poly", ["a"], ["c"], body, [helper.make_opsetid("", 17)])
    g = graph([node("Poly", ["x"], ["y"], domain="mine")], [info("x", [3])], [info("y", [3])])
    assert run(read_model(model(g, functions=[fn]).SerializeToString()), x=f32(3)).tolist() == [0, 2, 6]


@pytest.mark.parametrize("opset", [9, 11, 13, 17, 21])
def test_shape_arithmetic_never_reaches_the_device(opset: int) -> None:
    """view(x.size(0), -1, x.size(2) // 2, 2): Shape, Gather, Div, Unsqueeze, Concat, Reshape."""
    given = opset >= 13
    axes = {} if given else {"axes": [0]}
    more = ["zero1"] if given else []
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "i0"], ["b"]),
        node("Gather", ["s", "i2"], ["w"]),
        node("Div", ["w", "two"], ["h"]),
        node("Unsqueeze", ["b", *more], ["b1"], **axes),
        node("Unsqueeze", ["h", *more], ["h1"], **axes),
        node("Concat", ["b1", "minus", "h1", "two1"], ["t"], axis=0),
        node("Reshape", ["x", "t"], ["y"]),
    ]
    consts = {"i0": np.int64(0), "i2": np.int64(2), "two": np.int64(2)}
    vectors = {"zero1": ints(0), "minus": ints(-1), "two1": ints(2)}
    raw = net(nodes, {"x": ["n", 5, "w"]}, ["y"], opset=opset, **consts, **vectors)
    p = read_model(raw, dim_ranges={"w": DimRange(2, 64, 2)})
    assert [b.name for b in p.binds()] == ["y"] and p.constraints == ()
    x = f32(3, 5, 8)
    np.testing.assert_array_equal(run(p, x=x), x.reshape(3, 5, 4, 2))


def test_shape_arithmetic_that_the_device_reads() -> None:
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Cast", ["s"], ["f"], to=TensorProto.FLOAT),
        node("ReduceProd", ["s"], ["p"], keepdims=0),
        node("Cast", ["p"], ["q"], to=TensorProto.FLOAT),
        node("Mul", ["f", "q"], ["y"]),
    ]
    p = read_model(net(nodes, {"x": ["n", 3, "m"]}, ["y"]))
    assert run(p, x=f32(2, 3, 5)).tolist() == [60, 90, 150]


RESHAPES = [  # input sizes (a name is symbolic), target, actual input shape
    (["n", 4, 6], (0, 2, 2, 6), (3, 4, 6)),
    (["n", 4, "m"], (0, -1), (3, 4, 5)),
    (["n", "m", 6], (-1, 3, 2), (3, 4, 6)),
    (["n", "m"], (-1,), (3, 5)),
    ([6, 4], (4, 6), (6, 4)),
    ([2, 3, 4], (4, 3, 2), (2, 3, 4)),
    (["s", 12], (6, -1, 2), (4, 12)),
    (["n", 12, "h", "w"], (0, 3, 4, -1), (2, 12, 3, 5)),
    ([1, "n", 1, 6], (-1, 1, 2, 3, 1), (1, 5, 1, 6)),
    (["n"], (1, -1, 1), (5,)),
]


@pytest.mark.parametrize("sizes,target,shape", RESHAPES)
def test_reshape(sizes: list, target: tuple[int, ...], shape: tuple[int, ...]) -> None:
    raw = net([node("Reshape", ["x", "t"], ["y"])], {"x": sizes}, ["y"], t=ints(*target))
    x = f32(*shape)
    want = x.reshape([shape[k] if t == 0 else t for k, t in enumerate(target)])
    np.testing.assert_array_equal(run(read_model(raw), x=x), want)


def test_merge_of_symbolic_axes_is_a_store_map() -> None:
    raw = net([node("Reshape", ["x", "t"], ["y"])], {"x": ["n", "m", "k"]}, ["y"], t=ints(0, -1))
    p = read_model(raw)
    assert [type(i) for i in p.items] == [Alloc, Bind]
    np.testing.assert_array_equal(run(p, x=f32(2, 3, 4)), f32(2, 12))


def test_reshape_across_symbolic_extents_is_refused() -> None:
    raw = net([node("Reshape", ["x", "t"], ["y"], name="r")], {"x": [12, "s"]}, ["y"], t=ints(-1, 8))
    with pytest.raises(UnsupportedModel, match="Reshape 'r'"):
        read_model(raw)


def test_divisibility_becomes_a_multiple() -> None:
    raw = net([node("Reshape", ["x", "t"], ["y"], name="r")], {"x": ["s"]}, ["y"], t=ints(-1, 8))
    found = import_model(raw)
    assert found.notes == ("s: multiple of 8 (implied by Reshape 'r')",)
    np.testing.assert_array_equal(run(found.program, x=f32(16)), f32(2, 8))


def test_exact_quotient() -> None:
    n, m = dim("n"), dim("m")
    assert exact_quotient(n * m * 6 + n * 3, n * 3) is m * 2 + 1
    assert exact_quotient((n + 1) * (m - 2), m - 2) is n + 1
    assert exact_quotient(n * m + 1, n) is None
    assert exact_quotient(n * 3, n * 2) is None


def test_refinement_pairs_axes() -> None:
    n = dim("n")
    source, target = [n, const(4), const(6)], [n, const(2), const(2), const(6)]
    r = refine(source, target, lambda a, b: a)
    assert r is not None and [len(p) for p in r.sources] == [1, 2, 1]
    assert [len(p) for p in r.targets] == [1, 1, 1, 1]


def test_concat_keeps_its_regular_form() -> None:
    raw = net([node("Concat", ["x", "z"], ["y"], axis=-1)], {"x": [2, "a"], "z": [2, "b"]}, ["y"])
    p = read_model(raw)
    expr = p.binds()[0].expr
    assert isinstance(expr, Op) and expr.name == "select" and str(expr.args[0]) == "lt(idx(i1), idx(a))"
    assert [type(e) for e in expr.args[1:]] == [Read, Read]
    got = run(p, x=f32(2, 3), z=f32(2, 2))
    np.testing.assert_array_equal(got, np.concatenate([f32(2, 3), f32(2, 2)], 1))


@pytest.mark.parametrize("op,attrs,constants", [
    ("Slice", {}, {"a": ints(-1), "b": ints(-100), "c": ints(1), "d": ints(-2)}),
    ("Pad", {"mode": "reflect"}, {"a": ints(0, 2, 0, 1)}),
    ("Pad", {"mode": "edge"}, {"a": ints(1, 2, 3, 4)}),
    ("Tile", {}, {"a": ints(2, 3)}),
    ("CumSum", {"reverse": 1, "exclusive": 1}, {"a": np.int64(1)}),
    ("TopK", {}, {"a": ints(3)}),
])  # fmt: skip
def test_symbolic_sizes_agree_with_fixed_ones(op: str, attrs: dict, constants: dict) -> None:
    outputs = ["y", "i"] if op == "TopK" else ["y"]
    nodes = [node(op, ["x", *constants], outputs, **attrs)]
    x = np.random.default_rng(1).normal(size=(4, 7)).astype(np.float32)
    fixed = read_model(net(nodes, {"x": [4, 7]}, outputs, **constants))
    loose = read_model(net(nodes, {"x": ["n", "m"]}, outputs, **constants))
    a, b = (interp.run(p, {"x": x}) for p in (fixed, loose))
    for name in outputs:
        np.testing.assert_array_equal(a[name], b[name])


def test_f64_constants_stay() -> None:
    raw = net([node("Cast", ["x"], ["d"], to=11), node("Mul", ["d", "w"], ["y"])], {"x": [2]}, ["y"],
              w=np.array([1 / 3, 2 / 3]))  # fmt: skip
    p = read_model(raw)
    assert p.constants[0].data.dtype == np.float64
    assert run(p, x=f32(2)).dtype == np.float64
