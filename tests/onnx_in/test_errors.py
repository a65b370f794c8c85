"""Bad files and models: a typed error that says where and what to do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from nets import f32, graph, info, model, net, node, run
from onnx import TensorProto, external_data_helper, helper

from tang_edge.errors import InputError, UnsupportedModel
from tang_edge.ir import interp
from tang_edge.onnx_in import DimRange, import_model, read_model

RELU = [node("Relu", ["x"], ["y"], name="r")]


def refused(source: bytes | str | Path, *words: str, **options: object) -> str:
    with pytest.raises(UnsupportedModel) as e:
        read_model(source, **options)  # type: ignore[arg-type]
    text = str(e.value)
    assert e.value.remedy and all(w in text for w in words), text
    return text


def test_missing_file_and_garbage(tmp_path: Path) -> None:
    refused(tmp_path / "no.onnx", "no.onnx", "cannot be read")
    refused(b"", "not an ONNX model")
    refused(b"\x89PNG\r\n\x1a\n" * 20, "not an ONNX model")


def test_truncated_at_every_place() -> None:
    whole = net([node("Add", ["x", "w"], ["y"])], {"x": ["n", 64]}, ["y"], w=f32(64))
    for cut in range(0, len(whole) - 1, 7):
        try:
            read_model(whole[:cut])
        except UnsupportedModel:
            continue


def test_all_unknown_operators_at_once() -> None:
    nodes = [
        node("Fancy", ["x"], ["a"], name="first", domain="acme"),
        node("Fancy", ["a"], ["b"], name="second", domain="acme"),
        node("Unique", ["b"], ["y"], name="u"),
    ]
    g = graph(nodes, [info("x", [2])], [info("y", [2])])
    text = refused(model(g).SerializeToString(), "acme::Fancy (2: 'first', 'second')", "Unique (1: 'u')")
    assert "2 operators" in text


def test_unneeded_unknown_operator_is_no_matter() -> None:
    nodes = [*RELU, node("Fancy", ["x"], ["z"], domain="acme")]
    assert run(read_model(net(nodes, {"x": [2]}, ["y"])), x=f32(2)).tolist() == [0, 1]


def test_newer_opset() -> None:
    refused(net(RELU, {"x": [2]}, ["y"], opset=9999), "opset 9999")


def test_contradictory_shapes_name_the_node() -> None:
    refused(net([node("Add", ["x", "w"], ["y"], name="sum")], {"x": [2, 4]}, ["y"], w=f32(3)), "Add 'sum'", "3")
    wrong = [node("Conv", ["x", "w"], ["y"], name="c")]
    refused(net(wrong, {"x": [1, 4, 8, 8]}, ["y"], w=f32(2, 3, 3, 3)), "Conv 'c'")
    refused(net(wrong, {"x": [1, 3, 2, 2]}, ["y"], w=f32(2, 3, 5, 5)), "Conv 'c'", "too small")
    many = [node("MatMul", ["x", "w"], ["y"], name="m")]
    refused(net(many, {"x": ["n", 4]}, ["y"], w=f32(5, 2)), "MatMul 'm'")


def test_wrong_ranks_become_typed_errors() -> None:
    refused(net([node("Gemm", ["x", "w"], ["y"], name="g")], {"x": [2, 2, 2]}, ["y"], w=f32(2, 2)), "Gemm 'g'")
    refused(net([node("Transpose", ["x"], ["y"], perm=[0, 2])], {"x": [2, 2]}, ["y"]), "permutation")
    refused(net([node("Softmax", ["x"], ["y"], axis=7)], {"x": [2, 2]}, ["y"]), "axis 7")


def test_nan_weights() -> None:
    raw = net([node("Add", ["x", "w"], ["y"])], {"x": [2]}, ["y"], w=np.array([np.nan, 1], np.float32))
    refused(raw, "tensor 'w'", "NaN")
    loose = read_model(raw, allow_nan=True)
    assert np.isnan(run(loose, x=f32(2))[0]) and not loose.finite_math


def test_infinite_weights_make_mathematics_strict() -> None:
    """They are usual (masks), so they are no error; what is multiplied by them is then computed even where it is padding."""
    nodes = [node("Add", ["x", "w"], ["y"])]
    masked = import_model(net(nodes, {"x": [2]}, ["y"], w=np.array([-np.inf, 1], np.float32)))
    assert not masked.program.finite_math and any(n.startswith("w: holds infinities") for n in masked.notes)
    plain = import_model(net(nodes, {"x": [2]}, ["y"], w=f32(2)))
    assert plain.program.finite_math and plain.notes == ()


def test_element_types_the_ir_lacks() -> None:
    refused(net(RELU, {"x": [2]}, ["y"], elem=TensorProto.BFLOAT16), "input 'x'", "BFLOAT16")
    refused(net(RELU, {"x": [2]}, ["y"], elem=TensorProto.STRING), "input 'x'", "STRING")


def test_unknown_dimension_and_bad_range() -> None:
    raw = net(RELU, {"x": ["n", 2]}, ["y"])
    with pytest.raises(InputError, match=r"no dimension 'm'.*It has n"):
        read_model(raw, dim_ranges={"m": DimRange(1, 2)})
    with pytest.raises(InputError):
        DimRange(5, 4)
    with pytest.raises(InputError):
        DimRange(33, 40, 32)


def test_malformed_graphs() -> None:
    loop = [node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"])]
    refused(net(loop, {"x": [2]}, ["b"]), "cycle")
    refused(net([node("Relu", ["nothing"], ["y"])], {"x": [2]}, ["y"]), "nothing produces")
    refused(net([node("Relu", ["x"], ["z"])], {"x": [2]}, ["y"]), "output 'y'")
    unranked = helper.make_tensor_value_info("x", TensorProto.FLOAT, None)
    g = graph(RELU, [unranked], [info("y", [2])])
    refused(model(g).SerializeToString(), "input 'x'", "no shape")


def test_names_used_twice() -> None:
    twice = graph(RELU, [info("x", [2]), info("x", [2])], [info("y", [2])])
    refused(model(twice).SerializeToString(), "input 'x'", "two inputs")
    out = graph(RELU, [info("x", [2])], [info("y", [2]), info("y", [2])])
    refused(model(out).SerializeToString(), "output 'y'", "two outputs")


def test_constant_index_outside() -> None:
    raw = net([node("Gather", ["x", "i"], ["y"], name="g")], {"x": [3]}, ["y"], i=np.array([7], np.int64))
    refused(raw, "Gather 'g'", "index 7", "axis of 3")


def test_range_without_end() -> None:
    nodes = [node("Range", ["a", "b", "d"], ["r"], name="r"), node("Add", ["x", "r"], ["y"])]
    raw = net(nodes, {"x": [5]}, ["y"], a=np.float32(0), b=np.float32(5), d=np.float32(0))
    refused(raw, "Range 'r'", "step of 0")


def test_branches_within_branches_that_share_result_names() -> None:
    inner = graph([node("Relu", ["x"], ["r"])], [], [info("r", [3])])
    other = graph([node("Abs", ["x"], ["r"])], [], [info("r", [3])])
    for _ in range(3):
        inner = graph([node("If", ["c"], ["r"], then_branch=inner, else_branch=other)], [], [info("r", [3])])
    m = model(graph(list(inner.node), [info("x", [3]), info("c", [], TensorProto.BOOL)], [info("r", [3])]))
    x = np.array([-1.0, 2.0, -3.0], np.float32)
    program = read_model(m.SerializeToString())
    for c, expected in ((True, np.maximum(x, 0)), (False, np.abs(x))):
        assert np.array_equal(interp.run(program, {"x": x, "c": np.array(c)})["r"], expected)


def test_data_dependent_sizes() -> None:
    nodes = [node("Cast", ["x"], ["s"], to=TensorProto.INT64), node("Reshape", ["w", "s"], ["y"], name="r")]
    refused(net(nodes, {"x": [2]}, ["y"], w=f32(4)), "Reshape 'r'", "computed from data")


def external(tmp_path: Path, location: str | None = None) -> Path:
    m = model(graph([node("Add", ["x", "w"], ["y"])], [info("x", [2, 300])], [info("y", [2, 300])], w=f32(300)))
    path = tmp_path / "net.onnx"
    external_data_helper.convert_model_to_external_data(m, location="net.bin", size_threshold=0)
    external_data_helper.write_external_data_tensors(m, str(tmp_path))
    if location is not None:
        for e in m.graph.initializer[0].external_data:
            if e.key == "location":
                e.value = location
    path.write_bytes(m.SerializeToString())
    return path


def test_external_data(tmp_path: Path) -> None:
    path = external(tmp_path)
    np.testing.assert_array_equal(run(read_model(path), x=np.zeros((2, 300), np.float32))[1], f32(300))
    refused(path.read_bytes(), "tensor 'w'", "from its path")
    data = tmp_path / "net.bin"
    data.write_bytes(data.read_bytes()[:100])
    refused(path, "tensor 'w'", "too short")
    data.unlink()
    refused(path, "tensor 'w'", "missing")


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/passwd", "a/../../secret.bin", ""])
def test_external_data_stays_in_the_folder(tmp_path: Path, location: str) -> None:
    (tmp_path / "secret.bin").write_bytes(bytes(1200))
    inner = tmp_path / "model"
    inner.mkdir()
    refused(external(inner, location), "tensor 'w'", "outside")


def test_a_link_out_of_the_folder_is_outside(tmp_path: Path) -> None:
    (tmp_path / "secret.bin").write_bytes(bytes(1200))
    inner = tmp_path / "model"
    inner.mkdir()
    path = external(inner, "link.bin")
    (inner / "link.bin").symlink_to(tmp_path / "secret.bin")
    refused(path, "tensor 'w'", "outside")


def test_a_name_made_twice_is_refused() -> None:
    refused(net([*RELU, node("Abs", ["x"], ["y"])], {"x": [2]}, ["y"]), "two nodes", "'y'")
    g = graph([node("Add", ["x", "w"], ["y"])], [info("x", [2])], [info("y", [2])], w=f32(2))
    g.initializer.append(g.initializer[0])
    refused(model(g).SerializeToString(), "two initialisers", "'w'")
