"""Element types. Storage type and arithmetic type are separate: a tensor is stored in one, an expression computes in one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np
import numpy.typing as npt


class Kind(Enum):
    """The family of a dtype."""

    FLOAT = "f"
    SIGNED = "i"
    UNSIGNED = "u"
    BOOL = "b"


@dataclass(frozen=True, slots=True)
class DType:
    """An element type: its family, its width in bits and the NumPy type that holds it on the host."""

    name: str
    kind: Kind
    bits: int
    numpy: npt.DTypeLike

    @property
    def is_float(self) -> bool:
        """True for f16, f32 and f64."""
        return self.kind is Kind.FLOAT

    @property
    def is_int(self) -> bool:
        """True for signed and unsigned integers (bool excluded)."""
        return self.kind in (Kind.SIGNED, Kind.UNSIGNED)

    @property
    def bytes(self) -> int:
        """Bytes an element takes on the host (bool takes one)."""
        return max(1, self.bits // 8)

    @property
    def eps(self) -> float:
        """Unit round-off of a float type (0 for integers): half the gap between 1 and the next number."""
        return float(np.finfo(np.dtype(self.numpy)).eps) / 2 if self.is_float else 0.0

    def limits(self) -> tuple[int, int]:
        """The least and the greatest value of an integer or bool type."""
        if self.kind is Kind.BOOL:
            return 0, 1
        if self.kind is Kind.UNSIGNED:
            return 0, (1 << self.bits) - 1
        return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__


f16: Final = DType("f16", Kind.FLOAT, 16, np.float16)
f32: Final = DType("f32", Kind.FLOAT, 32, np.float32)
f64: Final = DType("f64", Kind.FLOAT, 64, np.float64)
i8: Final = DType("i8", Kind.SIGNED, 8, np.int8)
i16: Final = DType("i16", Kind.SIGNED, 16, np.int16)
i32: Final = DType("i32", Kind.SIGNED, 32, np.int32)
i64: Final = DType("i64", Kind.SIGNED, 64, np.int64)
u8: Final = DType("u8", Kind.UNSIGNED, 8, np.uint8)
u16: Final = DType("u16", Kind.UNSIGNED, 16, np.uint16)
u32: Final = DType("u32", Kind.UNSIGNED, 32, np.uint32)
u64: Final = DType("u64", Kind.UNSIGNED, 64, np.uint64)
boolean: Final = DType("bool", Kind.BOOL, 1, np.bool_)

ALL: Final = (f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, boolean)
BY_NAME: Final[dict[str, DType]] = {d.name: d for d in ALL}


def from_numpy(dtype: npt.DTypeLike) -> DType:
    """The dtype that a NumPy type is stored as; raises KeyError for types that the IR does not know."""
    wanted = np.dtype(dtype)
    for d in ALL:
        if np.dtype(d.numpy) == wanted:
            return d
    raise KeyError(str(wanted))
