"""Inputs for a model from the command line: files, images, or seeded random numbers."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tang_edge.bundle import format as fmt
from tang_edge.bundle.expr import compile_expr, names_of
from tang_edge.cli import images, values
from tang_edge.errors import InputError
from tang_edge.runtime.plan import DimSolver, check_array, describe

Array = npt.NDArray[Any]
Feeds = dict[str, Array]
RANDOM = "random"


def files(option: str, given: Iterable[str]) -> dict[str, str]:
    """By input name, the file: from ``name=file`` texts, and from ``file.npz`` alone its arrays by their names."""
    out: dict[str, str] = {}
    single: list[str] = []
    for text in given:
        if "=" in text or not text.lower().endswith(".npz"):
            single.append(text)
            continue
        found = _open_numpy(Path(text), text)
        out.update(dict.fromkeys(found.files, text))
    return out | values.pairs(option, single)


def gather(plan: fmt.Plan, given: Mapping[str, str], sizes: Mapping[str, int], seed: int) -> tuple[Feeds, dict[str, int]]:
    """The feeds and the dimension values.

    Args:
        given: by input name a file (.npy, .npz, an image) or ``random``. Inputs not named are random,
            states are left out.
        sizes: dimension values asked for; others come from the files, else they are the least legal ones.

    Raises:
        InputError: an unknown name, an unreadable file, or an array that the model does not take.
    """
    ports = {p.name: p for p in plan.inputs}
    _check_names(given, ports, "input")
    _check_names(sizes, {d.name: d for d in plan.dims}, "dimension")
    feeds = {n: _load(ports[n], Path(f), sizes) for n, f in given.items() if f != RANDOM}
    dims = dimension_values(plan, feeds, sizes)
    states = {s.input for s in plan.states}
    rng = np.random.Generator(np.random.PCG64(seed))
    for port in plan.inputs:
        if port.name not in feeds and (port.name not in states or port.name in given):
            feeds[port.name] = random_array(port, dims, rng)
    return {p.name: feeds[p.name] for p in plan.inputs if p.name in feeds}, dims


def _check_names(given: Mapping[str, object], known: Mapping[str, object], what: str) -> None:
    for name in given:
        if name not in known:
            names = ", ".join(map(repr, known)) or "none"
            raise InputError(f"the model has no {what} {name!r}", remedy=f"It has: {names}.")


def dimension_values(plan: fmt.Plan, feeds: Mapping[str, Array], sizes: Mapping[str, int]) -> dict[str, int]:
    """A legal value of every dimension: what the arrays say, else what the caller says, else a small one.

    Raises:
        InputError: they contradict each other, or no small value that satisfies the constraints was found.
    """
    solver = DimSolver(plan)
    dims = dict(solver.least())
    fixed = set(sizes)
    dims.update(sizes)
    for port in plan.inputs:
        if port.name in feeds:
            for entry, n in zip(port.shape, feeds[port.name].shape, strict=False):
                if isinstance(entry, str):
                    dims[entry] = n
                    fixed.add(entry)
    dims = _repaired(plan, dims, fixed)
    shapes = {p.name: feeds[p.name].shape if p.name in feeds else shape_of(p, dims) for p in plan.inputs}
    solved = solver.solve(shapes, dims)
    for name, n in sizes.items():
        if solved[name] != n:
            raise InputError(f"--dims says {n}, the inputs say {solved[name]}", where=f"dimension {name!r}")
    return solved


def _repaired(plan: fmt.Plan, dims: dict[str, int], fixed: set[str]) -> dict[str, int]:
    """Dimensions that nobody fixed, grown one at a time until the constraints hold (or no step helps)."""

    def gap(at: Mapping[str, int]) -> int:
        return sum(abs(compile_expr(c.left)(at) - compile_expr(c.right)(at)) for c in plan.constraints)

    for d in plan.dims:
        while d.name not in fixed and gap(dims) and dims[d.name] + d.multiple <= d.max:
            trial = {**dims, d.name: dims[d.name] + d.multiple}
            if gap(trial) > gap(dims):
                break
            dims = trial
    return dims


def shape_of(port: fmt.Port, dims: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of a port in numbers."""
    return tuple(compile_expr(e)(dims) for e in port.shape)


def random_array(port: fmt.Port, dims: Mapping[str, int], rng: np.random.Generator) -> Array:
    """Standard normal floats, integers in 0..3, coin-flip bools."""
    shape, dtype = shape_of(port, dims), fmt.DTYPES[port.dtype]
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    return rng.integers(0, 4, shape).astype(dtype)


def _load(port: fmt.Port, path: Path, sizes: Mapping[str, int]) -> Array:
    where = f"input {port.name!r} from {path}"
    if path.suffix.lower() in (".npy", ".npz"):
        array = _numpy(port, path, where)
    elif path.suffix.lower() in images.SUFFIXES:
        array = images.load(port, path, _known(port, sizes), where)
    else:
        kinds = ", ".join((".npy", ".npz", *images.SUFFIXES))
        raise InputError(
            f"files of type {path.suffix or 'none'!r} are not read",
            where=where,
            remedy=f"Give {kinds} or 'random'.",
        )
    return check_array(port, array)


def _known(port: fmt.Port, sizes: Mapping[str, int]) -> tuple[int | None, ...]:
    """Each axis of a port in numbers where the plan or the caller fixes it."""
    return tuple(compile_expr(e)(sizes) if set(names_of(e)) <= set(sizes) else None for e in port.shape)


def _open_numpy(path: Path, where: str) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror or error})", where=where) from error
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"is not a NumPy file ({error})", where=where) from error


def _numpy(port: fmt.Port, path: Path, where: str) -> Array:
    found = _open_numpy(path, where)
    if isinstance(found, np.ndarray):
        return found
    with found:
        if port.name in found.files:
            return np.asarray(found[port.name])
        if len(found.files) == 1:
            return np.asarray(found[found.files[0]])
        raise InputError(
            f"holds {found.files}, none of that name",
            where=where,
            remedy=f"The model takes {describe(port)}.",
        )
