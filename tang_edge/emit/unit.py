"""A kernel as a unit of text: the parts that every dialect's envelope needs, and the structural name.

Two kernels with equal text are one: the name is a hash of the text without names, so pipelines and browser caches are shared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tang_edge.emit.printer import Printer
from tang_edge.emit.syntax import Dialect
from tang_edge.ir import affine
from tang_edge.ir.affine import Dim, Expr
from tang_edge.ir.kernel import Kernel, exprs_of, statements


@dataclass(frozen=True, slots=True)
class Unit:
    """A printed kernel. `params` are what the caller passes, in order: dimensions (atoms), and numbers lifted from the text."""

    kernel: Kernel
    params: tuple[Dim | int, ...]
    lines: tuple[str, ...]
    grid_sizes: tuple[str, ...]
    fills: tuple[tuple[str, object, int], ...]

    def name(self, extra: str = "") -> str:
        """The structural name."""
        sig = ",".join(f"{b.dtype}x{b.lanes}{'w' if b.writable else 'r'}" for b in self.kernel.buffers)
        shared = ",".join(f"{s.dtype}x{s.lanes}:{s.size}" for s in self.kernel.shared)
        grid = ";".join(f"{v.name}<{n}" for v, n in zip(self.kernel.grid, self.grid_sizes, strict=True))
        lanes = ";".join(f"{v.name}<{v.extent}" for v in self.kernel.lanes)
        text = "\n".join((extra, sig, shared, grid, lanes, *self.lines))
        return "k_" + hashlib.sha256(text.encode()).hexdigest()[:12]


class _Lifting(Printer):
    """Prints numbers of two and more in integer expressions as parameters, one for each place: texts of one form are equal."""

    def __init__(self, dialect: Dialect, dims: Mapping[Dim, str]) -> None:
        super().__init__(dialect, dims)
        self.lifted: list[int] = []

    def integer(self, n: int) -> str:
        if n < 2:
            return super().integer(n)
        self.lifted.append(n)
        return f"d{len(self.dims) + len(self.lifted) - 1}"


def unit(kernel: Kernel, dialect: Dialect, lift: bool = False) -> Unit:
    """Print a kernel's body. Dimensions are called d0, d1, ... in the order of their first use.

    With `lift`, sizes are parameters too: slower code, but one text for all sizes, which is what a kernel that runs once wants.
    """
    dims: dict[Dim, str] = {}
    for e in (*(v.extent for v in kernel.grid), *(e for s in statements(kernel.body) for e in exprs_of(s))):
        for d in _dims(e):
            dims.setdefault(d, f"d{len(dims)}")
    p = _Lifting(dialect, dims) if lift else Printer(dialect, dims)
    lines = tuple(p.body(kernel.body))
    grid = tuple(p.expr(v.extent) for v in kernel.grid)
    fills = tuple((d, v, n) for (d, v), n in sorted(p.fills.items(), key=str))
    lifted = p.lifted if isinstance(p, _Lifting) else ()
    return Unit(kernel, (*dims, *lifted), lines, grid, fills)


def _dims(e: Expr) -> Sequence[Dim]:
    return sorted(affine.dims(e), key=lambda d: d.name)


def grid_total(kernel: Kernel) -> Expr:
    """The number of grid iterations."""
    n = affine.const(1)
    for v in kernel.grid:
        n = n * v.extent
    return n
