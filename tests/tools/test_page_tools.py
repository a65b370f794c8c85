"""tools/fetch_pyodide.py and tools/build_page_wheel.py with archives made here: no network."""

from __future__ import annotations

import hashlib
import importlib
import io
import json
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools"))
archives, fetch_pyodide, build_page_wheel = map(importlib.import_module, ("archives", "fetch_pyodide", "build_page_wheel"))

MADE = {"numpy-1.0-py3-none-any.whl": b"numpy's bytes", "pyodide.mjs": b"export"}


def _upstream(sha256: str) -> bytes:
    package = {"file_name": "numpy-1.0-py3-none-any.whl", "sha256": sha256}
    return json.dumps({"info": {"abi_version": "1"}, "packages": {"numpy": package}}).encode()


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A table of three files, its rows, and downloads that come from here; gives a function that makes it."""

    def make(sha256: str | None = None):
        contents = {
            **MADE,
            "upstream-lock.json": _upstream(sha256 or hashlib.sha256(MADE["numpy-1.0-py3-none-any.whl"]).hexdigest()),
        }
        rows = [
            fetch_pyodide.Row(
                name,
                "npm",
                "toy@1",
                hashlib.sha256(data).hexdigest(),
                "MIT",
                path=name,
                wheel="numpy" if "numpy" in name else "",
            )
            for name, data in contents.items()
        ]
        monkeypatch.setattr(fetch_pyodide, "read_table", lambda: rows)
        monkeypatch.setattr(archives, "whole", lambda registry, packages, path, cache: contents[path])

    return make


def test_the_folder_is_filled_and_locked(table, tmp_path: Path) -> None:
    table()
    wheel = tmp_path / "tang_edge-2.0-py3-none-any.whl"
    wheel.write_bytes(b"ours")
    dest = tmp_path / "page"
    (dest).mkdir()
    (dest / "tang_edge-1.0-py3-none-any.whl").write_bytes(b"an old one")
    files = fetch_pyodide.gather(dest, tmp_path / "cache", wheel)
    assert {f.name for f in files} == {f.name for f in dest.iterdir()} == {*MADE, wheel.name, "pyodide-lock.json"}
    lock = json.loads((dest / "pyodide-lock.json").read_text())
    assert lock["packages"].keys() == {"numpy", "tang-edge"}
    ours = lock["packages"]["tang-edge"]
    assert ours["sha256"] == hashlib.sha256(b"ours").hexdigest()
    assert ours["version"] == "2.0" and ours["depends"] == ["numpy"]


def test_a_table_that_disagrees_with_pyodide_is_refused(table, tmp_path: Path) -> None:
    table(sha256="0" * 64)
    with pytest.raises(archives.FetchError, match="Pyodide's lock file has the SHA-256 0000"):
        fetch_pyodide.gather(tmp_path / "page", tmp_path / "cache", None)
    assert not (tmp_path / "page" / "pyodide-lock.json").exists()


def test_the_real_table_is_sound() -> None:
    rows = fetch_pyodide.read_table()
    assert {"pyodide.mjs", "pyodide.asm.wasm", "upstream-lock.json"} <= {r.file for r in rows}
    assert {r.wheel for r in rows if r.wheel} == {"numpy", "protobuf", "onnx"}
    for row in rows:
        assert len(row.sha256) == 64 and int(row.sha256, 16) >= 0 and row.licence
        assert "==" in row.package or "@" in row.package  # pinned


def test_a_broken_table_names_its_row(tmp_path: Path) -> None:
    file = tmp_path / "pyodide.toml"
    file.write_text('["a.whl"]\nregistry = "pypi"\n')
    with pytest.raises(archives.FetchError, match=r'\["a\.whl"\]'):
        fetch_pyodide.read_table(file)


def test_a_trimmed_wheel_is_the_same_each_time() -> None:
    wheel = fetch_pyodide.zipped({"a/x.py": b"1", "a/y.py": b"2", "a/z.py": b"3"})
    small = fetch_pyodide.trimmed(wheel, ["a/z.py", "a/x.py"])
    assert small == fetch_pyodide.trimmed(wheel, ["a/x.py", "a/z.py"])
    assert zipfile.ZipFile(io.BytesIO(small)).namelist() == ["a/x.py", "a/z.py"]
    with pytest.raises(archives.FetchError, match="lacks a member"):
        fetch_pyodide.trimmed(wheel, ["a/w.py"])


def test_the_wheel_holds_the_compiler_and_nothing_else(tmp_path: Path) -> None:
    names = zipfile.ZipFile(build_page_wheel.of_folder(ROOT / "tang_edge", tmp_path)).namelist()
    assert {
        "tang_edge/page.py",
        "tang_edge/compiler.py",
        "tang_edge/onnx_in/ops/conv.py",
        "tang_edge/c_fallback/tang_abi.h",
    } <= set(names)
    for part in ("cli", "runtime", "wgsl/gpu.py", "wgsl/worker.py"):
        assert not [n for n in names if n.startswith(f"tang_edge/{part}")], part


def test_reaching_follows_functions_but_not_the_package_itself() -> None:
    modules = {
        "tang_edge": "from tang_edge import runtime",
        "tang_edge.page": "def f():\n    from tang_edge.ir import text",
        "tang_edge.ir": "",
        "tang_edge.ir.text": "import tang_edge.errors",
        "tang_edge.errors": "",
        "tang_edge.runtime": "",
    }
    assert build_page_wheel.reached(modules) == modules.keys() - {"tang_edge.runtime"}
