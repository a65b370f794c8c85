"""Steps and sizes as numbers: grids, parameters, spans, ranges of steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tang_edge.bundle import format as fmt
from tang_edge.bundle import layout
from tang_edge.errors import BundleError
from tang_edge.wgsl import gpu
from tang_edge.wgsl.record import Launch

Steps = Sequence[fmt.AnyStep]


def span(size: layout.Extent) -> int:
    """Bytes from the first to the last element."""
    last = sum((n - 1) * s for n, s in zip(size.shape, size.strides, strict=True))
    return 0 if 0 in size.shape else fmt.storage_bytes(size.dtype, last + 1)


def grid(dispatch: fmt.Dispatch, dims: Mapping[str, int], step: fmt.Step) -> tuple[int, int, int]:
    """The workgroups of a dispatch. Raises BundleError where they are more than WebGPU allows."""
    x, y, z = (layout.evaluate_size(e, dims, f"step {step.name}: grid") for e in dispatch.grid)
    if max(x, y, z) > gpu.MAX_GRID:
        raise BundleError(
            f"a grid of {x} x {y} x {z} workgroups exceeds {gpu.MAX_GRID}",
            where=f"step {step.name}, kernel {dispatch.kernel}",
            remedy="Pack the model again.",
        )
    return x, y, z


def int32(value: int, launch: Launch) -> int:
    """A parameter, which must fit. Raises BundleError."""
    if not -(2**31) <= value < 2**31:
        raise BundleError(f"a parameter is {value}, beyond 32 bits", where=f"kernel {launch.kernel}")
    return value


def within(steps: Steps, first: int, last: int) -> list[fmt.AnyStep]:
    """The steps in the range; an 'if' stays if a child does, with the children in the range; a loop is one step."""
    kept: list[fmt.AnyStep] = []
    for step in steps:
        if isinstance(step, fmt.IfStep):
            then, orelse = within(step.then, first, last), within(step.orelse, first, last)
            if then or orelse:
                kept.append(fmt.IfStep(step.index, step.cond, tuple(then), tuple(orelse), step.end))
        elif (first if not isinstance(step, fmt.DimStep) else 0) <= step.index < last:
            kept.append(step)
    return kept
