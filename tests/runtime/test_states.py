"""Recurrent models: the state stays on the device between runs, belongs to a session, and can be taken and put back."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tang_edge import load
from tang_edge.compiler import pack_program
from tang_edge.errors import DeviceError, InputError
from tang_edge.ir import dtype, interp
from tang_edge.ir.scalar import const, op
from tang_edge.ir.states import find_states, with_states
from tang_edge.ir.tensor import Builder, Program

TARGETS = ("webgpu", "cpu-x86-64-v3", "cpu-generic")


def leaky(rows: bool = False) -> Program:
    """h' = tanh(h / 2 + x), a count that goes up by one, and y = the sum of h'."""
    b = Builder("leaky")
    n = b.dim("n", 1, 8) if rows else 3
    x = b.input("x", dtype.f32, [n, 4])
    h = b.input("h0", dtype.f32, [n, 4])
    k = b.input("count", dtype.i64, [1])
    b.bind("hn", [n, 4], lambda i, j: op("tanh", b.read(h, [i, j]) * const(0.5, dtype.f32) + b.read(x, [i, j])))
    b.bind("count_out", [1], lambda i: op("min", b.read(k, [i]), const(1000, dtype.i64)) + const(1, dtype.i64))
    b.bind("y", [n, 4], lambda i, j: b.read("hn", [i, j]) * const(2, dtype.f32))
    for name in ("y", "hn", "count_out"):
        b.output(name)
    return b.build()


def stepped(program: Program, xs: list[np.ndarray]) -> list[dict[str, np.ndarray]]:
    """The interpreter, fed with its own states."""
    shape = xs[0].shape
    state = {"h0": np.zeros(shape, np.float32), "count": np.zeros(1, np.int64)}
    out = []
    for x in xs:
        made = interp.run(program, {"x": x, **state})
        state = {"h0": made["hn"], "count": made["count_out"]}
        out.append(made)
    return out


def inputs(count: int, rows: int = 3, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(rows, 4)).astype(np.float32) for _ in range(count)]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    found = tmp_path_factory.mktemp("states") / "m.tang"
    report = pack_program(leaky(), found, targets=TARGETS)
    assert [n for n in report.notes if "state" in n] == [
        "state h0 = hn (by name and type; --state changes it)",
        "state count = count_out (by name and type; --state changes it)",
    ]
    return found


def close(got, want):
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_runs_go_on_from_each_other(path, device):
    xs = inputs(6)
    want = stepped(leaky(), xs)
    with load(path, device=device) as model:
        session = model.session()
        for x, w in zip(xs, want, strict=True):
            got = session.run({"x": x})
            assert set(got) == {"y"}
            close(got["y"], w["y"])
        kept = session.snapshot()
        close(kept["h0"], want[-1]["hn"])
        assert kept["count"].dtype == np.int64 and kept["count"][0] == 6
        session.reset()
        close(session.run({"x": xs[0]})["y"], want[0]["y"])
        session.restore(kept)
        again = interp.run(leaky(), {"x": xs[1], **kept})
        close(session.run({"x": xs[1]})["y"], again["y"])
        assert session.snapshot()["count"][0] == 7


def test_given_states_go_in_and_come_out(path, device):
    xs = inputs(4)
    want = stepped(leaky(), xs)
    with load(path, device=device) as model:
        state = {"h0": np.zeros((3, 4), np.float32), "count": np.zeros(1, np.int64)}
        for x, w in zip(xs[:3], want, strict=False):
            got = model.run({"x": x, **state})
            assert set(got) == {"y", "hn", "count_out"}
            state = {"h0": got["hn"], "count": got["count_out"]}
            close(got["hn"], w["hn"])
        close(model.run({"x": xs[3]})["y"], want[3]["y"])  # and the session goes on by itself
        got = model.run({"x": xs[0], "h0": np.zeros((3, 4), np.float32)})  # one given, the other kept
        assert set(got) == {"y", "hn"}
        close(got["y"], want[0]["y"])


def test_tools_do_not_move_the_state(path, device):
    xs = inputs(2)
    want = stepped(leaky(), xs)
    with load(path, device=device) as model:
        model.run({"x": xs[0]})
        model.run_steps(0, -1, {"x": xs[1]})
        names = [s.name for s in model.steps]
        model.run_steps(0, names.index("hn") + 1, {"x": xs[1]})
        close(model.read_step(names.index("hn")), want[1]["hn"])
        close(model.run({"x": xs[1]})["y"], want[1]["y"])


def test_other_sizes_take_the_state_along(tmp_path, device):
    """A state without the dimension survives a change of size; one with it must be reset."""
    b = Builder("mean")
    n = b.dim("n", 1, 2000)
    x = b.input("x", dtype.f32, [n])
    b.input("seen", dtype.f32, [1])
    b.bind("seen_out", [1], lambda i: b.read("seen", [i]) + b.read(x, [0]))
    b.bind("y", [n], lambda i: b.read(x, [i]) + b.read("seen_out", [0]))
    b.output("y")
    b.output("seen_out")
    pack_program(b.build(), tmp_path / "m.tang", targets=TARGETS)
    with load(tmp_path / "m.tang", device=device) as model:
        for k, size in enumerate((3, 3, 1500, 2, 3, 3)):
            got = model.run({"x": np.ones(size, np.float32)})
            close(got["y"], np.full(size, k + 2.0))
    pack_program(leaky(rows=True), tmp_path / "r.tang", targets=TARGETS)
    with load(tmp_path / "r.tang", device=device) as model:
        model.run({"x": inputs(1, 3)[0]})
        with pytest.raises(InputError, match="n"):
            model.run({"x": inputs(1, 5)[0]})
        assert model._first.snapshot()["count"][0] == 1
        model._first.reset()
        assert model.run({"x": inputs(1, 5)[0]})["y"].shape == (5, 4)


def test_sessions_are_independent_and_run_in_threads(path, device):
    count = 12
    runs = {seed: inputs(count, seed=seed) for seed in range(4)}
    want = {seed: stepped(leaky(), xs)[-1]["y"] for seed, xs in runs.items()}
    got: dict[int, np.ndarray] = {}
    with load(path, device=device, threads=2) as model:

        def go(seed: int) -> None:
            with model.session() as session:
                for x in runs[seed]:
                    got[seed] = session.run({"x": x})["y"]

        threads = [threading.Thread(target=go, args=(seed,)) for seed in runs]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    for seed in runs:
        close(got[seed], want[seed])


def test_nothing_is_read_back_for_the_state(path, needs_webgpu):
    with load(path, device="webgpu") as model:
        x = inputs(1)[0]
        model.run({"x": x})
        before = model._engine.submissions
        for _ in range(5):
            model.run({"x": x})
        assert model._engine.submissions - before == 5


def test_a_lost_device_takes_the_state_with_it(path, needs_webgpu):
    with load(path, device="webgpu") as model:
        x = inputs(1)[0]
        kept = model._first.snapshot()
        first = model.run({"x": x})["y"]
        model._engine.device.destroy()
        with pytest.raises(DeviceError, match="state"):
            model.run({"x": x})
        model._first.restore(kept)
        np.testing.assert_array_equal(model.run({"x": x})["y"], first)


@pytest.mark.parametrize(
    ("given", "made", "pairs"),
    [
        (["x", "h"], ["y", "hn"], [("h", "hn")]),
        (["input", "state", "sr"], ["output", "stateN"], [("state", "stateN")]),
        (["x", "h0", "c0"], ["y", "hn", "cn"], [("h0", "hn"), ("c0", "cn")]),
        (["ids", "past_key_values.0.key"], ["logits", "present.0.key"], [("past_key_values.0.key", "present.0.key")]),
        (["ids", "past_key_values.0.key"], ["logits", "present.0.value"], []),
        (["x", "mem"], ["y", "out_mem"], [("mem", "out_mem")]),
        (["x", "mem_in"], ["y", "mem_out"], [("mem_in", "mem_out")]),
        (["x", "prev_mem"], ["y", "mem_next", "next_mem"], []),
        (["image"], ["image_out"], []),
        (["mea", "x"], ["mean"], []),
    ],
)
def test_names_that_say_so(given, made, pairs):
    b = Builder("named")
    for name in given:
        b.input(name, dtype.f32, [2])
    for name in made:
        b.bind(f"t {name}", [2], lambda i: b.read(given[0], [i]))
        b.output(name, f"t {name}")
    assert [(s.input, s.output) for s in find_states(b.build())] == pairs


def test_asked_for_by_name():
    program = leaky()
    assert with_states(program, ())[0].states == ()
    assert [s.output for s in with_states(program, ("x=y",))[0].states] == ["y"]
    for pair, match in (("x", "INPUT=OUTPUT"), ("x=z", "INPUT=OUTPUT"), ("count=y", "but y is")):
        with pytest.raises(InputError, match=match):
            with_states(program, (pair,))
