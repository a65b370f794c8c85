"""What a caller is told about how a model came to run where it runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Demotion:
    """A step that failed the self-test and is done in another way now."""

    step: int
    name: str
    origin: tuple[str, ...]
    refused: str  # tag of the alternate that failed
    used: str  # tag of the alternate in its place
    why: str


@dataclass(frozen=True, slots=True)
class SelfTest:
    """Outcome of the self-test: ``passed``, ``passed after demotions`` or ``skipped``, and figures.

    ``worst`` is the largest error over its tolerance (at most 1 where passed), ``vectors`` and ``runs`` count
    the golden vectors and the runs of each.
    """

    outcome: str
    vectors: int = 0
    runs: int = 0
    worst: float = 0.0


@dataclass(frozen=True, slots=True)
class Report:
    """How a model was loaded.

    Attributes:
        device: ``webgpu`` or ``c``.
        adapter: the GPU's or processor's name.
        variant, device_class: which of the bundle's variants runs.
        why: the choice in words.
        passed_over: what else was considered, each with the reason.
        trust: why the bundle's machine code may run here, or why it may not.
        trusted: whether it may.
        signed: whether the bundle carries a signature (it is not verified by this version).
        self_test: outcome of the golden vectors on this device.
        demotions: steps that are done by another alternate than planned.
    """

    device: str
    adapter: str
    variant: str
    device_class: str
    why: str
    passed_over: tuple[str, ...]
    trust: str
    trusted: bool
    signed: bool
    self_test: SelfTest
    demotions: tuple[Demotion, ...] = ()

    def __str__(self) -> str:
        test = self.self_test
        lines = [
            f"device     {self.device}: {self.adapter}",
            f"variant    {self.variant} (class {self.device_class})",
            f"why        {self.why}",
            *(f"not        {p}" for p in self.passed_over),
            f"trust      {self.trust}",
            f"self-test  {test.outcome} ({test.vectors} vectors, {test.runs} runs each)",
            *(f"demoted    step {d.step} {d.name}: {d.refused} -> {d.used} ({d.why})" for d in self.demotions),
        ]
        return "\n".join(lines)
