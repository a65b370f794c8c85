"""Programs on devices: build a bundle with a C and a WebGPU variant, run every alternate with poisoned memory, compare.

Memory that nobody wrote holds 0xFF bytes, which are NaNs, -1s and impossible bools: a read of it shows in the result.
"""

from __future__ import annotations

import contextlib
import functools
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tang_edge import compiler
from tang_edge.bundle import write as bundle_write
from tang_edge.c_fallback import compile as cc
from tang_edge.c_fallback import host as c_host
from tang_edge.ir import affine, interp, scalar
from tang_edge.ir.tensor import Program
from tang_edge.runtime.load import load
from tang_edge.runtime.session import Model
from tang_edge.schedule.limits import CLASSES

Array = Any
Feeds = Mapping[str, Array]


@functools.cache
def missing(device: str) -> str:
    """The reason why a device cannot be used here, or ""."""
    if device == "c":
        return "" if cc.find_compiler() is not None else "no C compiler"
    from tang_edge.wgsl import gpu

    found, reason = gpu.adapters()
    return "" if found else reason


def c_class() -> str:
    """The best C class of this host."""
    return cc.cpu_classes()[0]


@contextlib.contextmanager
def quick_c() -> Iterator[None]:
    """Compile with -O1: tests run tiny sizes, and most of their time would go into the optimiser."""
    flags = cc.FLAGS
    cc.FLAGS = tuple("-O1" if f == "-O3" else f for f in flags)  # type: ignore[misc]
    try:
        yield
    finally:
        cc.FLAGS = flags  # type: ignore[misc]


@contextlib.contextmanager
def poisoned_allocations() -> Iterator[None]:
    """Host memory of the C device starts as 0xFF bytes, slack and packed weights included."""
    plain = c_host.host_arrays.allocate

    def allocate(size: int, where: str) -> Any:
        memory = plain(size, where)
        memory[:] = 0xFF
        return memory

    c_host.host_arrays.allocate = allocate  # type: ignore[assignment]
    try:
        yield
    finally:
        c_host.host_arrays.allocate = plain  # type: ignore[assignment]


def write_bundle(program: Program, classes: Sequence[str], path: Path) -> list[compiler.Made]:
    """A bundle of an (optimised) program with a variant for each class; no golden vectors."""
    made = [compiler.build_variant(program, CLASSES[c]) for c in classes]
    plan, members = compiler.assemble(program, made)
    constants = ((c.name, np.asarray(c.data)) for c in program.constants)
    bundle_write.write(path, name=program.name, plan=plan, members=members, constants=constants, remember=True)
    return made


class Device:
    """A bundle loaded on a device."""

    def __init__(self, path: Path, device: str, threads: int = 1) -> None:
        with quick_c(), poisoned_allocations():
            self.model: Model = load(path, device=device, threads=threads, trust=True, self_test=False)
        self.device = device

    @property
    def alternates(self) -> int:
        """The greatest number of alternates of a step."""
        return max((len(s.alternates) for s in self.model.steps if hasattr(s, "alternates")), default=1)

    def choose(self, alternate: int) -> None:
        """This alternate for every step (its last one where it has fewer)."""
        for k, s in enumerate(self.model.steps):
            if hasattr(s, "alternates"):
                self.model._engine.choose(k, min(alternate, len(s.alternates) - 1))

    def poison(self) -> None:
        """Fill the memory of the session with 0xFF bytes."""
        worker = self.model._first._worker
        if self.device == "c":
            worker._arena[:] = 0xFF
            return
        for buffer in worker._arena.buffers:
            worker._engine.device.queue.write_buffer(buffer, 0, b"\xff" * buffer.size)

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """The outputs, from memory that holds nothing else."""
        with poisoned_allocations():
            self.model._first._load(self.model._first._checked(feeds))
            self.poison()
            return self.model.run(dict(feeds))

    def first_wrong(self, program: Program, feeds: Feeds) -> str:
        """The first step whose result is wrong, each fed with what the steps before computed: for messages."""
        names = {b.name for b in program.binds()}
        values = interp.run(program, feeds, floats="f64", keep=names)
        for k, s in enumerate(self.model.steps):
            if not hasattr(s, "alternates") or s.name not in values:
                continue
            with poisoned_allocations():
                self.model.run_steps(0, k + 1, dict(feeds))
                got = self.model.read_step(k)
            problem = difference(got, values[s.name], 1e-3)
            if problem:
                bind = next(b for b in program.binds() if b.name == s.name)
                tag = s.alternates[self.model._engine.choice(k)].tag
                return f"step {k} {s.name} ({tag}): {problem}\n  {bind.type} = {bind.expr}"
        return "no step alone"

    def close(self) -> None:
        """Free it."""
        self.model.close()


def difference(got: Array, want: Array, tolerance: float) -> str:
    """ "" or what differs: integers exactly, floats by the greatest error relative to the greatest magnitude."""
    if got.shape != want.shape:
        return f"shape {got.shape}, wanted {want.shape}"
    if want.dtype.kind != "f":
        wrong = np.flatnonzero(np.ravel(got != want))
        if wrong.size == 0:
            return ""
        at = int(wrong[0])
        return f"{wrong.size} of {want.size} differ, first at {at}: {np.ravel(got)[at]}, wanted {np.ravel(want)[at]}"
    got = np.asarray(got, np.float64)
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    finite = np.abs(want[np.isfinite(want)])
    scale = max(float(finite.max(initial=0.0)), 1e-30)
    with np.errstate(invalid="ignore"):
        bad = ~same & ~(np.abs(got - want) <= tolerance * scale)
    if not bad.any():
        return ""
    at = int(np.flatnonzero(np.ravel(bad))[0])
    where = tuple(int(i) for i in np.unravel_index(at, want.shape))
    return f"{int(bad.sum())} of {want.size} differ, first at {where}: {np.ravel(got)[at]}, wanted {np.ravel(want)[at]}"


def tolerance_of(program: Program) -> float:
    """c · eps · sqrt(longest reduction), summed over the depth of the program."""
    total, eps = 1.0, max([t.dtype.eps for t in program.types().values()], default=0.0)
    for b in program.binds():
        for c in scalar.comprehensions(b.expr):
            n = 1
            for a in c.axes:
                n *= max(1, min(4096, affine.bounds(a.extent)[1]))
            total += float(n) ** 0.5
    return 16 * eps * total


def random_feeds(program: Program, sizes: Mapping[str, int], seed: int) -> dict[str, Array]:
    """Inputs of every dtype: normal floats, the full range of small integers, a few thousand of greater ones."""
    rng = np.random.default_rng(seed)
    out: dict[str, Array] = {}
    for i in program.inputs:
        shape = tuple(affine.evaluate(e, sizes) for e in i.type.shape)
        dt = np.dtype(i.type.dtype.numpy)
        if dt.kind == "f":
            out[i.name] = rng.normal(size=shape).astype(dt)
        elif dt.kind == "b":
            out[i.name] = rng.integers(0, 2, shape).astype(dt)
        else:
            lo, hi = max(-3000, np.iinfo(dt).min), min(3000, np.iinfo(dt).max)
            out[i.name] = rng.integers(lo, hi + 1, shape).astype(dt)
    return out


def folder() -> Path:
    """A folder for the bundles of this process."""
    global _FOLDER
    if _FOLDER is None:
        _FOLDER = tempfile.TemporaryDirectory(prefix="tang-edge-devices-")
    return Path(_FOLDER.name)


_FOLDER: tempfile.TemporaryDirectory[str] | None = None
