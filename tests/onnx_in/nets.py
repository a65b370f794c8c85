"""Small ONNX models for tests, and their answers from the interpreter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from tang_edge.ir import interp
from tang_edge.ir.tensor import Program

Array = Any
node = helper.make_node


def info(name: str, shape: Sequence[int | str | None], elem: int = TensorProto.FLOAT) -> Any:
    """A typed name; None is a size without a name."""
    return helper.make_tensor_value_info(name, elem, shape)


def graph(nodes: Sequence[NodeProto], inputs: Sequence[Any], outputs: Sequence[Any], **weights: Array) -> GraphProto:
    """A graph; weights are initialisers."""
    initial = [numpy_helper.from_array(np.asarray(w), name) for name, w in weights.items()]
    return helper.make_graph(list(nodes), "net", list(inputs), list(outputs), initial)


def model(g: GraphProto, opset: int = 17, functions: Sequence[Any] = ()) -> ModelProto:
    """A model around a graph."""
    imports = [helper.make_opsetid("", opset)] + [helper.make_opsetid("mine", 1)] * bool(functions)
    return helper.make_model(g, opset_imports=imports, ir_version=8, functions=list(functions))


def net(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, Sequence[int | str | None]],
    outputs: Sequence[str],
    opset: int = 17,
    elem: int = TensorProto.FLOAT,
    **weights: Array,
) -> bytes:
    """A serialised model with f32 (or `elem`) inputs and untyped outputs."""
    ins = [info(name, shape, elem) for name, shape in inputs.items()]
    outs = [helper.make_empty_tensor_value_info(o) for o in outputs]
    return model(graph(nodes, ins, outs, **weights), opset).SerializeToString()


def run(program: Program, **inputs: Array) -> Array:
    """The first output."""
    return next(iter(interp.run(program, inputs).values()))


def f32(*shape: int) -> Array:
    """0, 1, 2, ... in a shape."""
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
