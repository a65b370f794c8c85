"""Loading: from a bundle's path to a model that has passed its self-test."""

from __future__ import annotations

import os
from typing import Literal

from tang_edge.bundle.read import Bundle, open_bundle
from tang_edge.errors import CompilerBug, DeviceError, InputError
from tang_edge.runtime import choose_device, selftest
from tang_edge.runtime.device import Engine
from tang_edge.runtime.report import Demotion, Report, SelfTest
from tang_edge.runtime.session import Model


def load(
    path: str | os.PathLike[str],
    device: str = "auto",
    threads: int | None = None,
    trust: bool = False,
    self_test: bool | Literal["full"] = True,
) -> Model:
    """Load a bundle.

    Args:
        path: the ``.tang`` file.
        device: ``auto`` (a GPU, else C, else WebGPU on the CPU), ``webgpu`` or ``c``.
        threads: of the C device, this one included; all cores if not given.
        trust: let the bundle's C and unchecked shaders run although it was not packed on this machine.
        self_test: run the first golden vectors, all of them (``"full"``) or none; the report says which.

    Raises:
        BundleError: the file is not a sound bundle, or its C is needed but not trusted.
        DeviceError: no device can run it, or the self-test fails with no alternate left.
        CompilerBug: nothing can run it, and a C compiler refused what we generated.
        InputError: an argument is none of the values above.
    """
    if device not in choose_device.DEVICES:
        raise InputError(f"is {device!r}, must be one of {', '.join(choose_device.DEVICES)}", where="device")
    if threads is not None and (not isinstance(threads, int) or not 1 <= threads <= 1024):
        raise InputError(f"is {threads!r}, must be a number in 1..1024", where="threads")
    bundle = open_bundle(path)
    try:
        return _load(bundle, device, threads or usable_cores(), trust, self_test)
    except BaseException:
        bundle.close()
        raise


def usable_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def _load(bundle: Bundle, device: str, threads: int, trust: bool, self_test: bool | Literal["full"]) -> Model:
    decision = choose_device.judge(bundle, trust)
    search = choose_device.Search()
    errors: list[DeviceError | CompilerBug] = []
    for choice in choose_device.candidates(bundle, device, decision, threads, search):
        engine: Engine | None = None
        try:
            engine = choice.open()
            tested, demotions = _certify(bundle, engine, self_test)
        except (DeviceError, CompilerBug) as error:
            # a failing device is no reason to give up while another can run the model; it stays in the report
            if engine is not None:
                engine.close()
            search.passed_over.append(f"{choice.variant.backend}: variant {choice.variant.id}: {error}")
            errors.append(error)
            continue
        report = Report(
            device=engine.kind,
            adapter=engine.adapter,
            variant=choice.variant.id,
            device_class=choice.variant.device_class,
            why=choice.why,
            passed_over=tuple(search.passed_over),
            trust=decision.why,
            trusted=decision.granted,
            signed=bundle.manifest.signed,
            self_test=tested,
            demotions=demotions,
        )
        return Model(bundle, engine, report)
    raise choose_device.nowhere(bundle, device, decision, search, errors)


def _certify(bundle: Bundle, engine: Engine, self_test: bool | Literal["full"]) -> tuple[SelfTest, tuple[Demotion, ...]]:
    if self_test is False:
        return SelfTest("skipped: the caller said self_test=False"), ()
    return selftest.run(bundle, engine, full=self_test == "full")
