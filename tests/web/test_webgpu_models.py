"""The acceptance models in the browser, on WebGPU, against ONNX Runtime; a few of them in a worker."""

from __future__ import annotations

import functools

import judging
import pytest
import webkit

pytest.importorskip("PIL")
pytest.importorskip("onnxruntime")

from tang_edge import compiler
from tang_edge.bundle.read import open_bundle
from tests.models import real_inputs

pytestmark = pytest.mark.device

# small legal sizes where the plan leaves a choice: the adapter computes on the CPU
SIZES = {
    "reachy-fk-dynamic": (3, 7),
    "ppocr-det": (1, 3, 32, 64),
    "ppocr-rec": (1, 3, 48, 16),
    "oww-melspec": (1, 1760),
}
SLOW = ("ddddocr-det",)  # of fixed size, half a minute
IN_WORKER = ("go2-policy", "reachy-fk-int8", "oww-jarvis")


# the same run twice, so that the memory of a session is used again; other sizes between them where there are any
RUN = """async (tang, [url, runs]) => {
  const model = await tang.open(url, { verify: "before" }), made = [];
  for (const inputs of runs) made.push(tang.encoded(await model.run(tang.decoded(inputs))));
  const { device, selfTest, demotions } = model.report;
  model.dispose();
  return { made, device, selfTest, demotions };
}"""


@pytest.fixture(scope="module")
def kit(chromium, web_dist):
    with webkit.opened(chromium, web_dist) as made:
        yield made


@functools.cache
def packed(name, folder):
    """A model's bundle for the browser, and the tolerance of its answers."""
    source, path = real_inputs.model_path(name), folder / f"{name}.tang"
    if not source.exists():
        pytest.skip(f"{source} is not fetched")
    compiler.pack(source, path, targets=("webgpu",))
    with open_bundle(path) as bundle:
        return path, bundle.plan.golden[0].rtol


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


def feeds_of(name):
    size = real_inputs.Size("small", SIZES.get(name, real_inputs.SIZES[name][0].shape))
    feeds = real_inputs.inputs(name, size, kind="random", seed=7)
    runs = [feeds] if name in SLOW else [feeds, feeds]
    if name == "reachy-fk-dynamic":
        runs.insert(1, real_inputs.inputs(name, real_inputs.Size("other", (64, 7)), kind="random", seed=8))
    return runs


def check(name, kit, folder, *, worker):
    path, rtol = packed(name, folder)
    runs = feeds_of(name)
    found = kit.perform(RUN, [kit.put(path), [webkit.encoded(r) for r in runs]], worker=worker)
    assert found["device"] == "webgpu" and found["demotions"] == []
    assert found["selfTest"]["outcome"] == "passed" and found["selfTest"]["runs"] == 3
    judging.agree(name, real_inputs.model_path(name), runs, found["made"], rtol)


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in real_inputs.MODELS])
def test_agrees_with_onnx_runtime(name, kit, folder):
    check(name, kit, folder, worker=False)


@pytest.mark.parametrize("name", IN_WORKER)
def test_agrees_in_a_worker(name, kit, folder):
    check(name, kit, folder, worker=True)
