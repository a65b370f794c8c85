"""The search behind `bisect`: step by step on the device, against what the interpreter says.

Tolerances. With u = 6e-8 (the unit roundoff of float32) a bind that reduces n elements adds 8·u·√n to the largest tolerance
of the tensors it reads (Higham, Accuracy and Stability of Numerical Algorithms, 4.2), and elements may differ by that times
the largest magnitude in their tensor. Integers and booleans may differ by 1 in at most 1% of the elements, since a float
before them may lie near a tie.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt

from tang_edge.bundle import format as fmt
from tang_edge.bundle.read import open_bundle
from tang_edge.cli.console import Stage
from tang_edge.errors import InputError
from tang_edge.ir import affine, interp, scalar
from tang_edge.ir.interp_contract import aligned
from tang_edge.ir.interp_eval import Evaluator
from tang_edge.ir.tensor import Bind, If, Program, walk
from tang_edge.onnx_in import DimRange, Imported, import_model
from tang_edge.rewrite.pipeline import optimize
from tang_edge.runtime import Model

Array = npt.NDArray[Any]
UNIT = 6e-8
ROUNDING = 8.0
LEAST = 1e-6  # some functions (exp, tanh) are a few units off on their own
TIES = 0.01  # share of integers that may be off by one


@dataclass(frozen=True, slots=True)
class Finding:
    """A step compared with the interpreter; `tolerance` is None where it could not be (`why`).

    ratio   largest error over its tolerance
    worst   coordinates of that element, with its value on the device and in the interpreter
    wrong   how many of the `count` elements are off by more than the tolerance
    """

    step: int
    name: str
    origin: tuple[str, ...]
    kernels: tuple[str, ...]
    dtype: str = ""
    shape: tuple[int, ...] = ()
    tolerance: float | None = None
    ratio: float = 0.0
    worst: tuple[int, ...] = ()
    have: float = 0.0
    wanted: float = 0.0
    wrong: int = 0
    count: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """All findings in order, the first that departs, and whose fault it seems to be."""

    findings: tuple[Finding, ...]
    first: Finding | None
    fault: str = ""


class Reference:
    """What the interpreter says of every tensor of the optimised program, in float64."""

    def __init__(
        self,
        bundle: str | PathLike[str],
        model: str | PathLike[str],
        plan: fmt.Plan,
        inputs: Mapping[str, Array],
        sizes: Mapping[str, int],
        allow_nan: bool,
        progress: Stage,
    ) -> None:
        progress("import and rewrite", 0, 1)
        imported = _imported(model, plan, allow_nan)
        _check_same(bundle, imported)
        self.sizes = dict(sizes)
        self.source, self.inputs = imported.program, _with_states(imported.program, inputs, sizes)
        self.program = optimize(self.source)
        self.binds = {b.name: b for b in self.program.binds()}
        progress("interpret the model as read", 0, 1)
        self.unfused = interp.run(self.source, self.inputs, floats="f64", keep=_Everything())
        self._rewritten: dict[str, Array] | None = None
        self._tolerances = tolerances(self.program)

    def value(self, name: str) -> Array | None:
        """The tensor as the unfused program has it, else as the optimised one has it."""
        bind = self.binds.get(name)
        # an output that shares its tensor with another is copied at the end, under its name with a mark
        tensor = bind.store.tensor if bind is not None and bind.store else name.removesuffix("|out")
        found = self.unfused.get(tensor)
        found = found if found is not None else self.rewritten.get(tensor)
        return found if found is None or bind is None or bind.store is None else _region(bind, found, self.sizes)

    @property
    def rewritten(self) -> dict[str, Array]:
        """Every tensor of the optimised program."""
        if self._rewritten is None:
            self._rewritten = interp.run(self.program, self.inputs, floats="f64", keep=_Everything())
        return self._rewritten

    def tolerance(self, name: str) -> float:
        """Relative to the largest magnitude in the tensor."""
        return self._tolerances.get(name, LEAST)


def _region(bind: Bind, tensor: Array, sizes: Mapping[str, int]) -> Array:
    """What a bind stores into a part of a tensor, read back from the whole of it."""
    assert bind.store is not None
    points = Evaluator({}, sizes, True, bind.axes)
    shape = [points.size(a) for a in bind.axes]
    coords = (aligned(points.integer(e), bind.axes) for e in bind.store.coords)
    return np.asarray(tensor[tuple(np.broadcast_to(c, shape) for c in coords)])


class _Everything:
    """A container that holds every name."""

    def __contains__(self, name: object) -> bool:
        return True


def _check_same(bundle: str | PathLike[str], imported: Imported) -> None:
    with open_bundle(bundle) as opened:
        packed = opened.manifest.model_sha256
    if packed and packed != imported.model_sha256:
        raise InputError(
            "the bundle was packed from another model file",
            where=str(bundle),
            remedy="Give the ONNX file that it was packed from (inspect shows its SHA-256), or pack again.",
        )


def _imported(model: str | PathLike[str], plan: fmt.Plan, allow_nan: bool) -> Imported:
    """The model with the ranges of the bundle; dimensions that the bundle has not were fixed when it was packed."""
    free = import_model(model, allow_nan=allow_nan)
    ranges = {d.name: DimRange(d.min, d.max, d.multiple) for d in plan.dims if d.name in free.ranges}
    ports = {p.name: p for p in plan.inputs}
    for i in free.program.inputs:
        for e, entry in zip(i.type.shape, ports[i.name].shape if i.name in ports else (), strict=False):
            found = sorted(affine.dims(e), key=lambda d: d.name)
            if isinstance(entry, int) and len(found) == 1 and found[0].name not in ranges:
                ranges[found[0].name] = DimRange(entry, entry)
    same = all(str(free.ranges[n]) == str(r) for n, r in ranges.items())
    return free if same else import_model(model, dim_ranges=ranges, allow_nan=allow_nan)


def _with_states(program: Program, inputs: Mapping[str, Array], sizes: Mapping[str, int]) -> dict[str, Array]:
    """The inputs, and zeros for states that were left out, as a new session has them."""
    out = dict(inputs)
    for i in program.inputs:
        if i.name not in out:
            shape = [affine.evaluate(e, sizes) for e in i.type.shape]
            out[i.name] = np.zeros(shape, i.type.dtype.numpy)
    return out


def tolerances(program: Program) -> dict[str, float]:
    """Of every bind, the relative tolerance (see the head of this file)."""
    out: dict[str, float] = {}
    for b in program.binds():
        read = max((out.get(r.tensor, 0.0) for r in scalar.reads(b.expr)), default=0.0)
        total = read + ROUNDING * UNIT * _terms(b) ** 0.5
        tensor = b.store.tensor if b.store else b.name
        out[b.name] = max(total, LEAST)
        out[tensor] = max(out.get(tensor, 0.0), total)
    return out


def _terms(b: Bind) -> float:
    """Elements that go into one element of a bind, at the greatest sizes."""
    total = 1.0
    for c in scalar.comprehensions(b.expr):
        n = 1.0
        for a in c.axes:
            n *= max(1, affine.bounds(a.extent)[1])
        total += n
    return total


def search(
    model: Model, inputs: Mapping[str, Array], reference: Reference, slack: float, every: bool, progress: Stage
) -> Verdict:
    """Run the steps one by one and compare; stops at the first departure unless `every`."""
    findings: list[Finding] = []
    first: Finding | None = None
    model.run_steps(0, 0, inputs)
    skipped = _not_taken(model.steps, reference)
    for index, step in enumerate(model.steps):
        progress("compare", index, len(model.steps))
        model.run_steps(index, index + 1)
        if not isinstance(step, fmt.Step) or index in skipped:
            continue
        found = _compare(step, model.read_step(index), reference, slack)
        findings.append(found)
        if found.ratio > 1 and first is None:
            first = found
            if not every:
                break
    return Verdict(tuple(findings), first, _fault(first, reference) if first else "")


def _not_taken(steps: Sequence[fmt.AnyStep], reference: Reference) -> set[int]:
    """Indices of the steps in branches that the interpreter did not take (both branches may bind the same names)."""
    conditions = [i.cond for i in walk(reference.program.items) if isinstance(i, If)]
    choices = [s for s in steps if isinstance(s, fmt.IfStep)]
    out: set[int] = set()
    for s, cond in zip(choices, conditions, strict=True):
        value = None if s.index in out else reference.value(cond)
        if value is not None:
            idle = fmt.flatten(s.orelse if bool(value.reshape(-1)[0]) else s.then)
            first = s.index + 1 + (len(fmt.flatten(s.then)) if idle and bool(value.reshape(-1)[0]) else 0)
            out |= set(range(first, first + len(idle)))
        elif s.index in out:
            out |= set(range(s.index, s.end))
    return out


def _in_loops(steps: Sequence[fmt.AnyStep]) -> set[int]:
    """Indices of the steps in loops: a loop runs as a whole, and what reads its results is compared."""
    loops = [s for s in steps if isinstance(s, fmt.LoopStep)]
    return {k for s in loops for k in range(s.index + 1, s.end)}


def _compare(step: fmt.Step, have: Array, reference: Reference, slack: float) -> Finding:
    kernels = tuple(dict.fromkeys(d.kernel for d in step.alternates[0].dispatches))
    head = (step.index, step.name, step.origin, kernels, str(have.dtype), have.shape)
    wanted = reference.value(step.name)
    if wanted is None:
        return Finding(*head, why="the interpreter has no tensor of that name")
    if wanted.shape != have.shape:
        return Finding(*head, why=f"the interpreter's has another shape, {list(wanted.shape)}")
    if not have.size:
        return Finding(*head, tolerance=0.0)
    bind = reference.binds.get(step.name)
    exact = wanted.dtype.kind in "iub" and (bind is None or not bind.expr.dtype.is_float)
    a, b = np.asarray(have, np.float64), np.asarray(wanted, np.float64)
    if have.dtype.kind in "iu" and wanted.dtype.kind == "b":
        a = (a != 0).astype(np.float64)
    tolerance = slack * (1.0 if exact else _absolute(b, reference.tolerance(step.name)))
    error = _error(a, b)
    at = int(np.argmax(error))
    wrong = int(np.count_nonzero(error > (0 if exact else tolerance)))
    ratio = float(error.flat[at] / tolerance) if tolerance else float(error.flat[at] > 0) * 2
    if exact and wrong > TIES * have.size:
        ratio = max(ratio, 1.0 + wrong / have.size)
    worst = tuple(int(k) for k in np.unravel_index(at, have.shape))
    return Finding(*head, tolerance, ratio, worst, float(a.flat[at]), float(b.flat[at]), wrong, have.size)


def _absolute(wanted: Array, relative: float) -> float:
    finite = np.abs(wanted[np.isfinite(wanted)])
    return relative * max(float(finite.max(initial=0.0)), 1e-30)


def _error(a: Array, b: Array) -> Array:
    """Absolute differences; infinite where one is not finite and the other is something else."""
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        difference = np.abs(a - b)
    difference = np.where(np.isnan(difference), np.inf, difference)
    return np.asarray(np.where(same, 0.0, difference))


def _fault(f: Finding, reference: Reference) -> str:
    """Where to look: the rewriter, when the interpreter disagrees with itself over it; else what comes after."""
    unfused, rewritten = reference.unfused.get(f.name), reference.rewritten.get(f.name)
    if unfused is None or rewritten is None:
        return "the model as read has no such tensor to compare with: rewriting, the schedule, the printer or the driver"
    a, b = np.asarray(rewritten, np.float64), np.asarray(unfused, np.float64)
    if a.shape != b.shape or _error(a, b).max(initial=0.0) > _absolute(b, reference.tolerance(f.name)):
        return "rewriting: the optimised program departs in the interpreter too ('explain --bind' shows the passes)"
    return "the schedule, the printer or the driver: the optimised program agrees in the interpreter"
