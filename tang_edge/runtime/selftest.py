"""The self-test: golden vectors on the device, and the demotion of steps that fail them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tang_edge.bundle import format as fmt
from tang_edge.bundle.read import Bundle
from tang_edge.errors import BundleError, DeviceError
from tang_edge.runtime.device import DeviceLost, Engine, KernelRefused
from tang_edge.runtime.host_arrays import Array
from tang_edge.runtime.plan import DimSolver
from tang_edge.runtime.report import Demotion, SelfTest
from tang_edge.runtime.session import Session

RUNS = 3
SAMPLES = 256


@dataclass(frozen=True, slots=True)
class _Failure:
    """What went wrong: in words, and whether the answers differed between equal runs."""

    why: str
    erratic: bool


@dataclass(frozen=True, slots=True)
class _Vectors:
    golden: fmt.Golden
    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]
    samples: Mapping[str, Array]


def run(bundle: Bundle, engine: Engine, *, full: bool) -> tuple[SelfTest, tuple[Demotion, ...]]:
    """Run the golden vectors (the first only, unless ``full``), demoting steps until they pass.

    Raises:
        DeviceError: a step fails and has no alternate left.
    """
    vectors = [_load(bundle, g) for g in bundle.plan.golden]
    if not full:
        vectors = vectors[:1]
    demotions: list[Demotion] = []
    worst = 0.0
    for case in vectors:
        while True:
            failure, error = _try(engine, bundle.plan, case)
            if failure is None:
                worst = max(worst, error)
                break
            demotions += _demote(engine, bundle.plan, case, failure)
    if not vectors:
        return SelfTest("skipped: the bundle holds no golden vectors"), ()
    outcome = "passed after demotions" if demotions else "passed"
    return SelfTest(outcome, len(vectors), RUNS, worst), tuple(demotions)


def _load(bundle: Bundle, golden: fmt.Golden) -> _Vectors:
    arrays = bundle.tensors(golden.file)
    inputs, outputs = {}, {}
    for port in bundle.plan.inputs:
        if f"in/{port.name}" not in arrays:
            raise BundleError(f"lacks the input {port.name!r}", where=golden.file)
        inputs[port.name] = _as_port(arrays[f"in/{port.name}"], port, golden.file)
    for port in bundle.plan.outputs:
        if f"out/{port.name}" not in arrays:
            raise BundleError(f"lacks the output {port.name!r}", where=golden.file)
        outputs[port.name] = arrays[f"out/{port.name}"]
    samples = {k.removeprefix("step/"): v for k, v in arrays.items() if k.startswith("step/")}
    return _Vectors(golden, inputs, outputs, samples)


def _as_port(array: Array, port: fmt.Port, where: str) -> Array:
    if array.dtype != fmt.DTYPES[port.dtype]:
        raise BundleError(f"the input {port.name!r} has dtype {array.dtype}", where=where)
    return array


def _session(engine: Engine, plan: fmt.Plan) -> Session:
    return Session(engine, DimSolver(plan))


def _try(engine: Engine, plan: fmt.Plan, case: _Vectors) -> tuple[_Failure | KernelRefused | None, float]:
    """Three runs: the failure (None where all is well), and the largest error over its tolerance."""
    worst = 0.0
    first: dict[str, Array] | None = None
    with _session(engine, plan) as session:
        for _ in range(RUNS):
            try:
                result = session.run(case.inputs)
            except KernelRefused as error:
                return error, worst
            if first is None:
                first = result
                for name, wanted in case.outputs.items():
                    error_ratio = ratio(result[name], wanted, case.golden)
                    if error_ratio > 1:
                        return _Failure(f"output {name!r} is off by {error_ratio:.3g} tolerances", False), worst
                    worst = max(worst, error_ratio)
            elif any(result[n].tobytes() != first[n].tobytes() for n in first):
                return _Failure("equal runs gave different bits", True), worst
    return None, worst


def ratio(have: Array, wanted: Array, golden: fmt.Golden) -> float:
    """The largest error over its tolerance; infinite where shapes, NaN or infinities differ.

    Integers and booleans must be equal.
    """
    if have.shape != wanted.shape:
        return float("inf")
    if not have.size:
        return 0.0
    exact = have.dtype.kind in "iub" and wanted.dtype.kind in "iub"
    if exact:
        return 0.0 if np.array_equal(have, wanted) else float("inf")
    a, b = have.astype(np.float64), wanted.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return float("inf")
    gap = np.abs(a[finite] - b[finite])
    room = golden.atol + golden.rtol * np.abs(b[finite])
    bad = gap[room == 0]
    ratios = gap[room > 0] / room[room > 0]
    return float("inf") if bad.any() else float(ratios.max(initial=0.0))


def _demote(engine: Engine, plan: fmt.Plan, case: _Vectors, failure: _Failure | KernelRefused) -> list[Demotion]:
    """Move the step at fault to its next alternate; where no single one is at fault, all to their last."""
    why = failure.why if isinstance(failure, _Failure) else failure.message
    if isinstance(failure, KernelRefused):
        if failure.step < 0:
            raise failure
        return [_next(engine, failure.step, why)]
    found = _first_departing(engine, plan, case, failure)
    if found is not None:
        return [_next(engine, found, why)]
    demoted = []
    for step in fmt.flatten(engine.variant.steps):
        if isinstance(step, fmt.Step) and engine.choice(step.index) < len(step.alternates) - 1:
            demoted.append(_use(engine, step, len(step.alternates) - 1, f"{why}; no single step departs"))
    if not demoted:
        raise DeviceError(
            f"the self-test failed: {why}, and no step departs from its golden sample",
            where=f"{engine.adapter}, variant {engine.variant.id}",
            remedy="Choose another device and report this.",
        )
    return demoted


def _next(engine: Engine, index: int, why: str) -> Demotion:
    step = fmt.flatten(engine.variant.steps)[index]
    assert isinstance(step, fmt.Step)
    current = engine.choice(index)
    if current + 1 >= len(step.alternates):
        tried = ", ".join(a.tag for a in step.alternates)
        raise DeviceError(
            f"the self-test failed: {why}. Step {index} ({step.name}) departs and has no alternate left "
            f"(tried: {tried}; model nodes: {', '.join(step.origin) or 'none'})",
            where=f"{engine.adapter}, variant {engine.variant.id}",
            remedy="Choose another device and report this.",
        )
    return _use(engine, step, current + 1, why)


def _use(engine: Engine, step: fmt.Step, alternate: int, why: str) -> Demotion:
    refused = step.alternates[engine.choice(step.index)].tag
    engine.choose(step.index, alternate)
    return Demotion(step.index, step.name, step.origin, refused, step.alternates[alternate].tag, why)


def _first_departing(engine: Engine, plan: fmt.Plan, case: _Vectors, failure: _Failure) -> int | None:
    """The first step whose tensor departs from its sample (or, for an erratic failure, from itself)."""
    steps = fmt.flatten(engine.variant.steps)
    seen: dict[int, bytes] = {}
    with _session(engine, plan) as session:
        try:
            for _ in range(RUNS if failure.erratic else 1):
                session.run_steps(0, 0, case.inputs)
                for step in steps:
                    session.run_steps(step.index, step.index + 1)
                    if not isinstance(step, fmt.Step) or step.name not in case.samples:
                        continue
                    have = session.read_step(step.index)
                    if seen.setdefault(step.index, have.tobytes()) != have.tobytes():
                        return step.index
                    if not failure.erratic and _departs(have, case.samples[step.name], case.golden):
                        return step.index
        except DeviceLost:
            return None
    return None


def _departs(have: Array, sample: Array, golden: fmt.Golden) -> bool:
    size = have.size
    picks = np.unique(np.linspace(0, size - 1, min(size, SAMPLES)).astype(int)) if size else np.zeros(0, int)
    if len(picks) != sample.size:
        return True
    return ratio(have.reshape(-1)[picks], sample.reshape(-1), golden) > 1
