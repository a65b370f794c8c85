"""Dimensions that a variant reads from a buffer while it runs: the part of the structural check that is about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from tang_edge.bundle import format as fmt
from tang_edge.bundle.checked import At
from tang_edge.bundle.expr import names_of


class Ports(Protocol):
    """Dimensions, inputs and outputs of a plan."""

    @property
    def dims(self) -> tuple[fmt.Dim, ...]:
        """The dimensions."""

    @property
    def inputs(self) -> tuple[fmt.Port, ...]:
        """The inputs."""

    @property
    def outputs(self) -> tuple[fmt.Port, ...]:
        """The outputs."""


def dim_step(at: At, buffers: Mapping[int, fmt.Buffer], ports: Ports, index: int, depth: int) -> fmt.DimStep:
    """The step of a JSON value. Raises BundleError where it is not sound."""
    entry = at.obj("name from")
    if depth:
        at.fail("a dimension is read among the steps at the top only")
    name = entry["name"].one_of(tuple(d.name for d in ports.dims))
    buffer = buffers.get(entry["from"].integer())
    if buffer is None or buffer.dtype not in ("i32", "i64"):
        entry["from"].fail("there is no such buffer of integers")
    return fmt.DimStep(index, name, buffer.id)


def check_measured(at: At, variant: fmt.Variant, ports: Ports) -> None:
    """Inputs and outputs are sized before the run, not by what is read during it. Raises BundleError."""
    names = fmt.measured_dims(variant)
    for port in (*ports.inputs, *ports.outputs):
        found = names & {n for e in port.shape for n in names_of(e)}
        if found:
            at.fail(f"dimension {min(found)!r} is read during the run, but {port.name!r} has it")
