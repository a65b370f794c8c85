"""What is particular to WebGPU in the browser: runs in flight, inputs on the GPU, losses, demotions, errors by name, memory."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import webkit

sys.path.append(str(Path(__file__).parents[1] / "runtime"))
import tangkit

from tang_edge.ir import dtype
from tang_edge.ir.tensor import Builder

pytestmark = pytest.mark.device


@pytest.fixture(scope="module")
def kit(chromium, web_dist):
    with webkit.opened(chromium, web_dist) as made:
        yield made


@pytest.fixture(scope="module")
def sound(kit, tmp_path_factory):
    """The address of a sound bundle of the kit's model."""
    return kit.put(tangkit.make(tmp_path_factory.mktemp("sound") / "kit.tang", c=False))


def put(kit, folder, variant=None, text=None, plan=None, **more):
    """The address of a bundle with one WebGPU variant."""
    if text is not None:
        more["members"] = {"kernels/webgpu-browser.wgsl": text}
    plan = plan or tangkit.plan(variant or tangkit.wgsl_variant())
    return kit.put(tangkit.make(folder / "w.tang", c=False, plan=plan, **more))


def check(outputs, inputs):
    got = webkit.decoded(outputs)
    for name, want in tangkit.expected(inputs).items():
        assert got[name].dtype == want.dtype
        np.testing.assert_allclose(got[name], want, rtol=1e-5, atol=1e-5, err_msg=name)


def encoded(*sizes):
    return [webkit.encoded(tangkit.arrays(n, seed)) for seed, n in enumerate(sizes)]


def test_several_runs_in_flight_in_order(kit, sound):
    """All are submitted before the first is read; the arrays are overwritten as soon as the promises are there."""
    sizes = (3, 90, 3, 4096, 1, 3, 7, 8, 9, 10, 11, 12, 90)
    made = kit.perform(
        """async (tang, [url, runs]) => {
          const model = await tang.open(url), order = [];
          const promises = runs.map((inputs, k) => {
            const given = tang.decoded(inputs), running = model.run(given);
            for (const t of Object.values(given)) t.data.fill(t.dtype === "i64" ? -1n : -1);
            return running.then((outputs) => { order.push(k); return tang.encoded(outputs); });
          });
          const outputs = await Promise.all(promises);
          model.dispose();
          return { outputs, order };
        }""",
        [sound, encoded(*sizes)],
    )
    assert made["order"] == list(range(len(sizes)))
    for seed, (n, outputs) in enumerate(zip(sizes, made["outputs"], strict=True)):
        check(outputs, tangkit.arrays(n, seed))


def test_inputs_are_checked(kit, sound):
    errors = kit.perform(
        """async (tang, url) => {
          const model = await tang.open(url), good = { a: { dtype: "f32", shape: [2, 3], data: new Float32Array(6) },
            b: { dtype: "i64", shape: [2], data: new BigInt64Array(2) } };
          const change = (name, more) => ({ ...good, [name]: { ...good[name], ...more } });
          const found = [];
          for (const inputs of [
            { a: good.a }, { ...good, c: good.b }, change("a", { dtype: "f64" }), change("a", { shape: [3, 2] }),
            change("a", { shape: [7, 3], data: new Float32Array(20) }), change("a", { data: new Int32Array(6) }),
            change("b", { data: new BigInt64Array([1n, 2n ** 40n]) }), { ...good, a: new Float32Array(6) }, { ...good, a: "x" },
            change("a", { shape: [0, 3], data: new Float32Array(0) }), change("b", { shape: [3], data: new BigInt64Array(3) }),
          ]) found.push(await tang.failure(model.run(inputs)));
          const again = await tang.failure(model.run(good));
          model.dispose();
          return [found, again, await tang.failure(model.run(good))];
        }""",
        sound,
    )
    found, again, disposed = errors
    assert [e["name"] for e in found] == ["InputError"] * len(found)
    words = [
        "missing",
        "no input",
        "dtype f64",
        '"n" is 3',
        "20 elements",
        "Int32Array",
        "cannot hold",
        "fixed shape",
        "string",
        "1..4096",
    ]
    for word, error in zip([*words, "is 3"], found, strict=True):
        assert word in error["message"], error
    assert again is None
    assert disposed["name"] == "InputError" and "disposed" in disposed["message"]


