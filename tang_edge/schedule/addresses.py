"""From tensor coordinates to the linear address in a buffer: storage maps.

A layout is a permutation of a tensor's axes, outermost first: (0, 1, 2, 3) is row-major, (0, 2, 3, 1) keeps axis 1 innermost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tang_edge.ir import affine
from tang_edge.ir.affine import Expr, Opaque, Var
from tang_edge.ir.dtype import DType
from tang_edge.ir.tensor import TensorType

Layout = tuple[int, ...]
SLACK_BYTES = 512  # readable bytes after the last element of every buffer: vector loads may run over the end of a row


@dataclass(frozen=True, slots=True)
class Placed:
    """A tensor in memory: logical shape, strides in elements, the dtype it is stored in."""

    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    dtype: DType

    def address(self, coords: Sequence[Expr]) -> Expr:
        """Σ stride · coordinate, in elements."""
        total = affine.const(0)
        for s, c in zip(self.strides, coords, strict=True):
            total = total + s * c
        return total

    @property
    def size(self) -> Expr:
        """Elements."""
        n = affine.const(1)
        for x in self.shape:
            n = n * x
        return n

    def bytes(self) -> Expr:
        """Bytes of the buffer, slack included, rounded up to 4."""
        return (self.size * self.dtype.bytes + (3 + SLACK_BYTES)) // 4 * 4


def place(t: TensorType, layout: Layout | None = None, stored: DType | None = None) -> Placed:
    """A tensor stored in a layout (row-major when None)."""
    order = layout if layout is not None else tuple(range(len(t.shape)))
    strides = [affine.const(0)] * len(t.shape)
    step = affine.const(1)
    for axis in reversed(order):
        strides[axis] = step
        step = step * t.shape[axis]
    return Placed(t.shape, tuple(strides), stored or t.dtype)


def collapsible(a: Var, b: Var, addresses: Iterable[Expr], others: Iterable[Expr]) -> bool:
    """True when all addresses depend on a and b only through m·a + b, m the extent of b, and nothing else mentions them."""
    if any(v in affine.variables(e) for e in others for v in (a, b)):
        return False
    for e in addresses:
        if any(isinstance(x, Opaque) for x in affine.atoms(e)):
            return False
        ca, cb = affine.linear_coefficient(e, a), affine.linear_coefficient(e, b)
        if ca is None or cb is None or ca is not cb * b.extent:
            return False
    return True
