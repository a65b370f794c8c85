"""What someone who watches a compile is told: stages, programs between passes, kernels as they are made."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tang_edge.ir.tensor import Program
from tang_edge.rewrite.pipeline import Pass


class Observer:
    """Is told what a compile does, while it does it. This one takes nothing; subclasses take what they want."""

    def stage(self, name: str, done: int, total: int) -> None:
        """A stage has come so far; it may raise to end the compile."""

    def imported(self, program: Program) -> None:
        """The model as it was read, before any pass."""

    def rewritten(self, by: Pass, before: Program, after: Program) -> None:
        """A pass is done, and verified."""

    def kernel(self, variant: str, name: str, origin: Sequence[str], text: str) -> None:
        """A kernel of a variant is made; `origin` names the model's nodes behind it. Each text comes once."""


class Stages(Observer):
    """Hands the stages to a function."""

    def __init__(self, told: Callable[[str, int, int], None]) -> None:
        self._told = told

    def stage(self, name: str, done: int, total: int) -> None:
        """Pass it on."""
        self._told(name, done, total)
