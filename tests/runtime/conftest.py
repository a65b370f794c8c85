"""Devices for the tests of the runtime; what is missing skips visibly."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
import tangkit

from tang_edge.c_fallback import compile as cc


@functools.cache
def _adapter_missing() -> str:
    from tang_edge.wgsl import gpu

    found, reason = gpu.adapters()
    return "" if found else reason


def need(device: str) -> None:
    """Skip the test where the device is missing."""
    if device == "c" and cc.find_compiler() is None:
        pytest.skip("no C compiler")
    if device == "webgpu" and _adapter_missing():
        pytest.skip(_adapter_missing())


@pytest.fixture(params=["c", pytest.param("webgpu", marks=pytest.mark.device)])
def device(request: pytest.FixtureRequest) -> str:
    """Each device in turn."""
    need(request.param)
    return str(request.param)


@pytest.fixture
def needs_c() -> None:
    """For tests of the C device."""
    need("c")


@pytest.fixture
def needs_webgpu() -> None:
    """For tests of the WebGPU device."""
    need("webgpu")


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound bundle of the kit's model, packed here."""
    return tangkit.make(tmp_path_factory.mktemp("kit") / "kit.tang")
