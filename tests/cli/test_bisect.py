"""bisect: agreement, and a kernel broken on purpose is found and named."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import clikit
import numpy as np
import pytest
from clikit import call, facts, refused

from tang_edge.rewrite import pipeline

pytestmark = pytest.mark.usefixtures("needs_c")
C = ("--device", "c", "--threads", "1")


def test_every_tensor_agrees(bundle, mlp):
    found = facts("bisect", bundle, mlp, *C, "--dims", "n=7")
    assert found["compared"] == found["steps"] == 2
    assert found["first"] is None and found["skipped"] == []
    assert all(f["ratio"] < 1 for f in found["findings"])
    assert "every tensor agrees" in call("bisect", bundle, mlp, *C).output


def _broken(bundle, out, name: str):
    """The bundle whose kernel of the bind `name` computes 1.01 times what it should (it stores to its last buffer)."""
    steps = facts("inspect", bundle)["variants"]
    kernel = next(
        s["alternates"][0]["kernels"][0] for v in steps if v["backend"] == "c" for s in v["steps"] if s["name"] == name
    )

    def change(member: str, text: str) -> str:
        if not member.endswith(".c"):
            return text
        head, function, rest = text.partition(f"static void {kernel}(")
        body, end, tail = rest.partition("\n}\n")
        # every store of the function: TANG_STORE(V, p, x), TANG_STORE_SOME(V, p, x, n) or an assignment to a buffer
        body, vectors = re.subn(r"(TANG_STORE\w*\(\w+, [^;]*?), \(?(s\d+|v\d+|\(.*?\))", r"\1, 1.01f * (\2)", body)
        body, scalars = re.subn(r"(?m)^(\s*b\d+\[.*?\] = )(.*);$", r"\1 1.01f * (\2);", body)
        assert vectors + scalars, body
        return head + function + body + end + tail

    return clikit.edited(bundle, out, change)


@pytest.mark.parametrize(("name", "node"), [("r", "Gemm 'first'"), ("y", "Gemm 'second'")])
def test_a_broken_kernel_is_named(bundle, mlp, tmp_path, name, node):
    broken = _broken(bundle, tmp_path / "broken.tang", name)
    result = call("bisect", broken, mlp, *C, "--json")
    assert result.exit_code == 4, result.output
    first = json.loads(result.stdout)["first"]
    assert first["name"] == name and node in first["origin"]
    assert first["ratio"] > 100 and first["wrong"] > 0
    shown = call("bisect", broken, mlp, *C)
    assert shown.exit_code == 4
    for words in ("departs", node, "worst at", "fault", "printer or the driver", "report"):
        assert words in shown.output


def test_all_goes_on_behind_the_first(bundle, mlp, tmp_path):
    broken = _broken(bundle, tmp_path / "broken.tang", "r")
    found = json.loads(call("bisect", broken, mlp, *C, "--all", "--json").stdout)
    assert found["first"]["name"] == "r" and len(found["findings"]) == 2
    assert call("bisect", broken, mlp, *C, "--slack", 1e6).exit_code == 0


@pytest.mark.parametrize("sign", [1, -1])
def test_branches_and_regions(tmp_path, sign):
    model, out = clikit.branches(tmp_path / "if.onnx"), tmp_path / "if.tang"
    facts("pack", model, "-o", out, "--target", "cpu-generic")
    np.save(tmp_path / "x.npy", np.array([1, 2, 3, -0.5], np.float32) * sign)
    found = facts("bisect", out, model, *C, "--input", f"x={tmp_path / 'x.npy'}", "--all")
    assert found["first"] is None and found["skipped"] == []
    assert 3 <= found["compared"] < found["steps"]  # not the branch that is not taken


def test_a_fixed_dimension(mlp, tmp_path):
    out = tmp_path / "fixed.tang"
    facts("pack", mlp, "-o", out, "--target", "cpu-generic", "--dim", "n=80")
    assert facts("bisect", out, mlp, *C)["compared"] == 2


def test_another_model(bundle, tmp_path):
    other = clikit.counter(tmp_path / "other.onnx")
    assert "another model" in refused("bisect", bundle, other, *C)


def test_a_real_model(real_model, tmp_path):
    out = tmp_path / "real.tang"
    facts("pack", real_model, "-o", out, "--target", "cpu-generic", "--no-self-test")
    found = facts("bisect", out, real_model, *C)
    assert found["first"] is None and found["compared"] == found["steps"]


def test_a_wrong_rewrite_is_told_from_a_wrong_kernel(mlp, tmp_path, monkeypatch):
    def off(program):
        y = program.binds()[-1]
        wrong = replace(y, expr=y.expr * 1.01)
        return program.with_items([wrong if i is y else i for i in program.items])

    bad = pipeline.Pass("off", "a pass with a bug", off)
    monkeypatch.setattr(pipeline, "PASSES", (*pipeline.PASSES, bad))
    out = tmp_path / "off.tang"
    facts("pack", mlp, "-o", out, "--target", "cpu-generic")
    result = call("bisect", out, mlp, *C, "--json")
    assert result.exit_code == 4, result.output
    found = json.loads(result.stdout)
    assert found["first"]["name"] == "y" and found["fault"].startswith("rewriting")
