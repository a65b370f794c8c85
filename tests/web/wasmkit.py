"""Bundles with the WebAssembly variant alone, compiled quickly, and the package under Node."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tang_edge import compiler
from tang_edge.bundle import write as bundle_write
from tang_edge.c_fallback import prebuild
from tang_edge.ir.tensor import Program
from tang_edge.schedule.limits import CLASSES

ONE = ("wasm32-simd",)
BOTH = ("wasm32-simd", "wasm32-simd-threads")
DRIVER = Path(__file__).parent / "wasm_driver.mjs"


@functools.cache
def missing() -> str:
    """Why no WebAssembly library can be made here, or ""."""
    return "" if importlib.util.find_spec("ziglang") else "the package ziglang is not installed (pip install tang-edge[dev])"


@functools.cache
def node_missing() -> str:
    """Why nothing runs under Node here, or ""."""
    return "" if shutil.which("node") else "node is missing (tools/system_packages.sh node)"


@contextlib.contextmanager
def quick() -> Iterator[None]:
    """Compile with -O1: most of the time of small cases would go into the optimiser."""
    kept = dict(prebuild.WASM)
    prebuild.WASM.update({k: tuple("-O1" if f == "-O3" else f for f in flags) for k, flags in kept.items()})
    try:
        yield
    finally:
        prebuild.WASM.update(kept)


def write_bundle(program: Program, path: Path, libraries: Sequence[str] = ONE) -> Path:
    """A bundle of an (optimised) program for WebAssembly alone; no golden vectors."""
    made = [compiler.build_variant(program, replace(CLASSES["wasm-simd"], libraries=tuple(libraries)))]
    plan, members = compiler.assemble(program, made)
    with quick():
        compiler.add_libraries(made, (), members)
    constants = ((c.name, np.asarray(c.data)) for c in program.constants)
    bundle_write.write(path, name=program.name, plan=plan, members=members, constants=constants)
    return path


def under_node(dist: Path, tasks: Sequence[dict[str, Any]], timeout: float = 600) -> list[dict[str, Any]]:
    """The answers of wasm_driver.mjs, which runs with memory that nobody wrote filled with 0xFF."""
    command = ["node", str(DRIVER), (dist / "index.js").as_uri()]
    text = "\n".join(json.dumps(t) for t in tasks)
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
