"""ONNX to tensor programs."""

from tang_edge.onnx_in.dims import DEFAULT_RANGES, DimRange
from tang_edge.onnx_in.reader import Imported, import_model, read_model

__all__ = ["DEFAULT_RANGES", "DimRange", "Imported", "import_model", "read_model"]
