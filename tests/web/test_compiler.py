"""The compiler in the page, under Node and in Chromium: the command line's bundle, events, errors, cancelling."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parent))

import pagekit

from tang_edge.bundle import tensors
from tang_edge.bundle.read import open_bundle
from tang_edge.compiler import pack

HERE = Path(__file__).parent
MODELS = ("go2-policy", "reachy-fk-dynamic", "ppocr-cls", "oww-jarvis")
START = """async (extra) => {
  const { Compiler } = await import("/compiler/index.js");
  window.stages = [];
  window.compiler = await Compiler.start({ baseUrl: "/pyodide/", onStage: (...stage) => window.stages.push(stage), ...extra });
  return [window.stages.length, window.stages.at(-1), crossOriginIsolated];
}"""
COMPILE = """async ({ url, name, stopAt, cut }) => {
  const bytes = await (await fetch(url)).arrayBuffer(), events = [], stop = new AbortController();
  try {
    const made = await window.compiler.compile(cut ? bytes.slice(0, cut) : bytes, { name, signal: stop.signal }, (event) => {
      events.push(event);
      if (event.kind === stopAt) stop.abort();
    });
    const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", made.bundle));
    const hex = [...hash].map((b) => b.toString(16).padStart(2, "0")).join("");
    return { events, report: made.report, size: made.bundle.length, hash: hex };
  } catch (error) {
    const { name: kindOfError, message, kind, where, remedy } = error;
    return { events, error: { name: kindOfError, message, kind, where, remedy } };
  }
}"""


def model_file(name: str) -> Path:
    """A fetched model."""
    path = Path(os.environ.get("TANG_EDGE_MODELS") or pagekit.ROOT / "models") / f"{name}.onnx"
    if not path.is_file():
        pytest.skip(f"{path} is not there: make models, or set TANG_EDGE_MODELS")
    return path


@pytest.fixture(scope="module")
def pyodide(tmp_path_factory) -> Path:
    return pagekit.pyodide_folder(tmp_path_factory.mktemp("page") / "pyodide")


@pytest.fixture(scope="module")
def scripts(tmp_path_factory, web_dist) -> Path:
    return pagekit.scripts(tmp_path_factory.mktemp("scripts"))


@pytest.fixture(scope="module")
def under_node(tmp_path_factory, pyodide, scripts):
    """Runs jobs in one Node and gives their answers."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is missing (tools/system_packages.sh npm)")

    def run(jobs: list[dict]) -> list[dict]:
        command = [node, str(HERE / "compiling.mjs"), str(scripts / "python.mjs"), str(pyodide), json.dumps(jobs)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


@pytest.fixture(scope="module")
def compiled(under_node, tmp_path_factory):
    """By model: what Node answered, and the bundle."""
    folder = tmp_path_factory.mktemp("node")
    there = [n for n in MODELS if (Path(os.environ.get("TANG_EDGE_MODELS") or pagekit.ROOT / "models") / f"{n}.onnx").is_file()]
    jobs = [{"model": str(model_file(n)), "out": str(folder / f"{n}.tang"), "options": {"name": n}} for n in there]
    return {n: (answer, folder / f"{n}.tang") for n, answer in zip(there, under_node(jobs), strict=True)}


def differing(mine: Path, theirs: Path) -> list[str]:
    """Members that are not the same bytes, besides golden outputs and the manifest, which has their hashes."""
    with zipfile.ZipFile(mine) as a, zipfile.ZipFile(theirs) as b:
        assert a.namelist() == b.namelist()
        apart = ("golden/", "manifest.json", "manifest.sha256")
        return [n for n in a.namelist() if not n.startswith(apart) and a.read(n) != b.read(n)]


def goldens(path: Path) -> dict[str, np.ndarray]:
    """The self-test vectors of a bundle."""
    with open_bundle(path) as bundle:
        return {k: np.array(v) for k, v in tensors.read(memoryview(bundle.member("golden/0.safetensors")), str(path)).items()}


def same_bundle(page: Path, command_line: Path) -> None:
    """Plan, kernels, weights and the rest of the manifest byte for byte; golden inputs exactly, golden outputs to rounding."""
    assert differing(page, command_line) == []
    mine, theirs = goldens(page), goldens(command_line)
    assert mine.keys() == theirs.keys()
    for name, value in mine.items():
        if name.startswith("in/"):
            np.testing.assert_array_equal(value, theirs[name], err_msg=name)
        else:
            np.testing.assert_allclose(value, theirs[name], rtol=1e-6, atol=1e-9, err_msg=name)
    heads = []
    for path in (page, command_line):
        with zipfile.ZipFile(path) as z:
            manifest = json.loads(z.read("manifest.json"))
        manifest["files"].pop("golden/0.safetensors")
        heads.append(manifest)
    assert heads[0] == heads[1]


@pytest.mark.parametrize("name", MODELS)
def test_the_bundle_is_that_of_the_command_line(name, compiled, tmp_path):
    path = model_file(name)
    answer, bundle = compiled[name]
    assert "failure" not in answer, answer["failure"]
    pack(path, tmp_path / "cli.tang", targets=("webgpu",), remember=False)
    same_bundle(bundle, tmp_path / "cli.tang")
    report = answer["report"]
    assert report["bytes"] == bundle.stat().st_size and answer["text"] > 0
    assert answer["kinds"]["kernel"] == sum(v["kernels"] for v in report["variants"])
    print(f"{name}: {answer['seconds']:.1f} s under Node")


def test_what_cannot_be_compiled_is_said(under_node, tmp_path):
    """In a Python that goes on: each of these is an answer, and the last model compiles."""
    good = model_file("reachy-fk-dynamic")
    raw = good.read_bytes()
    (tmp_path / "cut.onnx").write_bytes(raw[: len(raw) // 2])
    (tmp_path / "noise.onnx").write_bytes(bytes((i * 2654435761 >> 11) & 255 for i in range(50_000)))
    (tmp_path / "empty.onnx").write_bytes(b"")
    bad_text = raw.replace(b"Gemm", b"\xffemm", 1)
    (tmp_path / "text.onnx").write_bytes(bad_text)
    out = str(tmp_path / "out.tang")
    files = ("cut", "noise", "empty", "text")
    jobs = [{"model": str(tmp_path / f"{n}.onnx"), "out": out, "options": {"name": n}} for n in files]
    jobs.append({"model": str(good), "out": out, "options": {"name": "x", "dims": {"Q": [1, 2]}}})
    jobs.append({"model": str(good), "out": out, "options": {"name": "x", "target": "toaster"}})
    jobs.append({"model": str(good), "out": out, "options": {"name": "x"}, "stopAt": "pass"})
    jobs.append({"model": str(good), "out": out, "options": {"name": "x", "dims": {"N": [1, 8]}}})
    *failed, dims, target, stopped, made = under_node(jobs)
    for name, answer in zip(files, failed, strict=True):
        assert answer["failure"]["kind"] == "UnsupportedModel", answer
        assert answer["failure"]["where"] == f"{name}.onnx" and answer["failure"]["remedy"], answer
    assert dims["failure"]["kind"] == "InputError" and "'Q'" in dims["failure"]["message"]
    assert target["failure"]["kind"] == "TargetLimit" and "webgpu" in target["failure"]["remedy"]
    assert stopped["failure"]["kind"] == "Cancelled" and "kernel" not in stopped["kinds"]
    assert made["report"]["dims"] == ["N: 1..8"]


# ---------------------------------------------------------------- in Chromium


@pytest.fixture
def site(page, server, pyodide, scripts):
    """The page, with the compiler's scripts, Pyodide and the models on its server."""
    server.mount("/compiler", scripts)
    server.mount("/pyodide", pyodide)
    server.mount("/models", model_file("reachy-fk-dynamic").parent)
    page.set_default_timeout(300_000)
    return page


@pytest.mark.device
def test_a_model_compiles_in_the_page(site, server, compiled):
    stages, last, isolated = site.evaluate(START, {})
    assert stages == 5 and last[1:] == [4, 4] and not isolated
    made = site.evaluate(COMPILE, {"url": "/models/reachy-fk-dynamic.onnx", "name": "reachy-fk-dynamic"})
    assert "error" not in made, made["error"]
    # the same Python, wheel and NumPy as under Node: the whole file is the same
    assert made["hash"] == fetch_hash(compiled["reachy-fk-dynamic"][1])
    passes = [e for e in made["events"] if e["kind"] == "pass"]
    assert passes[0]["name"] == "import" and passes[0]["before"] is None and "bind" in passes[0]["after"]
    for before, after in itertools.pairwise(passes):
        assert after["before"] == before["after"] and after["changed"] == (after["before"] != after["after"])
    assert any(p["changed"] for p in passes[1:])
    kernels = [e for e in made["events"] if e["kind"] == "kernel"]
    assert kernels and all("fn main" in k["text"] and k["variant"] == "webgpu-browser" for k in kernels)
    assert {e["name"] for e in made["events"] if e["kind"] == "stage"} >= {
        "rewrite",
        "schedule browser",
        "self-test vectors",
        "write",
    }
    text = site.evaluate("() => window.compiler.passText('fuse')")
    assert text.startswith("tang-ir ")
    assert {r.status for r in server.log if r.path.startswith("/pyodide/")} == {200}

    broken = site.evaluate(COMPILE, {"url": "/models/reachy-fk-dynamic.onnx", "name": "broken", "cut": 20_000})
    assert broken["error"]["name"] == "CompileError" and broken["error"]["kind"] == "UnsupportedModel"
    assert broken["error"]["where"] == "broken.onnx" and "truncated" in broken["error"]["message"] and broken["error"]["remedy"]

    # without SharedArrayBuffer the worker ends, and the next compile starts another
    stopped = site.evaluate(COMPILE, {"url": "/models/reachy-fk-dynamic.onnx", "name": "x", "stopAt": "kernel"})
    assert stopped["error"]["name"] == "AbortError" and "report" not in stopped
    again = site.evaluate(COMPILE, {"url": "/models/reachy-fk-dynamic.onnx", "name": "reachy-fk-dynamic"})
    assert again["hash"] == made["hash"]


def fetch_hash(path: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.device
def test_python_is_interrupted_where_memory_is_shared(site, server):
    server.faults.isolated = True
    site.goto(server.url + "/")
    *_, isolated = site.evaluate(START, {})
    assert isolated
    before = len(server.requests("pyodide.asm.wasm"))
    stopped = site.evaluate(COMPILE, {"url": "/models/reachy-fk-dynamic.onnx", "name": "x", "stopAt": "pass"})
    assert stopped["error"]["name"] == "AbortError"
    made = site.evaluate(COMPILE, {"url": "/models/reachy-fk-dynamic.onnx", "name": "x"})
    assert made["report"]["bytes"] == made["size"]
    assert len(server.requests("pyodide.asm.wasm")) == before  # the same Python went on


@pytest.mark.device
@pytest.mark.parametrize(("only", "what"), [("pyodide.asm.mjs", "Python"), (".whl", "package")])
def test_a_folder_that_lacks_files_is_said(site, server, only, what):
    server.faults.only, server.faults.status = only, 404
    error = site.evaluate("async () => { try { await (" + START + ")({}) } catch (e) { return [e.name, e.kind, e.message] } }")
    assert error[:2] == ["CompileError", "NetworkError"] and what in error[2], error
