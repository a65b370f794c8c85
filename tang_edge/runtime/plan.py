"""From the shapes of the caller's arrays to dimension values, with every check the plan asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tang_edge.bundle import format as fmt
from tang_edge.bundle.expr import Expr, compile_expr, names_of, show
from tang_edge.bundle.layout import Evaluator
from tang_edge.errors import InputError

Shape = tuple[int, ...]
Axis = tuple[int, str, str]  # (axis, input name, dimension name)


class DimSolver:
    """Binds the dimensions of a plan from input shapes.

    A dimension name alone on an axis binds it; extents that are expressions are checked when all are bound.
    """

    def __init__(self, plan: fmt.Plan) -> None:
        self.plan = plan
        measured = {n for v in plan.variants for n in fmt.measured_dims(v)}
        self._start = {d.name: d.max // d.multiple * d.multiple for d in plan.dims if d.name in measured}
        self.names = tuple(d.name for d in plan.dims)
        self._by_name = {d.name: d for d in plan.dims}
        self._checks: list[tuple[str, int, Expr, Evaluator]] = [
            (port.name, axis, e, compile_expr(e))
            for port in plan.inputs
            for axis, e in enumerate(port.shape)
            if not isinstance(e, str)
        ]
        self._constraints = [(c, compile_expr(c.left), compile_expr(c.right)) for c in plan.constraints]

    def solve(self, shapes: Mapping[str, Shape], free: Mapping[str, int] | None = None) -> dict[str, int]:
        """The value of each dimension, in the order of the plan.

        Args:
            shapes: shape of each input that is given (states may be missing).
            free: values for dimensions that no given input binds.

        Raises:
            InputError: an input has the wrong rank or extent, or a value is out of its range.
        """
        dims: dict[str, int] = dict(self._start)  # those that are read during the run begin at their maximum
        bound: dict[str, tuple[str, int]] = {}
        for port in self.plan.inputs:
            if port.name in shapes:
                self._bind(port, shapes[port.name], dims, bound)
        for dim in self.plan.dims:
            if dim.name not in dims:
                dims[dim.name] = self._unbound(dim, free or {})
        self._check_extents(shapes, dims)
        self.check_constraints(dims)
        return {name: dims[name] for name in self.names}

    def _bind(self, port: fmt.Port, shape: Shape, dims: dict[str, int], bound: dict[str, tuple[str, int]]) -> None:
        if len(shape) != len(port.shape):
            raise InputError(
                f"has {len(shape)} axes, the model takes {len(port.shape)}: {describe(port)}",
                where=f"input {port.name!r}",
            )
        for axis, (entry, size) in enumerate(zip(port.shape, shape, strict=True)):
            if not isinstance(entry, str):
                continue
            if entry in dims:
                if dims[entry] != size:
                    other, at = bound[entry]
                    raise InputError(
                        f"is {size}, but {entry!r} is {dims[entry]} by axis {at} of input {other!r}",
                        where=f"input {port.name!r}, axis {axis}",
                    )
                continue
            check_range(self._by_name[entry], size, f"input {port.name!r}, axis {axis}")
            dims[entry] = size
            bound[entry] = (port.name, axis)

    @staticmethod
    def _unbound(dim: fmt.Dim, free: Mapping[str, int]) -> int:
        if dim.name in free:
            check_range(dim, free[dim.name], f"dimension {dim.name!r}")
            return free[dim.name]
        if dim.min == dim.max:
            return dim.min
        raise InputError(
            f"no input that was given has dimension {dim.name!r} alone on an axis, so its value is unknown",
            where=f"dimension {dim.name!r}",
            remedy="Give the state inputs explicitly, or pack the model with this dimension fixed.",
        )

    def _check_extents(self, shapes: Mapping[str, Shape], dims: Mapping[str, int]) -> None:
        for name, axis, expr, value in self._checks:
            if name in shapes and shapes[name][axis] != value(dims):
                reason = f", which is {show(expr)} for {dict(dims)}" if names_of(expr) else ""
                raise InputError(
                    f"is {shapes[name][axis]}, must be {value(dims)}{reason}",
                    where=f"input {name!r}, axis {axis}",
                )

    def check_constraints(self, dims: Mapping[str, int]) -> None:
        """Raise InputError where the dimension values contradict a constraint of the model."""
        for constraint, left, right in self._constraints:
            if left(dims) != right(dims):
                raise InputError(
                    f"{show(constraint.left)} = {left(dims)} must equal "
                    f"{show(constraint.right)} = {right(dims)} ({constraint.why})",
                    where=f"dimensions {dict(dims)}",
                )

    def least(self) -> dict[str, int]:
        """The least legal value of each dimension, constraints aside."""
        return {d.name: fmt.align_up(d.min, d.multiple) for d in self.plan.dims}


def check_range(dim: fmt.Dim, size: int, where: str) -> None:
    """Raise InputError unless ``size`` is a legal value of ``dim``."""
    multiple = f", a multiple of {dim.multiple}" if dim.multiple > 1 else ""
    if not dim.min <= size <= dim.max or size % dim.multiple:
        raise InputError(
            f"is {size}; dimension {dim.name!r} must be in {dim.min}..{dim.max}{multiple}",
            where=where,
            remedy=f"Pack the model with another range (--dim {dim.name}=lo..hi) if you need this size.",
        )


def describe(port: fmt.Port) -> str:
    """``float32 (batch, 3, 224, 224)`` for a port."""
    return f"{fmt.DTYPES[port.dtype].name} ({', '.join(show(e) for e in port.shape)})"


def check_array(port: fmt.Port, value: object) -> npt.NDArray[Any]:
    """``value`` as the array it must be already: NumPy, with the dtype of the port (NaN is legal data).

    Raises:
        InputError: it is something else. Nothing is converted silently.
    """
    dtype = fmt.DTYPES[port.dtype]
    where = f"input {port.name!r}"
    if not isinstance(value, np.ndarray):
        raise InputError(
            f"is a {type(value).__name__}, the model takes a NumPy array: {describe(port)}",
            where=where,
            remedy=f"Pass numpy.asarray(value, dtype=numpy.{dtype.name}).",
        )
    if value.dtype != dtype:
        raise InputError(
            f"has dtype {value.dtype}, the model takes {describe(port)}",
            where=where,
            remedy=f"Convert it on purpose: value.astype(numpy.{dtype.name}).",
        )
    return value
