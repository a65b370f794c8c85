"""inspect: contents without a device, and bundles that were changed."""

from __future__ import annotations

import clikit
import pytest
from clikit import call, facts, refused


def test_says_what_a_bundle_holds(bundle):
    result = call("inspect", bundle, "--steps")
    assert result.exit_code == 0, result.output
    for words in (
        "n in 1..64",
        "x: float32 (n, 6)",
        "y: float32 (n, 4)",
        "webgpu-browser",
        "c-cpu-generic",
        "upper bound: n=64",
    ):
        assert words in result.output
    for words in ("packed on this machine", "match their SHA-256", "Gemm 'first'", "k_"):
        assert words in result.output


def test_json(bundle):
    found = facts("inspect", bundle, "--dims", "n=8")
    assert found["dims"] == [{"name": "n", "min": 1, "max": 64, "multiple": 1}]
    assert found["members_verified"] == len(found["files"])
    variant = found["variants"][0]
    assert {k: m["dims"]["n"] for k, m in variant["memory"].items()} == {"least": 1, "typical": 8, "greatest": 64}
    asked = facts("inspect", bundle, "--dims", "n=9")["variants"][0]["memory"]
    assert [(k, m["dims"]["n"]) for k, m in asked.items()] == [("least", 1), ("typical", 8), ("asked", 9), ("greatest", 64)]
    assert variant["memory"]["least"]["peak"] <= variant["memory"]["greatest"]["peak"]
    assert variant["steps"][0]["origin"] == ["Gemm 'first'", "Relu 'act'"]
    assert len(variant["steps"]) == 2


def test_needs_no_device(bundle, monkeypatch):
    from tang_edge.c_fallback import compile as cc
    from tang_edge.wgsl import gpu

    def forbidden(*args, **kwargs):
        raise AssertionError("a device was looked for")

    monkeypatch.setattr(gpu, "adapters", forbidden)
    monkeypatch.setattr(cc, "find_compiler", forbidden)
    assert call("inspect", bundle).exit_code == 0


@pytest.mark.parametrize("member", ["plan.json", "weights/00000.safetensors", "golden/0.safetensors", "manifest.json"])
@pytest.mark.parametrize("command", ["inspect", "run"])
def test_one_changed_byte_is_noticed_and_named(bundle, tmp_path, member, command):
    said = refused(command, clikit.flip(bundle, tmp_path / "t.tang", member))
    assert member in said and "t.tang" in said


def test_a_changed_kernel(bundle, tmp_path):
    said = refused("inspect", clikit.flip(bundle, tmp_path / "t.tang", "kernels/c-cpu-generic.c"))
    assert "kernels/c-cpu-generic.c" in said and "SHA-256" in said


def test_a_newer_version(bundle, tmp_path):
    said = refused("inspect", clikit.newer(bundle, tmp_path / "t.tang"))
    assert "newer" in said and "manifest.json" in said


@pytest.mark.parametrize("command", ["inspect", "run"])
@pytest.mark.parametrize("what", ["gone", "empty", "text", "truncated", "zip"])
def test_files_that_are_no_bundles(bundle, tmp_path, what, command):
    import zipfile

    path = tmp_path / "bad.tang"
    whole = bundle.read_bytes()
    data = {"empty": b"", "text": b"hello " * 99, "truncated": whole[: len(whole) // 2]}.get(what)
    if data is not None:
        path.write_bytes(data)
    elif what == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("../../evil", "no")
    assert "bad.tang" in refused(command, path)


def test_an_onnx_file_in_its_place(mlp):
    assert "mlp.onnx" in refused("inspect", mlp)