def test_memory_does_not_grow_over_a_thousand_runs(kit, sound):
    made = kit.perform(
        """async (tang, [url, first, runs]) => {
          const model = await tang.open(url), inputs = runs.map(tang.decoded);
          await model.run(tang.decoded(first)); // the greatest size
          await Promise.all(inputs.map((i) => model.run(i)));
          const created = [], make = GPUDevice.prototype.createBuffer, bytes = model.bytes;
          let last = null;
          for (let k = 0; k < 250; k++) {
            if (k === 10) GPUDevice.prototype.createBuffer = function (d) { created.push(d.size); return make.call(this, d); };
            last = await Promise.all(inputs.map((i) => model.run(i)));
          }
          GPUDevice.prototype.createBuffer = make;
          const after = model.bytes;
          model.dispose();
          return { created, bytes, after, last: last.map(tang.encoded) };
        }""",
        [sound, encoded(4096)[0], encoded(3, 3, 90, 5)],
    )
    assert made["created"] == [] and made["bytes"] == made["after"]
    for seed, (n, outputs) in enumerate(zip((3, 3, 90, 5), made["last"], strict=True)):
        check(outputs, tangkit.arrays(n, seed))


LOSE = """async (tang, [url, runs]) => {
  const model = await tang.open(url), told = [];
  for (const name of ["lost", "recovered"]) model.on(name, () => told.push(name));
  const other = model.session(), inputs = runs.map(tang.decoded), made = [];
  made.push(await model.run(inputs[0]), await other.run(inputs[1]));
  for (let k = 0; k < 2; k++) {
    const running = inputs.map((i) => model.run(i)); // the device goes while these are in flight
    model.device.destroy();
    made.push(...(await Promise.all(running)), await other.run(inputs[1]));
  }
  const { recoveries } = model.report;
  model.dispose();
  return { made: made.map(tang.encoded), recoveries, told };
}"""


@pytest.mark.parametrize("worker", [False, True], ids=["page", "worker"])
def test_a_device_that_is_lost_in_the_middle_of_runs_is_made_again(kit, sound, worker):
    found = kit.perform(LOSE, [sound, encoded(5, 50, 7)], worker=worker)
    assert found["recoveries"] == 2 and found["told"] == ["lost", "recovered"] * 2
    order = [0, 1, 0, 1, 2, 1, 0, 1, 2, 1]
    for seed, outputs in zip(order, found["made"], strict=True):
        check(outputs, tangkit.arrays((5, 50, 7)[seed], seed))


def test_a_device_that_cannot_come_back_is_an_error_and_never_zeros(kit, sound):
    found = kit.perform(
        """async (tang, [url, runs]) => {
          const model = await tang.open(url), inputs = tang.decoded(runs[0]), request = GPU.prototype.requestAdapter;
          await model.run(inputs);
          GPU.prototype.requestAdapter = async () => null;
          model.device.destroy();
          const gone = await tang.failure(model.run(inputs));
          GPU.prototype.requestAdapter = request;
          const outputs = tang.encoded(await model.run(inputs));
          model.dispose();
          return { gone, outputs };
        }""",
        [sound, encoded(5)],
    )
    assert found["gone"]["name"] == "DeviceError" and "no WebGPU adapter" in found["gone"]["message"]
    check(found["outputs"], tangkit.arrays(5, 0))


def test_a_wrong_kernel_is_demoted_by_name(kit, tmp_path):
    url = put(kit, tmp_path, bad=1.0)
    found = kit.perform(
        """async (tang, [url, runs]) => {
          const model = await tang.open(url, { verify: "background" }), told = [], inputs = tang.decoded(runs[0]);
          model.on("demoted", (d) => told.push(d.name));
          const before = model.report.selfTest.outcome, early = tang.encoded(await model.run(inputs));
          const report = await model.certified, late = tang.encoded(await model.run(inputs));
          model.dispose();
          return { before, early, late, told, report };
        }""",
        [url, encoded(9)],
    )
    assert found["before"] == "running"  # the first answer may come before, and the report says so
    (demotion,) = found["report"]["demotions"]
    assert (demotion["step"], demotion["name"], demotion["from"], demotion["to"]) == (0, "scaled", "fast", "safe")
    assert demotion["origin"] == ["node_scaled"] and "tolerances" in demotion["why"] and found["told"] == ["scaled"]
    test = found["report"]["selfTest"]
    assert test["outcome"] == "passed after demotions" and test["runs"] == 3 and 0 <= test["worst"] <= 1
    check(found["late"], tangkit.arrays(9, 0))


BROKEN = tangkit.WGSL_MODEL.replace("+ BAD", "+ no_such_function()")


@pytest.mark.parametrize("verify", ["before", "background", "off"])
def test_a_kernel_that_the_browser_refuses_is_demoted_by_name(kit, tmp_path, verify):
    """Whoever meets it first: the self-test, or a run."""
    url = put(kit, tmp_path, text=BROKEN)
    found = kit.perform(
        """async (tang, [url, verify, runs]) => {
          const model = await tang.open(url, { verify });
          const made = await Promise.all(runs.map((inputs) => model.run(tang.decoded(inputs))));
          await model.certified;
          const { demotions, selfTest } = model.report;
          model.dispose();
          return { made: made.map(tang.encoded), demotions, selfTest };
        }""",
        [url, verify, encoded(9, 2)],
    )
    (demotion,) = found["demotions"]
    assert (demotion["name"], demotion["to"]) == ("scaled", "safe") and "no_such_function" in demotion["why"]
    assert found["selfTest"]["outcome"] == ("skipped" if verify == "off" else "passed after demotions")
    for seed, outputs in enumerate(found["made"]):
        check(outputs, tangkit.arrays((9, 2)[seed], seed))


