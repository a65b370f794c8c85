"""Bundles for the tests of the command line, packed once."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

import clikit

from tang_edge.c_fallback import compile as cc


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """No colours and no narrow columns, whatever the terminal."""
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds the models and bundles."""
    return tmp_path_factory.mktemp("cli")


def _packed(model: Path, *options: str) -> Path:
    out = model.with_suffix(".tang")
    result = clikit.call("pack", model, "-o", out, "--target", "webgpu,cpu-generic", *options)
    assert result.exit_code == 0, result.output
    return out


@pytest.fixture(scope="session")
def mlp(folder: Path) -> Path:
    """The ONNX file of a small net; its bundle lies beside it (fixture `bundle`)."""
    return clikit.mlp(folder / "mlp.onnx")


@pytest.fixture(scope="session")
def bundle(mlp: Path) -> Path:
    """The bundle of `mlp`."""
    return _packed(mlp)


@pytest.fixture(scope="session")
def pictures(folder: Path) -> dict[str, Path]:
    """By layout a bundle that takes pictures."""
    made = {layout: clikit.picture_net(folder / f"{layout}.onnx", layout) for layout in ("NCHW", "NHWC")}
    return {layout: _packed(model) for layout, model in made.items()}


@pytest.fixture
def needs_c() -> None:
    """Skip where there is no C compiler."""
    if cc.find_compiler() is None:
        pytest.skip("no C compiler")


@pytest.fixture(scope="session")
def real_model() -> Path:
    """A small real model, where the models were fetched."""
    root = os.environ.get("TANG_EDGE_MODELS") or Path(__file__).resolve().parents[2] / "models"
    path = Path(root) / "go2-policy.onnx"
    if not path.exists():
        pytest.skip(f"{path} is not there: make models, or set TANG_EDGE_MODELS")
    return path
