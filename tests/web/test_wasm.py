"""WebAssembly in the browser: the acceptance models against ONNX Runtime, workers, threads, loss, memory, states."""

from __future__ import annotations

import functools
import sys
from pathlib import Path

import judging
import pytest
import wasmkit
import webkit

pytest.importorskip("PIL")
pytest.importorskip("onnxruntime")
sys.path.append(str(Path(__file__).parents[2]))

from tang_edge import compiler
from tang_edge.bundle.read import open_bundle
from tang_edge.ir import dtype
from tang_edge.ir.states import with_states
from tang_edge.ir.tensor import Builder
from tang_edge.rewrite.pipeline import optimize
from tests.models import real_inputs
from tests.web.test_webgpu_states import running_mean

pytestmark = [pytest.mark.device, pytest.mark.skipif(bool(wasmkit.missing()), reason=wasmkit.missing() or "-")]

SIZES = {"ppocr-det": (1, 3, 64, 96), "oww-melspec": (1, 1760)}
SLOW = ("ddddocr-det", "ppocr-rec")
IN_WORKER = ("go2-policy", "reachy-fk-int8", "oww-jarvis")
WITH_THREADS = ("ppocr-cls", "oww-embedding")

RUN = """async (tang, [url, runs, threads]) => {
  const model = await tang.open(url, { device: "wasm", verify: "before", threads }), made = [];
  for (const inputs of runs) made.push(tang.encoded(await model.run(tang.decoded(inputs))));
  const { device, selfTest, demotions, adapter } = model.report, used = model.report.threads;
  model.dispose();
  return { made, device, selfTest, demotions, adapter, threads: used };
}"""


@pytest.fixture(scope="module")
def kit(chromium, web_dist):
    with webkit.opened(chromium, web_dist) as made:
        yield made


@pytest.fixture(scope="module")
def isolated(chromium, web_dist):
    with webkit.opened(chromium, web_dist, isolated=True) as made:
        yield made


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("wasm")


@functools.cache
def packed(name, folder):
    """A model's bundle for the browser, and the tolerance of its answers."""
    source, path = real_inputs.model_path(name), folder / f"{name}.tang"
    if not source.exists():
        pytest.skip(f"{source} is not fetched")
    report = compiler.pack(source, path, targets=("browser",))
    assert [v["class"] for v in report.variants] == ["browser", "wasm-simd"]
    with open_bundle(path) as bundle:
        return path, bundle.plan.golden[0].rtol


def feeds_of(name):
    size = real_inputs.Size("small", SIZES.get(name, real_inputs.SIZES[name][0].shape))
    feeds = real_inputs.inputs(name, size, kind="random", seed=7)
    runs = [feeds, feeds]
    if name == "reachy-fk-dynamic":
        runs.insert(1, real_inputs.inputs(name, real_inputs.Size("other", (64, 7)), kind="random", seed=8))
    return runs


def check(name, kit, folder, *, worker=False, threads=0):
    path, rtol = packed(name, folder)
    runs = feeds_of(name)
    found = kit.perform(RUN, [kit.put(path), [webkit.encoded(r) for r in runs], threads], worker=worker)
    assert found["device"] == "wasm" and found["demotions"] == []
    assert found["selfTest"]["outcome"] == "passed" and found["selfTest"]["runs"] == 3
    judging.agree(name, real_inputs.model_path(name), runs, found["made"], rtol)
    return found


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in real_inputs.MODELS])
def test_agrees_with_onnx_runtime(name, kit, folder):
    assert check(name, kit, folder)["adapter"] == "WebAssembly SIMD, 1 thread"


@pytest.mark.parametrize("name", IN_WORKER)
def test_agrees_in_a_worker(name, kit, folder):
    check(name, kit, folder, worker=True)


@pytest.mark.parametrize("name", WITH_THREADS)
def test_agrees_with_threads(name, isolated, folder):
    found = check(name, isolated, folder, threads=3)
    assert found["threads"] == 3 and found["adapter"] == "WebAssembly SIMD, 3 threads"


def test_agrees_with_threads_in_a_worker(isolated, folder):
    assert check("ppocr-cls", isolated, folder, threads=2, worker=True)["threads"] == 2


