"""The elements of ONNX tensors: inline, raw, or in external files inside the model's own folder."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from tang_edge.errors import UnsupportedModel
from tang_edge.onnx_in import proto as onnx
from tang_edge.onnx_in.proto import TensorProto
from tang_edge.onnx_in.values import ONNX_DTYPES, Array, onnx_type_name


def array_of(proto: TensorProto, folder: str | None, allow_nan: bool) -> Array:
    """The elements of a tensor. Raises UnsupportedModel for unknown types, missing external data, and NaN."""
    where = f"tensor '{proto.name}'"
    if proto.data_type not in ONNX_DTYPES:
        kind = onnx_type_name(proto.data_type)
        raise UnsupportedModel(f"element type {kind}", where=where, remedy="Export with float, integer or bool weights")
    external = proto.data_location == TensorProto.EXTERNAL
    try:
        data = _external(proto, folder, where) if external else onnx.array(proto, ONNX_DTYPES[proto.data_type].numpy)
    except (ValueError, TypeError) as e:
        raise UnsupportedModel(
            f"its data do not fit its shape: {e}", where=where, remedy="The file is damaged: export it again"
        ) from e
    if data.dtype.kind == "f" and not allow_nan and np.isnan(data).any():
        raise UnsupportedModel("holds NaN", where=where, remedy="Check the training, or allow NaN explicitly (allow_nan)")
    return np.asarray(data)


def _external(proto: TensorProto, folder: str | None, where: str) -> Array:
    fields = {e.key: e.value for e in proto.external_data}
    location = fields.get("location", "")
    if folder is None:
        raise UnsupportedModel(
            f"its data are in the file {location!r}",
            where=where,
            remedy="Read the model from its path instead of from bytes",
        )
    root = Path(folder).resolve()
    path = (root / location).resolve()
    if not location or Path(location).is_absolute() or not path.is_relative_to(root):
        raise UnsupportedModel(
            f"its data are in {location!r}, outside the model's folder",
            where=where,
            remedy="Keep external data beside the model",
        )
    if not path.is_file():
        raise UnsupportedModel(f"its data file {location!r} is missing", where=where, remedy="Copy it beside the model")
    dt = np.dtype(ONNX_DTYPES[proto.data_type].numpy).newbyteorder("<")
    count = math.prod(proto.dims)
    offset = _integer(fields.get("offset", "0"), where)
    length = _integer(fields.get("length", str(count * dt.itemsize)), where)
    available = path.stat().st_size - offset
    if length != count * dt.itemsize or length > available:
        raise UnsupportedModel(
            f"its data file {location!r} is too short: {count * dt.itemsize} bytes are needed at {offset}",
            where=where,
            remedy="The file is truncated: copy it again",
        )
    data: Array = np.fromfile(path, dtype=dt, count=count, offset=offset)
    return data.reshape(tuple(proto.dims)).astype(ONNX_DTYPES[proto.data_type].numpy)


def _integer(text: str, where: str) -> int:
    if not text.isdigit():
        raise UnsupportedModel(f"external data position {text!r}", where=where, remedy="Export the model again")
    return int(text)
