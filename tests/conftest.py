"""What all tests share: drivers want a private run-time folder, and no test touches the user's trust file."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest

if not os.environ.get("XDG_RUNTIME_DIR"):
    os.environ["XDG_RUNTIME_DIR"] = tempfile.mkdtemp(prefix="tang-edge-test-run-")  # mkdtemp makes it 0700
os.environ.setdefault("TANG_EDGE_CONFIG", tempfile.mkdtemp(prefix="tang-edge-test-config-"))

for helpers in ("runtime", "backends", "schedule", "golden"):  # modules that several folders import
    sys.path.append(str(Path(__file__).parent / helpers))


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--update-goldens` writes the golden kernels of tests/golden anew."""
    parser.addoption("--update-goldens", action="store_true", help="write the golden kernels anew; review the difference")


@pytest.fixture
def update_goldens(request: pytest.FixtureRequest) -> bool:
    """True when goldens are to be written."""
    return bool(request.config.getoption("--update-goldens"))
