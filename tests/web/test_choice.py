"""Which device runs a bundle, what the report says of it, and that a measurement is remembered."""

from __future__ import annotations

import bundles
import onnx
import pytest
import webkit
from onnx import TensorProto, helper, numpy_helper

pytestmark = pytest.mark.device

MEASURED = """async (tang, [url, options]) => {
  const model = await tang.load(url, options), first = model.report;
  await model.certified;
  const until = performance.now() + 30000;
  while (options.wait && Object.keys(model.report.measured).length < 2 && performance.now() < until) {
    await new Promise((done) => setTimeout(done, 20));
  }
  const { measured, selfTest } = model.report;
  model.dispose();
  return { first, measured, outcome: selfTest.outcome };
}"""


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """A small model for WebGPU and WebAssembly."""
    import numpy as np

    pytest.importorskip("ziglang", reason="ziglang is missing: no WebAssembly variant")
    from tang_edge.compiler import pack

    folder = tmp_path_factory.mktemp("choice")
    weights = numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(3, 4), "w")
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4])
    model = helper.make_model(helper.make_graph([node], "m", [x], [y], [weights]), opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, folder / "m.onnx")
    pack(str(folder / "m.onnx"), folder / "m.tang", targets=["browser"], remember=False)
    return folder / "m.tang"


@pytest.fixture
def kit(chromium, web_dist):
    """A page with the package and no memory of others."""
    with webkit.opened(chromium, web_dist) as made:
        yield made


def load(kit, url, **options):
    return kit.perform(MEASURED, [url, options])


def test_both_are_measured_once_and_the_faster_is_remembered(kit, both):
    url = kit.put(both)
    first = load(kit, url, wait=True)
    # the adapter computes on the CPU: WebAssembly comes before it
    assert first["first"]["device"] == "wasm" and first["outcome"].startswith("passed")
    taken = first["first"]["considered"][-1]
    assert taken["taken"] and "computes on the CPU" in taken["why"]
    assert set(first["measured"]) == {"webgpu", "wasm"} and min(first["measured"].values()) > 0
    again = load(kit, url)
    better = min(first["measured"], key=first["measured"].get)
    assert again["first"]["measured"] == first["measured"]
    assert "measured here before" in again["first"]["considered"][-1]["why"]
    if max(first["measured"].values()) > 1.1 * min(first["measured"].values()):
        assert again["first"]["device"] == better


@pytest.mark.parametrize("device", ["webgpu", "wasm"])
def test_as_asked(kit, both, device):
    said = load(kit, kit.put(both), device=device)["first"]
    assert said["device"] == device and said["considered"][-1]["why"] == "as asked"
    other = next(c for c in said["considered"] if not c["taken"])
    assert f"the caller asked for {device}" in other["why"]


def test_without_webgpu(kit, both):
    kit.page.evaluate("() => { Object.defineProperty(navigator, 'gpu', { value: undefined }); }")
    said = load(kit, kit.put(both))["first"]
    assert said["device"] == "wasm"
    assert any("has no WebGPU" in c["why"] and not c["taken"] for c in said["considered"])
    wrong = kit.perform("(tang, url) => tang.failure(tang.load(url, { device: 'webgpu' }))", kit.put(both))
    assert wrong["name"] == "DeviceError" and "has no WebGPU" in wrong["message"]


def test_a_device_that_does_not_open_is_passed_over(kit, both):
    kit.page.evaluate("() => { WebAssembly.compile = async () => { throw new Error('not today'); }; }")
    said = load(kit, kit.put(both))["first"]
    assert said["device"] == "webgpu"
    assert any("not today" in c["why"] and not c["taken"] for c in said["considered"])


def test_a_bundle_with_one_variant(kit, tmp_path):
    said = load(kit, kit.put(bundles.kit(tmp_path / "kit.tang")))["first"]
    assert said["device"] == "webgpu"
    assert {"device": "wasm", "taken": False, "why": "the bundle has no variant for it"} in said["considered"]
    wrong = kit.perform("(tang, url) => tang.failure(tang.load(url, { device: 'gpu' }))", kit.put(tmp_path / "kit.tang"))
    assert wrong["name"] == "InputError" and '"gpu"' in wrong["message"]
