"""Recurrent models and control flow in the browser: states stay on the GPU, go with it, come back from snapshots."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import webkit

sys.path.append(str(Path(__file__).parents[2]))

from tang_edge import compiler
from tang_edge.bundle import write as bundle_write
from tang_edge.ir import dtype
from tang_edge.ir.tensor import Builder
from tests.runtime import test_measured, test_states

pytestmark = pytest.mark.device


@pytest.fixture(scope="module")
def kit(chromium, web_dist):
    with webkit.opened(chromium, web_dist) as made:
        yield made


@pytest.fixture(scope="module")
def leaky(kit, tmp_path_factory):
    """The address of a model with two states."""
    path = tmp_path_factory.mktemp("states") / "m.tang"
    compiler.pack_program(test_states.leaky(), path, targets=("webgpu",))
    return kit.put(path)


def close(got, want):
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def running_mean():
    """y = x + the sum of the first elements so far; its arena is too large to be reserved from the start."""
    b = Builder("mean")
    n = b.dim("n", 1, 40_000_000)
    x = b.input("x", dtype.f32, [n])
    b.input("seen", dtype.f32, [1])
    b.bind("seen_out", [1], lambda i: b.read("seen", [i]) + b.read(x, [0]))
    b.bind("y", [n], lambda i: b.read(x, [i]) + b.read("seen_out", [0]))
    b.output("y")
    b.output("seen_out")
    return b.build()


def encoded(xs):
    return [webkit.encoded({"x": x}) for x in xs]


def test_runs_go_on_from_each_other_without_reading_the_state_back(kit, leaky):
    xs = test_states.inputs(8)
    want = test_states.stepped(test_states.leaky(), xs)
    found = kit.perform(
        """async (tang, [url, runs]) => {
          const model = await tang.open(url), inputs = runs.map(tang.decoded), session = model.session(), made = [];
          for (const i of inputs.slice(0, 4)) made.push(await session.run(i));
          made.push(...(await Promise.all(inputs.slice(4).map((i) => session.run(i))))); // in flight together
          const kept = await session.snapshot();
          session.reset();
          const anew = await session.run(inputs[0]);
          session.restore(kept);
          const on = await session.run(inputs[1]), after = await session.snapshot();
          const result = { made: made.map(tang.encoded), kept: tang.encoded(kept), anew: tang.encoded(anew),
            on: tang.encoded(on), after: tang.encoded(after), empty: await model.snapshot(), states: model.states };
          model.dispose();
          return result;
        }""",
        [leaky, encoded(xs)],
    )
    for outputs, w in zip(found["made"], want, strict=True):
        got = webkit.decoded(outputs)
        assert set(got) == {"y"}
        close(got["y"], w["y"])
    kept = webkit.decoded(found["kept"])
    close(kept["h0"], want[-1]["hn"])
    assert kept["count"].dtype == np.int64 and kept["count"][0] == 8
    close(webkit.decoded(found["anew"])["y"], want[0]["y"])
    again = test_states.interp.run(test_states.leaky(), {"x": xs[1], **kept})
    close(webkit.decoded(found["on"])["y"], again["y"])
    assert webkit.decoded(found["after"])["count"][0] == 9
    assert found["empty"] == {} and [s["name"] for s in found["states"]] == ["h0", "count"]


def test_given_states_go_in_and_come_out(kit, leaky):
    xs = test_states.inputs(3)
    want = test_states.stepped(test_states.leaky(), xs)
    found = kit.perform(
        """async (tang, [url, runs]) => {
          const model = await tang.open(url), inputs = runs.map(tang.decoded), made = [];
          let state = { h0: { dtype: "f32", shape: [3, 4], data: new Float32Array(12) },
            count: { dtype: "i64", shape: [1], data: new BigInt64Array(1) } };
          const zero = state.h0;
          for (const i of inputs.slice(0, 2)) {
            const got = await model.run({ ...i, ...state });
            state = { h0: got.hn, count: got.count_out };
            made.push(got);
          }
          made.push(await model.run(inputs[2]), await model.run({ ...inputs[0], h0: zero }));
          const { count } = await model.snapshot();
          const wrong = [];
          for (const s of [{ nothing: zero }, { h0: count }]) wrong.push(await tang.failure(() => model.restore(s)));
          model.dispose();
          return { made: made.map(tang.encoded), count: Number(count.data[0]), wrong };
        }""",
        [leaky, encoded(xs)],
    )
    made = [webkit.decoded(m) for m in found["made"]]
    assert [set(m) for m in made] == [{"y", "hn", "count_out"}] * 2 + [{"y"}, {"y", "hn"}]
    for got, w in zip(made, [*want, want[0]], strict=True):
        close(got["y"], w["y"])
    assert found["count"] == 4 and [w["name"] for w in found["wrong"]] == ["InputError"] * 2


def test_a_lost_device_takes_the_state_with_it_and_the_caller_is_told(kit, leaky):
    xs = test_states.inputs(3)
    want = test_states.stepped(test_states.leaky(), xs)
    found = kit.perform(
        """async (tang, [url, runs]) => {
          const model = await tang.open(url), inputs = runs.map(tang.decoded), errors = [];
          await model.run(inputs[0]);
          const kept = await model.snapshot(), running = [model.run(inputs[1]), model.run(inputs[2])];
          model.device.destroy();
          for (const r of running) errors.push(await tang.failure(r));
          const anew = tang.encoded(await model.run(inputs[0]));
          model.restore(kept);
          const on = [tang.encoded(await model.run(inputs[1])), tang.encoded(await model.run(inputs[2]))];
          const other = model.session();
          await other.run(inputs[0]);
          model.device.destroy();
          errors.push(await tang.failure(other.run(inputs[1])), await tang.failure(model.run(inputs[1])));
          const last = tang.encoded(await other.run(inputs[0]));
          model.dispose();
          return { errors, anew, on, last };
        }""",
        [leaky, encoded(xs)],
    )
    assert [e["name"] for e in found["errors"]] == ["DeviceLost"] * 4
    assert all("begins anew" in e["message"] for e in found["errors"])
    close(webkit.decoded(found["anew"])["y"], want[0]["y"])
    for outputs, w in zip(found["on"], want[1:], strict=True):
        close(webkit.decoded(outputs)["y"], w["y"])
    close(webkit.decoded(found["last"])["y"], want[0]["y"])


def test_a_first_run_whose_device_goes_is_repeated(kit, leaky):
    """It depends on no state, so nothing is lost; one that was built on it tells so."""
    xs = test_states.inputs(2)
    want = test_states.stepped(test_states.leaky(), xs)
    found = kit.perform(
        """async (tang, [url, runs]) => {
          const model = await tang.open(url), inputs = runs.map(tang.decoded), one = model.run(inputs[0]);
          model.device.destroy();
          const first = tang.encoded(await one), second = tang.encoded(await model.run(inputs[1]));
          model.dispose();
          return [first, second];
        }""",
        [leaky, encoded(xs)],
    )
    for outputs, w in zip(found, want, strict=True):
        close(webkit.decoded(outputs)["y"], w["y"])


def test_other_sizes_take_the_state_along(kit, tmp_path):
    """A state without the dimension survives a change of size, and growth of the arena."""
    compiler.pack_program(running_mean(), tmp_path / "m.tang", targets=("webgpu",))
    compiler.pack_program(test_states.leaky(rows=True), tmp_path / "r.tang", targets=("webgpu",))
    sizes = (3, 3, 150_000, 2, 1_000_000, 3)
    found = kit.perform(
        """async (tang, [url, rows, sizes]) => {
          const model = await tang.open(url), made = [];
          for (const n of sizes) {
            const { y } = await model.run({ x: { dtype: "f32", shape: [n], data: new Float32Array(n).fill(1) } });
            made.push([y.data.length, Math.min(...y.data.slice(0, 9)), y.data.at(-1)]);
          }
          model.dispose();
          const other = await tang.open(rows);
          const x = (n) => ({ x: { dtype: "f32", shape: [n, 4], data: new Float32Array(4 * n) } });
          await other.run(x(3));
          const refused = await tang.failure(other.run(x(5))), { count } = await other.snapshot();
          other.reset();
          const { y } = await other.run(x(5));
          other.dispose();
          return { made, refused, count: Number(count.data[0]), shape: y.shape };
        }""",
        [kit.put(tmp_path / "m.tang"), kit.put(tmp_path / "r.tang"), sizes],
    )
    assert found["made"] == [[n, k + 2, k + 2] for k, n in enumerate(sizes)]
    assert found["refused"]["name"] == "InputError" and found["count"] == 1 and found["shape"] == [5, 4]


def test_memory_that_cannot_grow_leaves_the_state_as_it_was(kit, tmp_path):
    """The browser reports the lack of memory after the fact; calls that were built on it fail too, and the state stays."""
    compiler.pack_program(running_mean(), tmp_path / "m.tang", targets=("webgpu",))
    found = kit.perform(
        """async (tang, url) => {
          const model = await tang.open(url), P = GPUDevice.prototype, Q = GPUQueue.prototype, made = [];
          const { popErrorScope: pop } = P, { submit } = Q;
          const run = async (n) => {
            const { y } = await model.run({ x: { dtype: "f32", shape: [n], data: new Float32Array(n).fill(1) } });
            return [n, y.data[0], y.data.at(-1)];
          };
          const short = async (...sizes) => { // the next buffers are not there, so what uses them does not run
            let left = 1;
            P.popErrorScope = function () {
              const found = pop.call(this);
              return left-- > 0 ? found.then(() => new GPUOutOfMemoryError("simulated")) : found;
            };
            Q.submit = () => {};
            try {
              return await Promise.all(sizes.map((n) => tang.failure(run(n))));
            } finally {
              Object.assign(P, { popErrorScope: pop });
              Object.assign(Q, { submit });
            }
          };
          const errors = await short(3);
          made.push(await run(3));
          errors.push(...(await short(500_000)));
          made.push(await run(3), await run(500_000));
          errors.push(...(await short(900_000, 3)));
          made.push(await run(4));
          model.dispose();
          return { errors, made };
        }""",
        kit.put(tmp_path / "m.tang"),
    )
    assert [e["name"] for e in found["errors"]] == ["OutOfMemory"] * 4
    assert found["made"] == [[3, 2, 2], [3, 3, 3], [500_000, 4, 4], [4, 2, 2]]


def test_a_size_that_the_run_computes(kit, tmp_path):
    """Runs with read-backs inside take turns; a size out of range is an error, and the next run goes on."""
    program = test_measured.program()
    plan, members = compiler.assemble(program, test_measured.made(program))
    bundle_write.write(tmp_path / "m.tang", name="m", plan=plan, members=members)
    positives = (3, 0, 9, 8, 5, 5, 1)
    found = kit.perform(
        """async (tang, [url, runs]) => {
          const model = await tang.open(url);
          const run = (r) => model.run(tang.decoded(r)).then(tang.encoded, (e) => [e.name, e.message]);
          const made = await Promise.all(runs.map(run));
          model.dispose();
          return made;
        }""",
        [kit.put(tmp_path / "m.tang"), encoded([test_measured.inputs(p) for p in positives])],
    )
    for positive, outputs in zip(positives, found, strict=True):
        if positive == 9:
            assert outputs[0] == "DeviceError" and "computed" in outputs[1]
            continue
        want, k = test_measured.expected(test_measured.inputs(positive))
        got = webkit.decoded(outputs)
        assert int(got["count"]) == k
        np.testing.assert_allclose(got["y"], want, rtol=1e-5)