def test_an_erratic_kernel_is_demoted(kit, tmp_path):
    """It adds, within the tolerance, how often it ran."""
    head, scale = tangkit.WGSL_MODEL.split("//@kernel scale\n")
    scale = scale.replace("+ BAD; }", "+ f32(atomicLoad(&n[0])) * 1e-9; if (id.x == 0u) { atomicAdd(&n[0], 1); } }", 1)
    scale = scale.replace(
        "@binding(3) var<uniform>",
        "@binding(3) var<storage, read_write> n: array<atomic<i32>>;\n@group(0) @binding(4) var<uniform>",
        1,
    )
    scale = scale.replace(
        "a[id.x] * w[id.x % 3u] +", "bitcast<f32>(bitcast<u32>(a[id.x] * w[id.x % 3u]) ^ u32(atomicLoad(&n[0]) & 1)) +", 1
    )
    variant = tangkit.wgsl_variant()
    variant["buffers"].append(tangkit.buffer(6, "n", "packed", "i32", [1], 68, slot=0))
    variant["packed_slots"] = [68]
    variant["kernels"]["scale"]["bindings"].append("read_write")
    variant["steps"][0]["alternates"][0]["dispatches"][0]["args"].append(6)
    url = put(kit, tmp_path, variant, head + "//@kernel scale\n" + scale)
    report = kit.perform("async (tang, url) => (await tang.open(url, { verify: 'before' })).report", url)
    (demotion,) = report["demotions"]
    assert demotion["name"] == "scaled" and "different bits" in demotion["why"]


def test_no_alternate_left(kit, tmp_path):
    wrong = tangkit.WGSL_MODEL.replace("BAD", "0.0").replace("+ f32(b[id.x / 3u])", "- f32(b[id.x / 3u])")
    url = put(kit, tmp_path, text=wrong)
    error = kit.perform("async (tang, url) => tang.failure(tang.open(url, { verify: 'before' }))", url)
    assert error["name"] == "DeviceError" and "Step 1 (y)" in error["message"] and "node_y" in error["message"]
    found = kit.perform(
        """async (tang, [url, inputs]) => {
          const model = await tang.open(url, { verify: "background" }), failed = await tang.failure(model.certified);
          const run = await tang.failure(model.run(tang.decoded(inputs)));
          return { failed, run, outcome: model.report.selfTest.outcome };
        }""",
        [url, encoded(3)[0]],
    )
    assert found["outcome"] == "failed" and "no alternate left" in found["failed"]["message"]
    assert found["run"]["message"] == found["failed"]["message"]  # a model that failed its test gives no answers


def test_a_dispatch_that_the_browser_refuses_is_named(kit, tmp_path):
    """One buffer of the arena bound read-only and read-write in one dispatch."""
    variant = tangkit.wgsl_variant()
    variant["kernels"]["add"]["bindings"] = ["read", "read_write", "read_write"]
    head, add = tangkit.WGSL_MODEL.replace("BAD", "0.0").split("//@kernel add\n")
    url = put(kit, tmp_path, variant, head + "//@kernel add\n" + add.replace("read_write> t", "read> t", 1), golden=[])
    error = kit.perform(
        "async (tang, [url, inputs]) => { const m = await tang.open(url); return tang.failure(m.run(tang.decoded(inputs))); }",
        [url, encoded(2)[0]],
    )
    assert error["name"] == "DeviceError" and "step 1 (y)" in error["message"] and "node_y" in error["message"]