def test_threads_need_isolation(kit, folder):
    found = check("go2-policy", kit, folder, threads=4)
    assert found["threads"] == 1 and "cross-origin isolated" in found["adapter"]


def test_a_page_goes_on_during_a_run(kit, folder):
    path, _ = packed("ppocr-det", folder)
    turns = kit.perform(
        """async (tang, url) => {
          const model = await tang.open(url, { device: "wasm" }), shape = [1, 3, 640, 640];
          const x = { dtype: "f32", shape, data: new Float32Array(3 * 640 * 640) };
          let turns = 0, done = false;
          const running = model.run({ x }).finally(() => (done = true));
          while (!done) {
            await new Promise((next) => setTimeout(next));
            turns++;
          }
          await running;
          model.dispose();
          return turns;
        }""",
        kit.put(path),
    )
    assert turns > 10


def test_a_trap_ends_the_instance_and_another_takes_its_place(kit, folder):
    path, _ = packed("go2-policy", folder)
    (feeds, *_) = feeds_of("go2-policy")
    found = kit.perform(
        """async (tang, [url, inputs]) => {
          const model = await tang.open(url, { device: "wasm" }), x = tang.decoded(inputs), told = [];
          model.on("lost", (why) => told.push(why));
          const before = tang.encoded(await model.run(x));
          const trap = await tang.failure(model.engine.ask([["run", 2 ** 32 - 64]]));
          const after = tang.encoded(await model.run(x)), { recoveries } = model.report;
          model.dispose();
          return { before, after, trap, told, recoveries, disposed: await tang.failure(() => model.run(x)) };
        }""",
        [kit.put(path), webkit.encoded(feeds)],
    )
    assert found["trap"]["name"] == "DeviceLost" and len(found["told"]) == 1 and found["recoveries"] == 1
    assert found["before"] == found["after"]
    assert found["disposed"]["name"] == "InputError"


def test_states_stay_and_move_with_the_sizes(kit, folder):
    program, _ = with_states(running_mean(), ["seen=seen_out"])
    path = wasmkit.write_bundle(optimize(program), folder / "mean.tang")
    sizes = [3, 70_000, 5, 3_000_000, 4]
    found = kit.perform(
        """async (tang, [url, sizes]) => {
          const model = await tang.open(url, { device: "wasm" }), made = [];
          const ones = (n) => ({ x: { dtype: "f32", shape: [n], data: new Float32Array(n).fill(1) } });
          for (const n of sizes) made.push((await model.run(ones(n))).y.data[n - 1]);
          const flying = await Promise.all(sizes.map((n) => model.run(ones(n))));
          made.push(...flying.map(({ y }) => y.data[0]));
          const kept = await model.snapshot();
          model.dispose();
          return { made, kept: kept.seen.data[0] };
        }""",
        [kit.put(path), sizes],
    )
    assert found == {"made": [float(k) for k in range(2, 12)], "kept": 10}


def outer():
    """y[i, j] = x[i] x[j]: little in, much out."""
    b = Builder("outer")
    n = b.dim("n", 1, 100_000)
    x = b.input("x", dtype.f32, [n])
    b.bind("y", [n, n], lambda i, j: b.read(x, [i]) * b.read(x, [j]))
    b.output("y")
    return b.build()


def test_sizes_beyond_the_memory_are_refused_by_type(kit, folder):
    path = wasmkit.write_bundle(outer(), folder / "outer.tang")
    found = kit.perform(
        """async (tang, [url, sizes]) => {
          const model = await tang.open(url, { device: "wasm" }), made = [];
          for (const n of sizes) {
            const x = { dtype: "f32", shape: [n], data: new Float32Array(n).fill(2) };
            made.push(n < 100 ? [...(await model.run({ x })).y.data] : await tang.failure(() => model.run({ x })));
          }
          model.dispose();
          return made;
        }""",
        [kit.put(path), [2, 30_000, 66_000, 3]],
    )
    assert found[0] == [4.0] * 4 and found[3] == [4.0] * 9
    assert [f["name"] for f in found[1:3]] == ["OutOfMemory"] * 2
