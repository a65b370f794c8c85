"""What tests of the compiler in the page share: Pyodide's folder with a wheel of the package under test, and the scripts."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tang_edge

ROOT = Path(__file__).resolve().parents[2]
DEMOS = ROOT / "demos"
sys.path.append(str(ROOT / "tools"))
build_page_wheel, fetch_pyodide = map(importlib.import_module, ("build_page_wheel", "fetch_pyodide"))


def pyodide_folder(dest: Path) -> Path:
    """The fetched folder, with the wheel made of the package that is imported here in place of its own."""
    fetched = Path(os.environ.get("TANG_EDGE_PYODIDE") or ROOT / ".cache" / "pyodide")
    lock = fetched / fetch_pyodide.LOCK
    if not lock.is_file():
        pytest.skip(f"{lock} is not there: make pyodide, or set TANG_EDGE_PYODIDE")
    dest.mkdir()
    for file in fetched.iterdir():
        if file != lock and not file.name.startswith("tang_edge-"):
            shutil.copy(file, dest)
    wheel = build_page_wheel.of_folder(Path(tang_edge.__file__).parent, dest)
    facts = json.loads(lock.read_text())
    others = [name for name in facts["packages"] if name != fetch_pyodide.OURS]
    entry = fetch_pyodide.entry(fetch_pyodide.OURS, wheel.name, wheel.read_bytes(), ["tang_edge"], others)
    facts["packages"][fetch_pyodide.OURS] = entry
    (dest / lock.name).write_text(json.dumps(facts))
    return dest


def scripts(dest: Path) -> Path:
    """demos/compiler built as the site builds it: index.js, compiler-worker.js, python.js."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is missing (tools/system_packages.sh npm)")
    if not (DEMOS / "node_modules" / ".package-lock.json").exists():
        subprocess.run([npm, "ci", "--no-audit", "--no-fund", "--loglevel=error"], cwd=DEMOS, check=True)
    entries = {"index": "index.ts", "compiler-worker": "worker.ts", "python": "python.ts"}
    command = [
        str(DEMOS / "node_modules" / ".bin" / "esbuild"),
        "--bundle",
        "--format=esm",
        "--target=es2022",
        f"--outdir={dest}",
    ]
    command += [f"{name}=compiler/{file}" for name, file in entries.items()]
    subprocess.run([*command, "--log-level=warning"], cwd=DEMOS, check=True)
    shutil.copy(dest / "python.js", dest / "python.mjs")  # what Node takes for a module
    return dest
