"""Self-test vectors: what a model gives for seeded inputs at its smallest sizes, and how near a device has to come."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tang_edge.bundle import write as bundle_write
from tang_edge.errors import UnsupportedModel
from tang_edge.ir import affine, interp
from tang_edge.ir.dtype import Kind
from tang_edge.ir.tensor import Bind, Constraint, Input, Program
from tang_edge.schedule.analysis import main_fold

Array = npt.NDArray[Any]


def random_inputs(inputs: Sequence[Input], sizes: Mapping[str, int], seed: int = 0) -> dict[str, Array]:
    """Seeded inputs: standard normal floats, small non-negative integers, coin-flip bools."""
    rng = np.random.Generator(np.random.PCG64(seed))
    out: dict[str, Array] = {}
    for i in inputs:
        shape = tuple(affine.evaluate(e, sizes) for e in i.type.shape)
        if i.type.dtype.is_float:
            out[i.name] = rng.standard_normal(shape).astype(i.type.dtype.numpy)
        elif i.type.dtype.kind is Kind.BOOL:
            out[i.name] = rng.integers(0, 2, shape).astype(bool)
        else:
            out[i.name] = rng.integers(0, 4, shape).astype(i.type.dtype.numpy)
    return out


def smallest_sizes(program: Program) -> dict[str, int]:
    """The least sizes within the ranges that satisfy every constraint (searched upward, one dimension at a time)."""
    sizes = {d.name: d.lo for d in program.dims}
    for d in program.dims:
        while sizes[d.name] < d.hi and not all(_holds(c, sizes) for c in program.constraints):
            before = sum(_gap(c, sizes) for c in program.constraints)
            trial = {**sizes, d.name: sizes[d.name] + d.multiple}
            if sum(_gap(c, trial) for c in program.constraints) > before:
                break
            sizes = trial
    return sizes


MOST_ELEMENTS = 1 << 31  # of one tensor at its smallest sizes: beyond, no device class can index or hold it


def check_extent(program: Program) -> None:
    """Raises UnsupportedModel, naming the tensor, when a tensor is too large even at the smallest sizes."""
    sizes = smallest_sizes(program)
    for name, t in program.types().items():
        count = 1
        for e in t.shape:
            count *= max(0, affine.evaluate(e, sizes))
        if count > MOST_ELEMENTS:
            remedy = f"Tensors of up to {MOST_ELEMENTS:,} elements are supported; give smaller sizes"
            raise UnsupportedModel(f"has {count:,} elements at the smallest sizes", where=f"tensor '{name}'", remedy=remedy)


def _gap(c: Constraint, sizes: Mapping[str, int]) -> int:
    return abs(affine.evaluate(c.left, sizes) - affine.evaluate(c.right, sizes))


def _holds(c: Constraint, sizes: Mapping[str, int]) -> bool:
    return _gap(c, sizes) == 0


def tolerance(program: Program) -> float:
    """Relative tolerance of a whole model against float64: c · eps · f(reduction length), f = sqrt, summed over the depth.

    Higham, Accuracy and Stability of Numerical Algorithms, section 4.2: the probable error of a sum of n terms grows with
    the square root of n. Errors of successive reductions add up in quadrature at worst linearly; c = 8 leaves room for that.
    """
    total = 0.0
    for b in program.binds():
        fold = main_fold(b)
        n = 1
        for a in fold.axes if fold else ():
            n *= max(1, affine.bounds(a.extent)[0])
        total += math.sqrt(n)
    return max(1e-5, min(2e-3, 8 * 6e-8 * total))


def condition(source: Program, inputs: Mapping[str, Array], exact: Mapping[str, Array], told: interp.Told) -> float:
    """How far rounding of every tensor may move the outputs on these inputs: the greatest |x - e| / (1 + |e|), finite outputs.

    A model may be ill-conditioned at its own test vector (a normalisation of equal numbers): no device can do better there.
    """
    worst = 0.0
    for name, value in interp.run(source, inputs, floats="disturbed", told=told).items():
        x, e = np.asarray(value, np.float64), np.asarray(exact[name], np.float64)
        with np.errstate(invalid="ignore"):
            away = np.abs(x - e) / (1 + np.abs(e))
        worst = max(worst, float(np.max(away[np.isfinite(away)], initial=0.0)))
    return worst


def power_above(x: float) -> float:
    """The least power of two that is not below a positive number: the last bits of a machine's float64 do not show in it."""
    fraction, exponent = math.frexp(x)
    return math.ldexp(1.0, exponent - (fraction == 0.5))


def golden_vectors(source: Program, program: Program, told: interp.Told = interp.untold) -> bundle_write.GoldenVectors:
    """Inputs and float64 results of the unfused program at the smallest sizes, with samples of every step's tensor.

    `told(done, total)` is called while it is computed: the interpreter may take long where NumPy has no BLAS.
    """
    sizes = smallest_sizes(source)
    inputs = random_inputs(source.inputs, sizes)
    names = {b.name for b in program.binds()}
    twice = 2 * len(source.items)
    values = interp.run(source, inputs, floats="f64", keep=names, told=lambda done, _: told(done, twice))
    types = program.types()
    arrays: dict[str, Array] = {f"in/{k}": v for k, v in inputs.items()}
    for name, tensor in program.outputs:
        arrays[f"out/{name}"] = np.asarray(values[name]).astype(types[tensor].dtype.numpy)
    top = {i.name for i in program.items if isinstance(i, Bind)}
    for b in program.binds():
        if b.name in values and b.name in top:
            flat = np.asarray(values[b.name], dtype=np.float64).ravel()
            arrays[f"step/{b.name}"] = flat[bundle_write.sample_indices(flat.size)]
    found = condition(source, inputs, values, lambda done, total: told(total + done, twice))
    # sums of float32 in a bad order move twice as far as one rounding of each tensor does
    rtol = max(tolerance(program), 16 * power_above(found) if found else 0.0)
    return bundle_write.GoldenVectors(sizes, arrays, rtol, rtol)
