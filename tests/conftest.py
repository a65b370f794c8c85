"""What all tests share: drivers want a private run-time folder, and no test touches the user's trust file."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

if not os.environ.get("XDG_RUNTIME_DIR"):
    os.environ["XDG_RUNTIME_DIR"] = tempfile.mkdtemp(prefix="tang-edge-test-run-")  # mkdtemp makes it 0700
os.environ.setdefault("TANG_EDGE_CONFIG", tempfile.mkdtemp(prefix="tang-edge-test-config-"))

for helpers in ("runtime", "backends", "schedule"):  # hand-written bundles (tangkit), programs on devices, random programs
    sys.path.append(str(Path(__file__).parent / helpers))
