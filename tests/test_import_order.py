"""The import order of the package, read from the source: who may know whom.

    errors < ir < (onnx_in, rewrite) < schedule < emit < dialects < units < compiler < cli
    errors < bundle < runtime, hosts           (nothing of the compiler)

`AREAS` is the whole rule. A module belongs to the area with the longest matching prefix, and may import its
own area and those listed. Imports inside functions and under TYPE_CHECKING count: they are knowledge too. A
module of no area fails, so that a new package is placed on purpose.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "tang_edge"


@dataclass(frozen=True, slots=True)
class Area:
    """What the modules of one area may import: other areas, and packages outside the standard library.

    `lazy` packages are imported inside functions only: without them the rest of the area works.
    """

    knows: frozenset[str]
    packages: frozenset[str] = frozenset()
    lazy: frozenset[str] = frozenset()


def _area(knows: str = "", packages: str = "", lazy: str = "") -> Area:
    return Area(frozenset(knows.split()), frozenset(packages.split()), frozenset(lazy.split()))


_COMPILER = "errors ir onnx_in rewrite schedule emit dialects units bundle observe vectors"
_HOST = _area("errors bundle bundle.expr runtime", "numpy wgpu")

AREAS: dict[str, Area] = {
    "": _area("errors bundle runtime"),  # tang_edge/__init__.py: load() for those who only run bundles
    "errors": _area(),
    # the compiler, from left to right
    "ir": _area("errors", "numpy"),
    "onnx_in": _area("errors ir", "numpy onnx google"),  # google.protobuf, which onnx itself needs
    "rewrite": _area("errors ir", "numpy"),
    "schedule": _area("errors ir rewrite", "numpy"),
    # what is emitted is a scheduled variant: its device class, its kernels, its buffer plan
    "emit": _area("errors ir schedule"),
    # parts of it: what it tells those who watch, and the vectors of the self-test
    "observe": _area("errors ir rewrite"),
    "vectors": _area("errors ir schedule bundle bundle.expr bundle.write", "numpy"),
    "compiler": _area(_COMPILER + " bundle.expr bundle.write runtime hosts", "numpy onnx"),
    # a target: a dialect table for the printer, the unit that puts a module or a library around printed kernels, and a host
    # that runs it
    "dialects": _area("errors ir emit"),
    "units": _area("errors ir schedule emit dialects"),
    "hosts": _HOST,
    # the bridge, and those who run bundles
    "bundle.expr": _area("errors"),
    "bundle": _area("errors bundle.expr", "numpy"),
    "bundle.write": _area("errors bundle bundle.expr", "numpy jsonschema"),  # schema checks at pack time only
    "runtime": _area("errors bundle bundle.expr hosts", "numpy wgpu"),
    # the compiler's face to a page: what it reaches is what the page's wheel holds
    "page": _area("errors ir rewrite onnx_in observe compiler"),
    # pictures, the comparison with ONNX Runtime and the demo's server need packages that most users do without
    "cli": _area(
        _COMPILER + " bundle.expr bundle.write runtime hosts compiler",
        "numpy typer rich onnx",
        "PIL onnxruntime starlette uvicorn",
    ),
}

# Packages that hold a target: the modules named here are its dialect and its unit, the others its host.
TARGETS = ("wgsl", "c_fallback")
DIALECT_MODULES = ("dialect", "functions")
UNIT_MODULES = ("module", "library")


def area_of(module: str) -> str | None:
    """The area of `tang_edge.x.y`, or None."""
    parts = module.split(".")[1:]
    if parts and parts[0] in TARGETS:
        name = parts[1] if len(parts) > 1 else ""
        return "dialects" if name in DIALECT_MODULES else "units" if name in UNIT_MODULES else "hosts"
    for length in range(len(parts), 0, -1):
        if (name := ".".join(parts[:length])) in AREAS:
            return name
    return None if parts else ""


def modules(root: Path) -> dict[str, Path]:
    """Every module of the package under `root`, by its dotted name."""
    found = {}
    for file in sorted((root / PACKAGE).rglob("*.py")):
        parts = file.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def imports(module: str, file: Path, known: dict[str, Path]) -> Iterator[tuple[int, str, bool]]:
    """(line, dotted name, inside a function) of each import in a file; `from package import submodule` names the submodule."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    functions = [n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
    inside = {id(n) for f in functions for n in ast.walk(f)}
    for node in ast.walk(tree):
        for line, name in _imported(node, module, file, known):
            yield line, name, id(node) in inside


def _imported(node: ast.AST, module: str, file: Path, known: dict[str, Path]) -> Iterator[tuple[int, str]]:
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield node.lineno, alias.name
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*above, base] if base else above)
        for alias in node.names:
            full = f"{base}.{alias.name}"
            yield node.lineno, full if full in known else base
    elif isinstance(node, ast.Call) and node.args and _is_dynamic(node.func):
        name = node.args[0]
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            yield node.lineno, name.value


