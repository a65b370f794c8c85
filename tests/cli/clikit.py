"""Small ONNX models and broken bundles for the tests of the command line."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner, Result

from tang_edge.bundle import container, verify
from tang_edge.bundle import format as fmt
from tang_edge.bundle.write import write
from tang_edge.cli import app


def call(*arguments: object) -> Result:
    """`tang-edge` with these arguments, in this process."""
    return CliRunner().invoke(app, [str(a) for a in arguments])


def facts(*arguments: object) -> dict:
    """The JSON object of a call that must succeed."""
    result = call(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def refused(*arguments: object, code: int = 1) -> str:
    """The words of a call that must fail with this exit code, without a traceback and in one message."""
    result = call(*arguments)
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    assert result.output.count("error:") == 1, result.output
    return result.output


def _weights(name: str, *shape: int, seed: int = 0) -> onnx.TensorProto:
    data = np.random.default_rng(seed).standard_normal(shape) / np.sqrt(shape[0])
    return numpy_helper.from_array(data.astype(np.float32), name)


def save(path: Path, nodes, inputs, outputs, weights=(), opset: int = 17) -> Path:
    """An ONNX file; `inputs` and `outputs` are (name, shape) of float32, or value infos."""
    ports = [
        [p if not isinstance(p, tuple) else helper.make_tensor_value_info(p[0], TensorProto.FLOAT, p[1]) for p in ports]
        for ports in (inputs, outputs)
    ]
    graph = helper.make_graph(nodes, "test", *ports, list(weights))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("acme", 1)])
    model.ir_version = 8
    onnx.save(model, path)
    return path


def mlp(path: Path) -> Path:
    """x [n, 6] -> Gemm -> Relu -> Gemm -> y [n, 4]."""
    nodes = [
        helper.make_node("Gemm", ["x", "w1"], ["h"], "first"),
        helper.make_node("Relu", ["h"], ["r"], "act"),
        helper.make_node("Gemm", ["r", "w2"], ["y"], "second"),
    ]
    return save(path, nodes, [("x", ["n", 6])], [("y", ["n", 4])], [_weights("w1", 6, 8), _weights("w2", 8, 4, seed=1)])


def picture_net(path: Path, layout: str = "NCHW") -> Path:
    """The mean of each channel of a picture whose size is free."""
    shape = ["b", 3, "h", "w"] if layout == "NCHW" else ["b", "h", "w", 3]
    axes = [2, 3] if layout == "NCHW" else [1, 2]
    node = helper.make_node("ReduceMean", ["image"], ["mean"], "mean", axes=axes, keepdims=0)
    return save(path, [node], [("image", shape)], [("mean", ["b", 3])], opset=13)


def counter(path: Path) -> Path:
    """A recurrent sum: total_out = total_in + x."""
    nodes = [
        helper.make_node("Add", ["x", "total_in"], ["total_out"], "add"),
        helper.make_node("Neg", ["total_out"], ["y"], "neg"),
    ]
    return save(path, nodes, [("x", [3]), ("total_in", [3])], [("total_out", [3]), ("y", [3])])


def branches(path: Path) -> Path:
    """y = 2x where the sum of x is positive, else -x; then a concatenation with x."""
    bodies = {}
    for name, node in {
        "then_branch": helper.make_node("Add", ["x", "x"], ["twice"], "double"),
        "else_branch": helper.make_node("Neg", ["x"], ["minus"], "negate"),
    }.items():
        out = helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, [4])
        bodies[name] = helper.make_graph([node], name, [], [out])
    zero = numpy_helper.from_array(np.zeros((), np.float32), "zero")
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["total"], "total", keepdims=0),
        helper.make_node("Greater", ["total", "zero"], ["positive"], "test"),
        helper.make_node("If", ["positive"], ["y"], "choice", **bodies),
        helper.make_node("Exp", ["x"], ["e"], "exp"),
        helper.make_node("Concat", ["y", "e"], ["z"], "join", axis=0),
    ]
    return save(path, nodes, [("x", [4])], [("z", [8])], [zero])


def unknown(path: Path) -> Path:
    """Two operators that nobody knows."""
    nodes = [
        helper.make_node("Frobnicate", ["x"], ["a"], "one", domain="acme"),
        helper.make_node("Twiddle", ["a"], ["y"], "two", domain="acme"),
    ]
    return save(path, nodes, [("x", [2])], [("y", [2])])


def misfit(path: Path) -> Path:
    """A product of matrices that do not fit."""
    node = helper.make_node("MatMul", ["x", "w"], ["y"], "product")
    return save(path, [node], [("x", [2, 5])], [("y", [2, 4])], [_weights("w", 6, 4)])


def with_nan(path: Path) -> Path:
    """A weight that is NaN."""
    weights = numpy_helper.from_array(np.array([1, np.nan], np.float32), "w")
    return save(path, [helper.make_node("Add", ["x", "w"], ["y"], "add")], [("x", [2])], [("y", [2])], [weights])


# ---------------------------------------------------------------- bundles


def members_of(path: Path) -> dict[str, bytes]:
    """The members of a bundle in order."""
    with zipfile.ZipFile(path) as archive:
        return {i.filename: archive.read(i) for i in archive.infolist()}


def flip(path: Path, out: Path, member: str) -> Path:
    """The bundle with one byte in the middle of a member changed."""
    data = bytearray(path.read_bytes())
    entry = container.read_entries(memoryview(bytes(data)))[member]
    data[entry.start + entry.size // 2] ^= 1
    out.write_bytes(data)
    return out


def newer(path: Path, out: Path) -> Path:
    """The bundle with a manifest of a later major version."""
    members = members_of(path)
    raw = json.dumps(json.loads(members[fmt.MANIFEST]) | {"version": [2, 0]}).encode()
    members |= {fmt.MANIFEST: raw, fmt.MANIFEST_HASH: fmt.sha256(raw).encode()}
    parts, entries, at = [], [], 0
    for name, data in members.items():
        entry = container.place(name, container.crc32(data), len(data), at)
        parts += [container.local_header(entry), data]
        entries.append(entry)
        at = entry.start + entry.size
    out.write_bytes(b"".join([*parts, container.directory(entries)]))
    return out


def edited(path: Path, out: Path, change: Callable[[str, str], str]) -> Path:
    """The bundle packed again with the texts of its kernels changed by `change(member, text)`."""
    members = members_of(path)
    plan = json.loads(members[fmt.PLAN])
    constants = {c.name: c for c in verify.parse_plan(plan).constants}
    from tang_edge.bundle.read import open_bundle

    with open_bundle(path) as bundle:
        arrays = [(name, np.array(bundle.constant(c))) for name, c in constants.items()]
        sha = bundle.manifest.model_sha256
    texts: Mapping[str, str] = {n: change(n, d.decode()) for n, d in members.items() if n.startswith("kernels/")}
    bare = {k: v for k, v in plan.items() if k not in ("constants", "golden")}
    write(out, name="edited", plan=bare, members=texts, constants=arrays, model_sha256=sha, remember=True)
    return out
