"""The command as a process: entry point, exit codes, and the base install without the compiler's packages."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import clikit
import pytest

COMPILER = ("onnx", "google.protobuf", "safetensors", "jsonschema")


def process(*arguments: object, without: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """`tang-edge` in a process of its own, where the packages named in `without` cannot be imported."""
    script = f"import sys; sys.modules.update(dict.fromkeys({list(without)!r})); from tang_edge.cli import main; main()"
    command = [sys.executable, "-c", script, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)


def test_help_and_version():
    done = process("--help")
    assert done.returncode == 0
    for command in ("pack", "run", "inspect", "explain", "bisect", "doctor"):
        assert command in done.stdout
    assert "tang-edge 0." in process("--version").stdout
    assert process().returncode == 2 and process("nonsense").returncode == 2


@pytest.mark.usefixtures("needs_c")
def test_a_bundle_runs_without_the_compiler(bundle):
    done = process("run", bundle, "--device", "c", "--repeat", 1, "--json", without=COMPILER)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outputs"]["y"]["shape"] == [1, 4]
    assert process("inspect", bundle, without=COMPILER).returncode == 0


def test_doctor_without_the_compiler():
    assert process("doctor", without=COMPILER).returncode == 0


@pytest.mark.parametrize("command", ["pack", "explain"])
def test_what_to_install_for_the_compiler(mlp, command):
    done = process(command, mlp, without=COMPILER)
    assert done.returncode == 1
    assert "pip install 'tang-edge[compiler]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_to_install_for_bisect(bundle, mlp):
    done = process("bisect", bundle, mlp, without=COMPILER)
    assert done.returncode == 1 and "tang-edge[compiler]" in done.stderr


@pytest.mark.usefixtures("needs_c")
def test_what_to_install_for_comparing_and_pictures(bundle, mlp, pictures, tmp_path):
    done = process("run", bundle, "--device", "c", "--compare-ort", mlp, without=("onnxruntime",))
    assert done.returncode == 1 and "pip install onnxruntime" in done.stderr
    (tmp_path / "p.png").write_bytes(b"")
    given = ("--input", f"image={tmp_path / 'p.png'}")
    done = process("run", pictures["NCHW"], "--device", "c", *given, without=("PIL.Image", "PIL"))
    assert done.returncode == 1 and "pip install pillow" in done.stderr


def test_errors_go_to_standard_error(tmp_path):
    done = process("pack", clikit.unknown(tmp_path / "u.onnx"), "-o", tmp_path / "u.tang")
    assert done.returncode == 1 and done.stdout == "" and "Frobnicate" in done.stderr


def test_a_bug_of_ours_asks_for_a_report(mlp, tmp_path):
    script = (
        "from tang_edge import compiler; from tang_edge.errors import CompilerBug; import sys\n"
        "def broken(*a, **k): raise {error}\n"
        "compiler.pack = broken; from tang_edge.cli import main; main()"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    for error in ("CompilerBug('invariant 3', where='y')", "KeyError('x')"):
        command = [sys.executable, "-c", script.format(error=error)]
        options = {"capture_output": True, "text": True, "env": environment, "timeout": 300, "check": False}
        done = subprocess.run([*command, "pack", str(mlp)], **options, cwd=tmp_path)
        assert done.returncode == 4 and "Please report" in done.stderr and "Traceback" not in done.stderr
        done = subprocess.run([*command, "--debug", "pack", str(mlp)], **options, cwd=tmp_path)
        assert done.returncode == 4 and "Traceback" in done.stderr
