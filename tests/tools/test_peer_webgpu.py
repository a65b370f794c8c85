"""tools/peer_webgpu/prepare.py: the parts that need neither network nor adapter."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "peer_webgpu" / "prepare.py"


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("peer_webgpu_prepare", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


prepare = _load()


def test_the_hand_spelt_model_is_one() -> None:
    onnx = pytest.importorskip("onnx")
    model = onnx.load_model_from_string(prepare.probe_model())
    onnx.checker.check_model(model, full_check=True)
    assert [n.op_type for n in model.graph.node] == ["Add"]


def test_the_layer_and_its_manifest_belong_together() -> None:
    manifest = json.loads(SCRIPT.with_name("lavapipe_layer.json").read_text())["layer"]
    source = SCRIPT.with_name("lavapipe_layer.c").read_text()
    assert manifest["name"] == prepare.LAYER
    assert all(f"\n{function}(" in source for function in manifest["functions"].values())


@pytest.mark.skipif(not Path("/usr/include/vulkan/vk_layer.h").exists(), reason="no Vulkan headers (libvulkan-dev)")
@pytest.mark.skipif(shutil.which("gcc") is None and shutil.which("cc") is None, reason="no C compiler")
def test_the_layer_compiles(tmp_path: Path) -> None:
    assert prepare.build_layer(tmp_path) is None
    assert (tmp_path / "liblavapipe_layer.so").exists() and (tmp_path / "lavapipe_layer.json").exists()


def test_without_a_compiler_the_reason_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "no C compiler" in prepare.build_layer(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="Vulkan's variables are for Linux")
def test_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    icds, dest = tmp_path / "icd.d", tmp_path / "peer"
    icds.mkdir()
    dest.mkdir()
    (icds / "lvp_icd.x86_64.json").write_text("{}")
    monkeypatch.setattr(prepare, "ICD_FOLDERS", (str(icds),))
    monkeypatch.setattr(prepare, "_has_gpu", lambda: False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/0")
    for name in ("VK_ICD_FILENAMES", "VK_DRIVER_FILES"):
        monkeypatch.delenv(name, raising=False)
    driver = str(icds / "lvp_icd.x86_64.json")
    assert prepare.environment(dest) == {"VK_ICD_FILENAMES": driver}
    (dest / "liblavapipe_layer.so").write_bytes(b"")
    assert prepare.environment(dest)["VK_INSTANCE_LAYERS"] == prepare.LAYER
    monkeypatch.setattr(prepare, "_has_gpu", lambda: True)
    assert prepare.environment(dest) == {}  # a GPU's own driver is taken as it is
    monkeypatch.setattr(prepare, "_has_gpu", lambda: False)
    monkeypatch.setenv("VK_ICD_FILENAMES", "/mine.json")
    assert prepare.environment(dest) == {}  # and so is the caller's choice
