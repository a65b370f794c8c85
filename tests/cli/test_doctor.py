"""doctor: what is there, and words for what is not."""

from __future__ import annotations

import pytest
from clikit import call, facts

from tang_edge.cli import doctor, machine


def test_ends_with_where_a_bundle_would_run():
    result = call("doctor")
    assert result.exit_code == 0, result.output
    assert "A bundle runs" in result.output
    for words in ("tang-edge", "packages", "processor", "classes", "cache"):
        assert words in result.output


def test_json():
    found = facts("doctor")
    assert found["processor"]["classes"][-1] == "cpu-generic"
    assert found["packages"]["numpy"]
    assert isinstance(found["runs_on"], list) and isinstance(found["missing"], list)


def _machine(**changes):
    adapter = {
        "name": "Fast (Vulkan)",
        "type": "DiscreteGPU",
        "backend": "Vulkan",
        "driver": "1.0",
        "computes_on_cpu": False,
        "limits": {"max-buffer-size": 1 << 30},
        "features": ["shader-f16"],
    }
    facts = {
        "packages": dict.fromkeys(machine.PACKAGES, "1.0"),
        "adapters": [adapter],
        "no_adapter": "",
        "vulkan_drivers": ["/x.json"],
        "compiler": {"command": ["gcc"], "version": "gcc 12"},
        "processor": {"classes": ["cpu-generic"]},
        "folders": {"cache": {"path": "/c", "writable": True}},
    }
    return facts | changes


SLOW = {"name": "llvmpipe (Vulkan)", "computes_on_cpu": True}


@pytest.mark.parametrize(
    ("changes", "places", "missing"),
    [
        ({}, ["WebGPU on Fast", "C for"], []),
        ({"adapters": [SLOW]}, ["C for", "WebGPU on llvmpipe"], ["a GPU"]),
        ({"adapters": [], "no_adapter": "no WebGPU adapter"}, ["C for"], ["a WebGPU adapter"]),
        ({"compiler": None}, ["WebGPU on Fast"], ["a C compiler"]),
        ({"compiler": None, "adapters": []}, [], ["a WebGPU adapter", "a C compiler"]),
        ({"packages": dict.fromkeys(machine.PACKAGES)}, ["WebGPU", "C"], ["the compiler's packages", "onnxruntime", "pillow"]),
        ({"folders": {"cache": {"path": "/c", "writable": False}}}, ["WebGPU", "C"], ["a cache folder"]),
    ],
)
def test_what_is_missing_and_where_it_runs(changes, places, missing):
    facts = _machine(**changes)
    found = doctor.runs_on(facts)
    assert len(found) == len(places)
    assert all(f.startswith(p) for f, p in zip(found, places, strict=True))
    absent = doctor.missing(facts)
    assert [m.what for m in absent] == [next(m.what for m in absent if m.what.startswith(w)) for w in missing]
    assert all(m.means and m.remedy for m in absent)
    assert all(m.needed for m in absent) or places


def test_vulkan_drivers_where_the_loader_looks(tmp_path, monkeypatch):
    monkeypatch.setattr(machine.sys, "platform", "linux")
    (tmp_path / "vulkan/icd.d").mkdir(parents=True)
    (tmp_path / "vulkan/icd.d/one.json").write_text("{}")
    found = machine.vulkan_drivers({"XDG_DATA_DIRS": str(tmp_path)})
    assert str(tmp_path / "vulkan/icd.d/one.json") in found
    assert machine.vulkan_drivers({"VK_DRIVER_FILES": "/a.json:/b.json"}) == ["/a.json", "/b.json"]
