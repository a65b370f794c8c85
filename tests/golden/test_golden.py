"""Golden kernels: the kernel IR and the text made of it, reviewed, and accepted by real compilers.

`pytest tests/golden --update-goldens` writes them anew; review the difference. A golden shows alternates of a program's steps
for one class: `c` is cpu-x86-64-v3 (eight lanes, on every host), `wgsl` is browser, where tiles are unrolled: only the matrix
product shows them, the others their plain schedule. The compilers get all alternates.
"""

from __future__ import annotations

import functools
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import devicekit
import golden_programs
import pytest

from tang_edge import compiler
from tang_edge.c_fallback.library import Library
from tang_edge.ir.kernel import Kernel
from tang_edge.ir.kernel_parse import parse_kernel
from tang_edge.ir.kernel_text import print_kernel
from tang_edge.schedule import choose, variant
from tang_edge.schedule.limits import CLASSES
from tang_edge.wgsl.module import kernel_module

HERE = Path(__file__).parent
TINT = "webgpu@0.4.0"  # later builds want a libstdc++ of GCC 13
WARNINGS = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-Wno-unused-variable", "-Wno-unused-parameter")
CLASS = {"c": "cpu-x86-64-v3", "wgsl": "browser"}
SHOWN = {"matmul": ("workgroup", "registers"), "bias": ("vectors", "points")}
every_program = pytest.mark.parametrize("name", golden_programs.PROGRAMS)


@functools.cache
def scheduled(name: str, target: str) -> variant.Variant:
    """The variant of a program, not rewritten: the kernels of exactly these binds."""
    return variant.build(golden_programs.program(name), CLASSES[CLASS[target]], choose.Defaults((), None))


def alternates(v: variant.Variant) -> list[tuple[str, str, Kernel]]:
    """(bind, tag, kernel) of every alternate."""
    return [(s.bind.name, a.tag, k) for s in variant.flat(v.steps) for a in s.alternates for k in a.kernels]


def modes(k: Kernel) -> list[str]:
    """Binding modes as the plan gives them to kernels without constants."""
    return ["read_write"] * len(k.buffers)


def text_of(v: variant.Variant, target: str, k: Kernel) -> str:
    """The emitted text of one kernel."""
    if target == "wgsl":
        return kernel_module(k, v.limits, "golden", modes(k))[1]
    library = Library(v)
    name, _ = library.kernel(k, "golden")
    return "\n".join(library.units[name]) + "\n"


def golden_text(name: str, target: str) -> str:
    """The content of a golden file."""
    v = scheduled(name, target)
    parts = []
    for bind, tag, k in alternates(v):
        if target == "wgsl" and tag not in SHOWN.get(name, ("points",)):
            continue
        parts.append(f"==== {bind}, {tag}: kernel\n{print_kernel(k)}==== {bind}, {tag}: {target}\n{text_of(v, target, k)}")
    return "\n".join(parts)


@pytest.mark.parametrize("target", ["c", "wgsl"])
@every_program
def test_golden(name: str, target: str, update_goldens: bool) -> None:
    path, text = HERE / target / f"{name}.txt", golden_text(name, target)
    if update_goldens:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.exists(), "no golden yet: pytest tests/golden --update-goldens"
    assert path.read_text(encoding="utf-8") == text, "the kernel changed: review it, then pytest --update-goldens"


@every_program
def test_kernels_read_back(name: str) -> None:
    for target in CLASS:
        for _, _, k in alternates(scheduled(name, target)):
            assert parse_kernel(print_kernel(k)) == k


def compilers() -> list[tuple[str, ...]]:
    """Commands of the C compilers here."""
    found = [(c,) for c in ("gcc", "clang") if shutil.which(c)]
    return [*found, *([(sys.executable, "-m", "ziglang", "cc")] if importlib.util.find_spec("ziglang") else [])]


@pytest.mark.parametrize("compiler_name", ["gcc", "clang", "ziglang"])
def test_c_compiles_without_warnings(compiler_name: str, tmp_path: Path) -> None:
    command = next((c for c in compilers() if compiler_name in " ".join(c)), None)
    if command is None:
        pytest.skip(f"{compiler_name} is not installed")
    for name in golden_programs.PROGRAMS:
        made = compiler.build_variant(golden_programs.program(name), CLASSES[CLASS["c"]])
        source = tmp_path / f"{name}.c"
        source.write_text(made.text)
        flags = ("-std=gnu11", "-O1", "-mavx2", "-mfma", *WARNINGS, "-c", "-o", str(tmp_path / f"{name}.o"))
        done = subprocess.run([*command, *flags, str(source)], capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, f"{name}: {done.stderr[:3000]}"


def modules() -> dict[str, str]:
    """Every WGSL module, by a name for messages."""
    out = {}
    for name in golden_programs.PROGRAMS:
        v = scheduled(name, "wgsl")
        for n, (bind, tag, k) in enumerate(alternates(v)):
            out[f"{name}-{bind}-{tag}-{n}"] = text_of(v, "wgsl", k)
    return out


@pytest.mark.device
def test_naga_accepts() -> None:
    """wgpu's compiler, through the adapter that is here."""
    if devicekit.missing("webgpu"):
        pytest.skip(devicekit.missing("webgpu"))
    from tang_edge.wgsl import gpu

    device = gpu.adapters()[0][0].handle.request_device_sync()
    for name, text in modules().items():
        try:
            module = device.create_shader_module(code=text)
            device.create_compute_pipeline(layout="auto", compute={"module": module, "entry_point": "main"})
        except Exception as error:
            raise AssertionError(f"{name}: {error}\n{text}") from error


@functools.cache
def tint() -> Path | str:
    """The npm package `webgpu` (Dawn), installed into the checkout's cache, or the reason why it is not there."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        return "node and npm are not installed"
    folder = HERE.parents[1] / ".cache" / "tint"
    module = folder / "node_modules" / "webgpu" / "index.js"
    if not module.exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), TINT]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode != 0 or not module.exists():
            return f"npm cannot install {TINT}: {done.stderr[-300:]}"
    done = subprocess.run([node, str(HERE / "tint.mjs"), str(module)], capture_output=True, text=True, timeout=60, check=False)
    return module if "done" in done.stdout else f"{TINT} does not start here: {done.stderr.strip()[-300:]}"


def test_tint_accepts(tmp_path: Path) -> None:
    """Chrome's compiler: it also checks that barriers are in uniform control flow."""
    module = tint()
    if isinstance(module, str):
        pytest.skip(module)
    files = []
    for name, text in modules().items():
        files.append(tmp_path / f"{name}.wgsl")
        files[-1].write_text(text)
    command = [shutil.which("node") or "node", str(HERE / "tint.mjs"), str(module), *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip() == "done", (done.stdout + done.stderr)[:4000]
