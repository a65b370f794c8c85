"""The passes, in order: pure functions from program to program, each followed by the verifier."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tang_edge.ir.tensor import Program
from tang_edge.ir.verify import verify as verify_program
from tang_edge.rewrite.bindings import divide
from tang_edge.rewrite.constants import hoist
from tang_edge.rewrite.dead import drop_dead
from tang_edge.rewrite.fuse import fuse
from tang_edge.rewrite.integers import integer_sums
from tang_edge.rewrite.linear import merge_linear
from tang_edge.rewrite.literals import inline_literals
from tang_edge.rewrite.names import canonical_axes
from tang_edge.rewrite.parts import cut_weights
from tang_edge.rewrite.regions import store_in_place
from tang_edge.rewrite.scales import scales_out_of_sums
from tang_edge.rewrite.simplify import simplify_program
from tang_edge.rewrite.stores import move_past_stores
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
    Pass("integers", "sums of dequantised products in integers", integer_sums),
    Pass("scales", "numbers that scale an operand taken out of sums", scales_out_of_sums),
    Pass("dead-2", "dequantising binds that nothing reads any more", drop_dead),
    Pass("fuse", "producers substituted into their readers", fuse),
    Pass("stores", "arithmetic after a merge of axes moved to where it is stored", move_past_stores),
    Pass("parts", "weights larger than a binding cut into parts", cut_weights),
    Pass("linear", "constant scales and offsets merged, scales into weights", merge_linear),
    Pass("hoist", "constant-only parts become prologue binds", hoist),
    Pass("dead-3", "drop what no output needs", drop_dead),
    Pass("regions", "concatenations written in place", store_in_place),
    Pass("bindings", "binds that read more tensors than a kernel can bind divided", divide),
    Pass("names", "canonical axis names", canonical_axes),
)


Observer = Callable[[Pass, Program, Program], None]


def optimize(program: Program, *, observe: Observer | None = None, verify: bool = True) -> Program:
    """The program after all passes. `observe(pass, before, after)` is called after each.

    Raises CompilerBug when a pass makes a program that the verifier refuses.
    """
    for p in PASSES:
        after = p.fn(program)
        if verify:
            verify_program(after)
        if observe is not None:
            observe(p, program, after)
        program = after
    return program
