"""Where a model runs and why: order of devices, trust, compilers, and reasons for what was passed over."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tangkit

import tang_edge
from tang_edge.c_fallback import compile as cc
from tang_edge.errors import BundleError, CompilerBug, DeviceError
from tang_edge.wgsl import gpu


@pytest.fixture
def stranger(tmp_path):
    """A bundle that was not packed here."""
    # the name makes another manifest than that of bundles which other tests remember
    return tangkit.make(tmp_path / "s.tang", remember=False, created_by="somebody else")


@pytest.fixture
def no_adapters(monkeypatch):
    monkeypatch.setattr(gpu, "adapters", lambda: ([], "no adapter in this test"))


def test_c_comes_before_a_cpu_adapter_and_the_report_says_so(bundle, needs_c):
    with tang_edge.load(bundle) as model:
        if model.report.device == "webgpu":
            pytest.skip("this machine has a GPU")
        assert model.report.device == "c"
        assert "compiled here by" in model.report.why
        assert "packed on this machine" in model.report.trust
        assert all("computes on the CPU" in p or "webgpu" in p for p in model.report.passed_over)


def test_c_of_a_stranger_needs_trust(stranger, no_adapters, needs_c):
    for device in ("auto", "c"):
        with pytest.raises(BundleError, match=r"not packed on this machine.*trust=True"):
            tang_edge.load(stranger, device=device)
    with tang_edge.load(stranger, trust=True) as model:
        assert model.report.device == "c"
        assert model.report.trusted and "trust=True" in model.report.trust
        assert model.report.passed_over == ("webgpu: no adapter in this test",)


def test_a_stranger_runs_checked_on_webgpu(stranger, needs_webgpu, monkeypatch):
    monkeypatch.setattr(gpu, "_unchecked_module", lambda *_: pytest.fail("unchecked shader of a stranger"))
    with tang_edge.load(stranger) as model:
        assert model.report.device == "webgpu"
        assert not model.report.trusted
        assert any(p.startswith("c: unsigned") for p in model.report.passed_over)


def test_unchecked_modules_only_for_safe_kernels(bundle, needs_webgpu, monkeypatch):
    asked = []
    real = gpu._unchecked_module
    monkeypatch.setattr(gpu, "_unchecked_module", lambda d, c, label: asked.append(label) or real(d, c, label))
    with tang_edge.load(bundle, device="webgpu") as model:
        model.run(tangkit.arrays(3))
    assert set(asked) == {"scale", "add", "count"}
    asked.clear()
    monkeypatch.setattr(gpu, "_unchecked_module", lambda *_: None)  # a wgpu without them
    with tang_edge.load(bundle, device="webgpu") as model:
        np.testing.assert_array_equal(model.run(tangkit.arrays(3))["count"], tangkit.arrays(3)["b"] + 1)


def test_without_the_package_wgpu(bundle, monkeypatch):
    monkeypatch.setitem(sys.modules, "wgpu", None)
    with pytest.raises(DeviceError, match="wgpu is not installed"):
        tang_edge.load(bundle, device="webgpu")


def test_nothing_to_run_on(bundle, no_adapters, monkeypatch):
    monkeypatch.setattr(cc, "find_compiler", lambda: None)
    with pytest.raises(DeviceError, match=r"no C compiler.*Install a GPU driver.*C compiler"):
        tang_edge.load(bundle)
    with pytest.raises(DeviceError, match="no adapter in this test"):
        tang_edge.load(bundle, device="webgpu")


def test_a_failing_device_is_reported_and_the_next_one_tried(tmp_path, needs_c, needs_webgpu):
    members = {
        "kernels/c-generic.c": "this is no C",
        "kernels/webgpu-browser.wgsl": tangkit.WGSL_MODEL.replace("BAD", "0.0"),
    }
    path = tangkit.make(tmp_path / "x.tang", members=members)
    with tang_edge.load(path) as model:
        assert model.report.device == "webgpu"
        assert any("refused the generated C" in p for p in model.report.passed_over) or "GPU" in model.report.why
    with pytest.raises(CompilerBug, match="refused the generated C") as caught:
        tang_edge.load(path, device="c")
    assert str(caught.value).count("refused") == 2 and len(str(caught.value)) < 700  # once in words, once in the path


def test_variants_by_processor_class(tmp_path, needs_c, no_adapters, monkeypatch):
    monkeypatch.setattr(cc, "cpu_classes", lambda: ("cpu-x86-64-v3", "cpu-x86-64-v2", "cpu-generic"))
    classes = ["cpu-generic", "cpu-x86-64-v4", "cpu-x86-64-v3"]
    variants = [tangkit.c_variant(id=c, **{"class": c}) for c in classes]
    path = tangkit.make(tmp_path / "v.tang", plan=tangkit.plan(*variants), wgsl=False)
    with tang_edge.load(path) as model:
        assert model.report.variant == "cpu-x86-64-v3"
        assert any("not of class cpu-x86-64-v4" in p for p in model.report.passed_over)


def test_processor_classes_end_in_generic():
    assert cc.cpu_classes()[-1] == "cpu-generic"
    assert set(cc.cpu_classes()) <= set(cc.CPU_CLASSES)


def test_features_and_limits_of_adapters(tmp_path, needs_webgpu):
    for change, match in [
        ({"features": ["time-travel"]}, "lacks the feature time-travel"),
        ({"limits": {"maxComputeInvocationsPerWorkgroup": 10**9}}, "maxComputeInvocationsPerWorkgroup is"),
        ({"limits": {"maxWishes": 3}}, "does not know the limit maxWishes"),
    ]:
        path = tangkit.make(tmp_path / "x.tang", plan=tangkit.plan(tangkit.wgsl_variant(**change)), c=False)
        with pytest.raises(DeviceError, match=match):
            tang_edge.load(path)
    browser = tangkit.wgsl_variant(id="b")
    laptop = tangkit.wgsl_variant(id="l", **{"class": "laptop"})
    path = tangkit.make(tmp_path / "y.tang", plan=tangkit.plan(browser, laptop), c=False)
    with tang_edge.load(path) as model:
        assert model.report.variant == "l"


def test_limit_names():
    assert gpu.limit_key("maxStorageBuffersPerShaderStage") == gpu.limit_key("max-storage-buffers-per-shader-stage")
    assert gpu.limit_key("maxTextureDimension1D") == gpu.limit_key("max_texture_dimension_1d")


def test_prebuilt_library(tmp_path, needs_c, no_adapters, monkeypatch):
    compiler = cc.find_compiler()
    library = cc.compile_library(tangkit.C_MODEL.replace("BAD", "0.0f"), compiler)
    member = "lib/host/model.so"
    variant = tangkit.c_variant(prebuilt={cc.host_triple(): member})
    members = {"kernels/c-generic.c": "no source needed", member: library.read_bytes()}
    path = tangkit.make(tmp_path / "p.tang", plan=tangkit.plan(variant), members=members)
    monkeypatch.setattr(cc, "find_compiler", lambda: None)
    with tang_edge.load(path) as model:
        assert "in the bundle" in model.report.why
        np.testing.assert_array_equal(model.run(tangkit.arrays(3))["count"], tangkit.arrays(3)["b"] + 1)


def test_compiled_libraries_are_cached_privately(tmp_path, needs_c, monkeypatch):
    monkeypatch.setenv("TANG_EDGE_CACHE", str(tmp_path / "cache"))
    compiler = cc.find_compiler()
    first = cc.compile_library("int tang_edge_one(void) { return 1; }", compiler)
    stamp = first.stat().st_mtime_ns
    assert cc.compile_library("int tang_edge_one(void) { return 1; }", compiler) == first
    assert first.stat().st_mtime_ns == stamp
    assert cc.compile_library("int tang_edge_two(void) { return 2; }", compiler) != first
    assert sorted(os.listdir(first.parent)) == sorted(p.name for p in first.parent.glob("*.so"))
    with pytest.raises(CompilerBug, match="refused") as caught:
        cc.compile_library("nonsense", compiler)
    kept = str(caught.value).partition("is kept in ")[2].partition(")")[0]
    assert Path(kept).read_text() == "nonsense"
    lame = cc.Compiler(("false",), "0")
    with pytest.raises(DeviceError, match="does not work"):
        cc.compile_library("int x;", lame)
    if os.name == "posix":
        first.parent.chmod(0o777)
        with pytest.raises(DeviceError, match="others can write"):
            cc.compile_library("int x;", compiler)


def test_a_library_of_another_interface(tmp_path, needs_c, no_adapters):
    source = tangkit.C_MODEL.replace("BAD", "0.0f").replace("return 1; }\nTANG", "return 2; }\nTANG", 1)
    path = tangkit.make(tmp_path / "a.tang", wgsl=False, members={"kernels/c-generic.c": source})
    with pytest.raises(BundleError, match="interface 2"):
        tang_edge.load(path)


def test_an_error_code_of_the_library(tmp_path, needs_c, no_adapters):
    source = tangkit.C_MODEL.replace("BAD", "0.0f").replace(
        "int32_t last =", "if (c->dims[0] == 13) return 5;\n int32_t last ="
    )
    path = tangkit.make(tmp_path / "a.tang", wgsl=False, members={"kernels/c-generic.c": source})
    with tang_edge.load(path) as model:
        with pytest.raises(DeviceError, match="code 5"):
            model.run(tangkit.arrays(13))
        model.run(tangkit.arrays(12))


def test_the_package_loads_lazily_and_without_the_compiler():
    code = (
        "import sys, tang_edge; assert 'numpy' not in sys.modules; tang_edge.load; "
        "assert 'wgpu' not in sys.modules and 'onnx' not in sys.modules and 'jsonschema' not in sys.modules; "
        "assert not [m for m in sys.modules if m.startswith('tang_edge.ir')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=os.path.dirname(tang_edge.__path__[0]))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_can_run(bundle, needs_c):
    model = tang_edge.load(bundle, device="c", threads=2)
    inputs = tangkit.arrays(5)
    want = model.run(inputs)
    pid = os.fork()
    if pid == 0:
        same = np.array_equal(model.run(inputs)["y"], want["y"])
        os._exit(0 if same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    model.close()