def test_out_of_memory_and_limits_are_typed_and_the_next_run_goes_on(kit, tmp_path):
    plan = tangkit.plan(tangkit.wgsl_variant(slots=[["+", ["*", "n", 3 << 24], 1 << 20]] * 2 + [["*", "n", 4096]] * 3))
    url = put(kit, tmp_path, plan=plan, golden=[])
    found = kit.perform(
        """async (tang, [url, small, large]) => {
          const model = await tang.open(url), one = tang.encoded(await model.run(tang.decoded(small)));
          const error = await tang.failure(model.run(tang.decoded(large)));
          const two = tang.encoded(await model.run(tang.decoded(small)));
          model.dispose();
          return { one, error, two };
        }""",
        [url, encoded(1)[0], webkit.encoded(tangkit.arrays(400, 0))],
    )
    assert found["error"]["name"] == "OutOfMemory", found["error"]
    check(found["one"], tangkit.arrays(1, 0))
    check(found["two"], tangkit.arrays(1, 0))
    variant = tangkit.wgsl_variant()
    variant["steps"][0]["alternates"][0]["dispatches"][0]["grid"] = ["n", ["*", "n", 1000], 1]
    variant["steps"][2]["alternates"][0]["dispatches"][0]["params"] = [["*", "n", 1 << 26]]
    url = put(kit, tmp_path, variant, golden=[])
    errors = kit.perform(
        """async (tang, [url, runs]) => {
          const model = await tang.open(url);
          return Promise.all(runs.map((r) => tang.failure(model.run(tang.decoded(r)))));
        }""",
        [url, encoded(2, 66, 33)],
    )
    assert errors[0] is None
    assert errors[1]["name"] == "BundleError" and "65535" in errors[1]["message"]
    assert errors[2]["name"] == "BundleError" and "32 bits" in errors[2]["message"]


def test_buffers_on_the_gpu_as_inputs(kit, sound):
    found = kit.perform(
        """async (tang, [url, inputs]) => {
          const model = await tang.open(url), given = tang.decoded(inputs), { device } = model, shape = given.a.shape;
          const make = (d, size, usage) => {
            const buffer = d.createBuffer({ size, usage: usage | GPUBufferUsage.COPY_DST });
            d.queue.writeBuffer(buffer, 0, given.a.data);
            return buffer;
          };
          const other = await (await navigator.gpu.requestAdapter()).requestDevice(), copy = GPUBufferUsage.COPY_SRC;
          const right = make(device, given.a.data.byteLength, copy);
          const run = (buffer) => model.run({ ...given, a: { shape, buffer } });
          const made = tang.encoded(await run(right)), errors = [];
          for (const wrong of [make(other, given.a.data.byteLength, copy), make(device, given.a.data.byteLength + 16, copy),
            make(device, given.a.data.byteLength, 0)]) errors.push(await tang.failure(run(wrong)));
          errors.push(await tang.failure(model.run({ ...given, b: { shape: [shape[0]], buffer: right } })));
          const again = tang.encoded(await run(right));
          model.dispose();
          return { made, errors, again };
        }""",
        [sound, encoded(8)[0]],
    )
    for outputs in (found["made"], found["again"]):
        check(outputs, tangkit.arrays(8, 0))
    assert [e["name"] for e in found["errors"]] == ["InputError"] * 4
    for word, error in zip(["another device", "112 bytes", "COPY_SRC", "stored as i32"], found["errors"], strict=True):
        assert word in error["message"], error


def test_a_picture_as_an_input(kit, tmp_path):
    b = Builder("picture")
    x = b.input("x", dtype.f32, [1, 3, 2, 4])
    b.bind("y", [1, 3, 2, 4], lambda n, c, i, j: b.read(x, [n, c, i, j]) * b.read(x, [n, c, i, j]))
    b.output("y")
    from tang_edge.compiler import pack_program

    pack_program(b.build(), tmp_path / "p.tang", targets=("webgpu",))
    found = kit.perform(
        """async (tang, url) => {
          const image = new ImageData(4, 2);
          for (let k = 0; k < 8; k++) image.data.set([k, 100 + k, 255 - k, 255], 4 * k);
          return tang.encoded(await (await tang.open(url)).run({ x: image }));
        }""",
        kit.put(tmp_path / "p.tang"),
    )
    k = np.arange(8).reshape(2, 4)
    want = (np.stack([k, 100 + k, 255 - k])[None] / 255.0) ** 2
    np.testing.assert_allclose(webkit.decoded(found)["y"], want, rtol=1e-5, atol=1e-7)


def test_profile_names_every_step(kit, sound):
    times = kit.perform("async (tang, [url, i]) => (await tang.open(url)).profile(tang.decoded(i))", [sound, encoded(500)[0]])
    assert [t["name"] for t in times] == ["scaled", "y", "count"]
    assert times[0]["kernels"] == ["scale"] and times[0]["origin"] == ["node_scaled"]
    assert {t["clock"] for t in times} <= {"gpu", "wall"} and all(t["duration"] >= 0 for t in times)
    assert [t["start"] for t in times] == sorted(t["start"] for t in times)


def test_a_run_that_is_aborted(kit, sound):
    error = kit.perform(
        """async (tang, [url, inputs]) => {
          const model = await tang.open(url), stop = new AbortController();
          const running = tang.failure(model.run(tang.decoded(inputs), { signal: stop.signal }));
          stop.abort();
          return running;
        }""",
        [sound, encoded(3)[0]],
    )
    assert error["name"] == "AbortError"
