"""explain: passes, texts, kernels."""

from __future__ import annotations

import re

import clikit
from clikit import call, facts, refused

from tang_edge.ir.text_parse import parse_program
from tang_edge.rewrite.pipeline import PASSES


def test_counts_after_each_pass_and_origins(mlp):
    result = call("explain", mlp)
    assert result.exit_code == 0, result.output
    for words in ("import", "fuse", "comprehensions", "Gemm 'first', Relu 'act'", "n: 1..64"):
        assert words in result.output


def test_json(mlp):
    found = facts("explain", mlp)
    assert [p["name"] for p in found["passes"]] == ["import", *(p.name for p in PASSES)]
    assert found["passes"][0]["binds"] == 3 and found["passes"][-1]["binds"] == 2
    assert [b["origin"] for b in found["binds"]] == [["Gemm 'first'", "Relu 'act'"], ["Gemm 'second'"]]


def test_a_pass_shows_the_program_before_and_after(tmp_path):
    # a model whose weights are short enough to stand in the text
    result = call("explain", clikit.counter(tmp_path / "c.onnx"), "--pass", "fuse")
    before, after = re.split(r"^# (?:before|after) fuse$", result.stdout, flags=re.M)[1:]
    assert len(parse_program(before.strip() + "\n").binds()) == 2
    assert len(parse_program(after.strip() + "\n").binds()) >= 1


def test_text_of_all_passes_and_of_one_bind(mlp):
    everything = call("explain", mlp, "--text").stdout
    assert everything.count("tang-ir 1") == len(PASSES) + 1
    one = call("explain", mlp, "--bind", "y").stdout
    assert "bind y f32" in one and "bind r " not in one


def test_kernels_have_moves_and_text(mlp):
    result = call("explain", mlp, "--kernels", "--target", "webgpu,cpu-generic")
    assert result.exit_code == 0, result.output
    for words in ("== webgpu-browser", "== c-cpu-generic", "split(", "@compute", "static void k_", "from Gemm 'second'"):
        assert words in result.output
    only = call("explain", mlp, "--kernels", "--target", "cpu-generic", "--bind", "y").output
    assert "Gemm 'second'" in only and "Gemm 'first'" not in only


def test_every_kernel_of_the_json_has_its_text(mlp):
    found = facts("explain", mlp, "--kernels", "--target", "webgpu,cpu-generic")["kernels"]
    assert set(found) == {"webgpu-browser", "c-cpu-generic"}
    for kernels in found.values():
        assert {k["bind"] for k in kernels} == {"r", "y"}
        assert all(len(k["text"]) > 100 and k["moves"] for k in kernels)


def test_refusals(mlp, tmp_path):
    said = refused("explain", mlp, "--pass", "nonsense")
    assert "nonsense" in said and "fuse" in said
    assert "'zzz'" in refused("explain", mlp, "--bind", "zzz")
    assert "Frobnicate" in refused("explain", clikit.unknown(tmp_path / "u.onnx"))
    assert "toaster" in refused("explain", mlp, "--kernels", "--target", "toaster")
