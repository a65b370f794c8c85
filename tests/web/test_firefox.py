"""The package in Firefox, on both devices: another engine for WebAssembly, another compiler (naga) for WGSL.

Firefox keeps software adapters from pages; the test's preferences let it have one. Where it still offers none, WebGPU skips.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import webkit

from tang_edge import compiler
from tests.models import real_inputs

onnxruntime = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.device

HERE = Path(__file__).parent / "firefox"
MODELS = {"go2-policy": (1, 45), "ppocr-cls": (1, 3, 48, 192)}

SCRIPT = """(async () => {
  const { load } = await import("/dist/index.js");
  const DEVICE = %s, FEED = %s;
  const adapter = await navigator.gpu?.requestAdapter();
  if (DEVICE === "webgpu" && !adapter) return { none: true };
  const model = await load("/model.tang", { device: DEVICE, verify: "before" });
  const bytes = Uint8Array.from(atob(FEED.data), (c) => c.charCodeAt(0));
  const x = { dtype: "f32", shape: FEED.shape, data: new Float32Array(bytes.buffer) };
  const outputs = await model.run({ [FEED.name]: x });
  const again = await load("/model.tang", { device: DEVICE, verify: "off" });
  return {
    device: model.report.device,
    selfTest: model.report.selfTest,
    demotions: model.report.demotions,
    storage: again.report.storage.kind,
    downloaded: again.report.bytes.downloaded,
    outputs: Object.values(outputs).map((t) => [t.shape, [...t.data].map(Number)]),
  };
})()"""


@pytest.fixture(scope="module")
def firefox() -> str:
    path = shutil.which("firefox-esr") or shutil.which("firefox")
    if path is None or shutil.which("npm") is None:
        pytest.skip("Firefox or npm is missing (tools/system_packages.sh firefox node)")
    if not (HERE / "node_modules").is_dir():
        command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        subprocess.run(command, cwd=HERE, check=True)
    return path


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {"folder": tmp_path_factory.mktemp("firefox")}


@pytest.mark.parametrize("device", ("wasm", "webgpu"))
@pytest.mark.parametrize("name", MODELS)
def test_a_model_in_firefox(firefox, server, bundles, name: str, device: str) -> None:
    source = real_inputs.model_path(name)
    if not source.exists():
        pytest.skip(f"{source} is not fetched")
    if name not in bundles:
        bundles[name] = bundles["folder"] / f"{name}.tang"
        report = compiler.pack(source, bundles[name], targets=("browser",))
        assert len(report.variants) == 2, report.notes
    server.put("/model.tang", bundles[name].read_bytes())
    feeds = real_inputs.inputs(name, real_inputs.Size("own", MODELS[name]), kind="random", seed=3)
    ((key, value),) = feeds.items()
    feed = {"name": key, "shape": list(value.shape), "data": webkit.encoded(feeds)[key][2]}
    script = SCRIPT % (json.dumps(device), json.dumps(feed))
    command = ["node", "drive.mjs", firefox, server.url + "/"]
    done = subprocess.run(command, cwd=HERE, input=script, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    if found.get("none"):
        pytest.skip("this Firefox offers no WebGPU adapter")
    assert (found["device"], found["selfTest"]["outcome"], found["demotions"]) == (device, "passed", [])
    assert found["storage"] != "none" and found["downloaded"] < 100_000  # the manifest at most
    wanted = onnxruntime.InferenceSession(str(source), providers=["CPUExecutionProvider"]).run(None, feeds)
    for (shape, values), want in zip(found["outputs"], wanted, strict=True):
        assert tuple(shape) == want.shape
        got = np.array(values).reshape(shape)
        assert np.linalg.norm(got - want) <= 1e-4 * np.linalg.norm(want)