def _is_dynamic(function: ast.expr) -> bool:
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in ("import_module", "__import__")


def violations(root: Path) -> list[str]:
    """Every import that `AREAS` does not allow, as `file:line: text`."""
    known = modules(root)
    found = []
    for module, file in known.items():
        area = area_of(module)
        place = file.relative_to(root).as_posix()
        if area is None:
            found.append(f"{place}:1: {module} belongs to no area of AREAS")
            continue
        for line, name, inside in imports(module, file, known):
            reason = _refusal(area, name, inside)
            if reason:
                found.append(f"{place}:{line}: {reason}")
    return found


def _refusal(area: str, name: str, inside: bool) -> str | None:
    top = name.split(".")[0]
    if top == PACKAGE:
        target = area_of(name)
        if target in (area, "") or target in AREAS[area].knows:
            return None
        return f"{area or PACKAGE} may not import {name} (area {target})"
    if top in sys.stdlib_module_names or top in AREAS[area].packages or (inside and top in AREAS[area].lazy):
        return None
    return f"{area or PACKAGE} may not import the package {top}"


def test_the_package_keeps_the_order() -> None:
    assert modules(ROOT), "no module found: the test would prove nothing"
    assert violations(ROOT) == []


def test_the_table_names_real_areas() -> None:
    for name, area in AREAS.items():
        assert area.knows <= AREAS.keys(), name


def test_running_needs_nothing_of_the_compiler() -> None:
    """What a robot or a page loads reaches no compiler area, however long the way."""
    compiler = {
        "ir",
        "onnx_in",
        "rewrite",
        "schedule",
        "emit",
        "dialects",
        "units",
        "compiler",
        "observe",
        "vectors",
    }
    reached, waiting = set(), {"", "runtime", "bundle", "hosts"}
    while waiting:
        area = waiting.pop()
        reached.add(area)
        waiting |= AREAS[area].knows - reached
    assert reached & compiler == set()


@pytest.mark.parametrize(
    ("module", "source", "refused"),
    [
        ("runtime/bad.py", "from tang_edge.ir import tensor", "runtime may not import tang_edge.ir"),
        (
            "runtime/bad.py",
            "def f():\n    from tang_edge import compiler",
            "may not import tang_edge.compiler",
        ),
        (
            "runtime/bad.py",
            "from ..schedule import limits",
            "runtime may not import tang_edge.schedule",
        ),
        ("runtime/bad.py", "import importlib\nimportlib.import_module('tang_edge.emit')", "tang_edge.emit"),
        ("runtime/bad.py", "import onnx", "runtime may not import the package onnx"),
        ("bundle/bad.py", "import jsonschema", "bundle may not import the package jsonschema"),
        ("emit/bad.py", "from tang_edge.wgsl import dialect", "emit may not import tang_edge.wgsl"),
        ("wgsl/module.py", "from tang_edge.runtime import device", "units may not import tang_edge.runtime"),
        ("cli/bad.py", "import onnxruntime", "cli may not import the package onnxruntime"),
        (
            "schedule/bad.py",
            "import tang_edge.emit.printer",
            "schedule may not import tang_edge.emit.printer",
        ),
        ("ir/bad.py", "from tang_edge.rewrite import fuse", "ir may not import tang_edge.rewrite"),
        ("errors.py", "from tang_edge.ir import dtype", "errors may not import tang_edge.ir"),
        (
            "wgsl/dialect.py",
            "from tang_edge.runtime import device",
            "dialects may not import tang_edge.runtime",
        ),
        ("c_fallback/host.py", "from tang_edge.emit import printer", "hosts may not import tang_edge.emit"),
        ("somewhere/new.py", "", "tang_edge.somewhere.new belongs to no area"),
    ],
)
def test_it_can_fail(module: str, source: str, refused: str, tmp_path: Path) -> None:
    for extra in ("compiler", "schedule/limits", "emit/__init__", "ir/tensor"):
        stub = tmp_path / PACKAGE / f"{extra}.py"
        stub.parent.mkdir(parents=True, exist_ok=True)
        stub.write_text("")
    file = tmp_path / PACKAGE / module
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source)
    found = violations(tmp_path)
    assert len(found) == 1 and refused in found[0], found


def test_allowed_imports_pass(tmp_path: Path) -> None:
    good = {
        "emit/printer.py": "from tang_edge.schedule import limits\nfrom tang_edge.ir.kernel import Kernel",
        "schedule/limits.py": "import dataclasses",
        "cli/pictures.py": "def f():\n    import importlib\n    return importlib.import_module('PIL.Image')",
        "ir/kernel.py": "import numpy as np\nfrom .. import errors",
        "errors.py": "from __future__ import annotations",
        "compiler.py": "from tang_edge import emit, schedule",
    }
    for module, source in good.items():
        file = tmp_path / PACKAGE / module
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)
    assert violations(tmp_path) == []
