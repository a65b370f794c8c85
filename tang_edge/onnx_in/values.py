"""Values of a graph while it is read: tensors, constants, and small integer tensors known as expressions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tang_edge.ir import affine, dtype
from tang_edge.ir.affine import Expr
from tang_edge.ir.dtype import DType
from tang_edge.onnx_in.proto import TensorProto

Array = npt.NDArray[Any]

# How many elements a tensor may have to be computed while the model is read.
FOLD_LIMIT: Final = 4096

ONNX_DTYPES: Final[dict[int, DType]] = {
    TensorProto.FLOAT: dtype.f32,
    TensorProto.UINT8: dtype.u8,
    TensorProto.INT8: dtype.i8,
    TensorProto.UINT16: dtype.u16,
    TensorProto.INT16: dtype.i16,
    TensorProto.INT32: dtype.i32,
    TensorProto.INT64: dtype.i64,
    TensorProto.BOOL: dtype.boolean,
    TensorProto.FLOAT16: dtype.f16,
    TensorProto.DOUBLE: dtype.f64,
    TensorProto.UINT32: dtype.u32,
    TensorProto.UINT64: dtype.u64,
}


def onnx_type_name(elem_type: int) -> str:
    """The ONNX name of an element type, e.g. BFLOAT16."""
    known = {int(v): str(k) for k, v in TensorProto.DataType.items()}
    return known.get(elem_type, str(elem_type))


@dataclass(eq=False)
class Value:
    """What an ONNX name stands for.

    name    the ONNX name; the tensor of the program gets it too, when there is one
    known   its elements, where they are known while the model is read: an array of its dtype (a constant), or
            an object array of ints and expressions over dimensions (shape arithmetic)
    tensor  the program's tensor that holds it, once something on the device reads it
    """

    name: str
    dtype: DType
    shape: tuple[Expr, ...]
    known: Array | None = None
    tensor: str | None = None

    @property
    def rank(self) -> int:
        """How many axes it has."""
        return len(self.shape)

    @property
    def data(self) -> Array | None:
        """Its elements where they are constants, else None."""
        return None if self.known is None or self.known.dtype == object else self.known

    def __str__(self) -> str:
        return f"'{self.name}' {self.dtype}[{', '.join(map(str, self.shape))}]"


def constant(name: str, data: Array) -> Value:
    """A value whose elements are constants."""
    return Value(name, dtype.from_numpy(data.dtype), tuple(map(affine.const, data.shape)), data)


def known(name: str, dt: DType, array: Array) -> Value:
    """A value known while the model is read: an object array of constants becomes an array of the dtype."""
    shape = tuple(map(affine.const, array.shape))
    if array.dtype == object:
        plain = [e.constant if isinstance(e, Expr) else e for e in array.ravel().tolist()]
        if any(e is None for e in plain):
            return Value(name, dt, shape, array)
        array = np.array(plain, dtype=object).reshape(array.shape)
        if dt.is_int:  # two's complement, as the device would have it
            lo, hi = dt.limits()
            array = np.asarray((array - lo) % (hi - lo + 1) + lo, dtype=object)
    return Value(name, dt, shape, array.astype(dt.numpy))


def as_objects(array: Array) -> Array:
    """The same elements as Python numbers and expressions."""
    return array if array.dtype == object else array.astype(object)


def expr_of(element: Any) -> Expr:
    """An integer element of a known value as an expression."""
    return element if isinstance(element, Expr) else affine.const(int(element))
