"""What is used of the package onnx: its messages, its operator schemas, and the inliner of functions.

One place, because the package as a whole needs `ml_dtypes`, for element types that no model here may have, and there is no such
package for WebAssembly. Without it the messages and the compiled part are taken from the package alone.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

if "onnx" not in sys.modules and importlib.util.find_spec("ml_dtypes") is None:
    _spec = importlib.util.find_spec("onnx")
    if _spec is None:
        raise ModuleNotFoundError("No module named 'onnx'", name="onnx")
    sys.modules["onnx"] = importlib.util.module_from_spec(_spec)  # the folder, without running its __init__

from onnx.onnx_cpp2py_export import checker, defs, inliner
from onnx.onnx_ml_pb2 import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
)

OpSchema = defs.OpSchema
SchemaError = defs.SchemaError
InvalidModel = checker.ValidationError

__all__ = [
    "AttributeProto",
    "FunctionProto",
    "GraphProto",
    "InvalidModel",
    "ModelProto",
    "NodeProto",
    "OpSchema",
    "SchemaError",
    "TensorProto",
    "TypeProto",
    "ValueInfoProto",
    "array",
    "attribute_value",
    "inlined",
    "newest_opset",
    "schema",
]


def newest_opset() -> int:
    """The newest version of ONNX's own operators that is known."""
    return int(defs.schema_version_map()[""][1])


def schema(op: str, domain: str, opset: int) -> OpSchema | None:
    """The definition of an operator at an opset, or None."""
    if not defs.has_schema(op, domain):
        return None
    try:
        return defs.get_schema(op, opset, domain)
    except SchemaError:
        return None


def inlined(model: ModelProto) -> ModelProto:
    """The model with its own functions inlined. Raises RuntimeError, ValueError or InvalidModel."""
    out = ModelProto()
    out.ParseFromString(inliner.inline_local_functions(model.SerializeToString(), False))
    return out


_PLAIN = {
    AttributeProto.FLOAT: "f",
    AttributeProto.INT: "i",
    AttributeProto.STRING: "s",
    AttributeProto.TENSOR: "t",
    AttributeProto.SPARSE_TENSOR: "sparse_tensor",
    AttributeProto.GRAPH: "g",
    AttributeProto.TYPE_PROTO: "tp",
}
_REPEATED = {
    AttributeProto.FLOATS: "floats",
    AttributeProto.INTS: "ints",
    AttributeProto.STRINGS: "strings",
    AttributeProto.TENSORS: "tensors",
    AttributeProto.SPARSE_TENSORS: "sparse_tensors",
    AttributeProto.GRAPHS: "graphs",
    AttributeProto.TYPE_PROTOS: "type_protos",
}


def attribute_value(a: AttributeProto) -> Any:
    """The value of an attribute. Raises ValueError for a reference to a function's attribute and for an unknown type."""
    if a.ref_attr_name:
        raise ValueError(f"attribute '{a.name}' refers to '{a.ref_attr_name}' of a function")
    if a.type in _PLAIN:
        return getattr(a, _PLAIN[a.type])
    if a.type in _REPEATED:
        return list(getattr(a, _REPEATED[a.type]))
    if a.type == AttributeProto.UNDEFINED:
        return None
    raise ValueError(f"attribute '{a.name}' has the unknown type {a.type}")


# The field of a message that holds elements which are not raw, and the type that field has.
_FIELDS: dict[int, tuple[str, str]] = {
    TensorProto.FLOAT: ("float_data", "f4"),
    TensorProto.DOUBLE: ("double_data", "f8"),
    TensorProto.INT64: ("int64_data", "i8"),
    TensorProto.UINT32: ("uint64_data", "u8"),
    TensorProto.UINT64: ("uint64_data", "u8"),
}


def array(proto: TensorProto, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """The elements that a message holds itself; raw ones are not copied. Raises ValueError when they do not fit its shape."""
    wanted = np.dtype(dtype)
    shape = tuple(proto.dims)
    if proto.HasField("segment"):
        raise ValueError("a tensor in segments")
    if proto.HasField("raw_data"):
        return np.frombuffer(proto.raw_data, wanted.newbyteorder("<")).astype(wanted, copy=False).reshape(shape)
    field, held = _FIELDS.get(proto.data_type, ("int32_data", "i4"))
    data = np.array(getattr(proto, field), held)
    if proto.data_type == TensorProto.FLOAT16:
        data = data.astype(np.uint16).view(np.float16)
    return data.astype(wanted, copy=False).reshape(shape)
