"""Branches: producers move into the branch that reads them, results stay binds of their branch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tang_edge.ir import interp
from tang_edge.ir.dtype import boolean, f32
from tang_edge.ir.scalar import op
from tang_edge.ir.tensor import Builder, If, Program, bind
from tang_edge.rewrite.pipeline import optimize


@pytest.fixture
def program() -> Program:
    """if c: y = 2 * (x + w) else: t = x - w, y = abs(t) ; out = y * y ; x + w is made outside."""
    b = Builder("branches")
    b.input("x", f32, (4, 3))
    b.input("c", boolean, ())
    b.constant("w", np.arange(3, dtype=np.float32))
    b.constant("unused", np.arange(3, dtype=np.float32))
    b.bind("s", (4, 3), lambda i, j: b.read("x", (i, j)) + b.read("w", (j,)))
    b.types["y"] = b.types["x"]
    then = (bind("y", (4, 3), lambda i, j: b.read("s", (i, j)) * 2.0),)
    t = bind("t", (4, 3), lambda i, j: b.read("x", (i, j)) - b.read("w", (j,)))
    b.types["t"] = t.type
    orelse = (t, bind("y", (4, 3), lambda i, j: op("abs", b.read("t", (i, j)))))
    b.items.append(If("c", then, orelse, ("y",)))
    b.bind("out", (4, 3), lambda i, j: b.read("y", (i, j)) * b.read("y", (i, j)))
    b.output("out")
    return b.build()


def test_producers_move_into_branches(program: Program) -> None:
    after = optimize(program)
    (branch,) = (i for i in after.items if isinstance(i, If))
    assert [len(branch.then), len(branch.orelse)] == [1, 1]
    assert [getattr(i, "name", "if") for i in after.items] == ["if", "out"]
    assert [c.name for c in after.constants] == ["w"]


@pytest.mark.parametrize("cond", [True, False])
def test_both_branches_keep_their_answer(program: Program, cond: bool) -> None:
    x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    feeds = {"x": x, "c": np.asarray(cond)}
    np.testing.assert_array_equal(interp.run(optimize(program), feeds)["out"], interp.run(program, feeds)["out"])


def test_an_unused_branch_result_drops_the_branch(program: Program) -> None:
    items = [i for i in program.items if not isinstance(i, If)][:1]
    dead = replace(program, items=(*items, *program.items[1:2]), outputs=(("s", "s"),))
    assert [getattr(i, "name", "if") for i in optimize(dead).items] == ["s"]
