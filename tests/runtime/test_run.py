"""Running the kit's model on each device: answers, sizes, memory, refusals, threads, states, tools."""

from __future__ import annotations

import gc
import pickle
import threading

import numpy as np
import pytest
import tangkit

import tang_edge
from tang_edge.bundle import layout
from tang_edge.errors import DeviceError, InputError


@pytest.fixture
def model(bundle, device):
    with tang_edge.load(bundle, device=device, threads=2) as loaded:
        yield loaded


def agree(result, inputs):
    want = tangkit.expected(inputs)
    assert list(result) == list(want)
    for name, value in want.items():
        assert result[name].dtype == value.dtype
        assert result[name].shape == value.shape
        np.testing.assert_allclose(result[name], value, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("reserve", [0, 64 << 20])
def test_answers_at_many_sizes_and_memory_that_stays(model, monkeypatch, reserve):
    """An arena that may be reserved never grows; a larger one grows to the greatest size seen and stays."""
    monkeypatch.setattr(layout, "RESERVE", reserve)
    peaks = []
    for n in (1, 5, 300, 4096, 7, 5):
        inputs = tangkit.arrays(n, n)
        agree(model.run(inputs), inputs)
        peaks.append(model.peak_bytes)
    assert peaks[3] == peaks[4] == peaks[5]
    assert len(set(peaks)) == 1 if reserve else peaks[0] < peaks[2] < peaks[3]
    for n in range(1, 40):  # more sizes than stay prepared
        agree(model.run(tangkit.arrays(n)), tangkit.arrays(n))
    assert model.peak_bytes == peaks[3]


def test_results_are_the_callers_own(model):
    inputs = tangkit.arrays(4)
    first = model.run(inputs)
    kept = {k: v.copy() for k, v in first.items()}
    model.run(tangkit.arrays(4, seed=9))
    for name, value in kept.items():
        np.testing.assert_array_equal(first[name], value)
        assert first[name].flags.writeable and first[name].flags.c_contiguous


def test_strided_inputs_and_nan(model):
    base = np.zeros((3, 10), np.float32)
    base[:, ::2] = np.arange(15, dtype=np.float32).reshape(3, 5)
    inputs = {"a": base[:, ::2].T, "b": np.arange(10)[::-2].copy()[::-1]}
    agree(model.run(inputs), inputs)
    inputs["a"] = inputs["a"].copy()
    inputs["a"][2, 1] = np.nan
    inputs["a"][3, 0] = np.inf
    agree(model.run(inputs), inputs)


A5, B5 = np.zeros((5, 3), np.float32), np.zeros(5, np.int64)


@pytest.mark.parametrize(
    ("inputs", "match"),
    [
        ({"a": A5}, "'b' is missing"),
        ({"a": A5, "b": B5, "c": B5}, "'c' is no input"),
        ({"a": A5, "c": B5}, "'c' is no input; 'b' is missing"),
        ({"a": A5.astype(np.float64), "b": B5}, r"'a'.*dtype float64.*astype\(numpy.float32\)"),
        ({"a": A5.astype(">f4"), "b": B5}, "'a'.*dtype"),
        ({"a": A5.tolist(), "b": B5}, "'a'.*list.*numpy.asarray"),
        ({"a": A5[0], "b": B5}, r"'a'.*1 axes.*\(n, 3\)"),
        ({"a": A5[:, :2], "b": B5}, "'a', axis 1: is 2, must be 3"),
        ({"a": A5, "b": B5[:4]}, "'b', axis 0: is 4.*'n' is 5 by axis 0 of input 'a'"),
        ({"a": A5[:0], "b": B5[:0]}, r"'a', axis 0.*'n' must be in 1\.\.4096"),
        ({"a": np.zeros((5000, 3), np.float32), "b": B5}, r"1\.\.4096.*--dim n=lo\.\.hi"),
        ([A5, B5], "takes a dict"),
        ({1: A5, "b": B5}, "1 is no input"),
    ],
)
def test_refused_inputs(model, inputs, match):
    good = tangkit.arrays(5)
    agree(model.run(good), good)
    with pytest.raises(InputError, match=match):
        model.run(inputs)
    agree(model.run(good), good)  # and the model goes on


def test_integers_that_the_device_cannot_hold(model):
    inputs = tangkit.arrays(3)
    inputs["b"][1] = 2**40
    if model.report.device == "c":
        agree(model.run(inputs), inputs)
    else:
        with pytest.raises(InputError, match=r"'b'.*1099511627776"):
            model.run(inputs)


def test_sessions_run_side_by_side(model):
    failures = []

    def work(seed):
        with model.session() as session:
            for k in range(30):
                inputs = tangkit.arrays(1 + (seed * 7 + k) % 20, seed * 100 + k)
                try:
                    agree(session.run(inputs), inputs)
                except Exception as error:  # a thread's failure must reach the test
                    failures.append(error)

    def shared(seed):
        for k in range(30):
            inputs = tangkit.arrays(1 + k % 3, seed)
            try:
                agree(model.run(inputs), inputs)
            except Exception as error:
                failures.append(error)

    threads = [threading.Thread(target=t, args=(s,)) for s in range(3) for t in (work, shared)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_closed(bundle, device):
    model = tang_edge.load(bundle, device=device)
    session = model.session()
    model.run(tangkit.arrays(2))
    model.close()
    model.close()
    for run in (model.run, session.run):
        with pytest.raises(InputError, match="closed"):
            run(tangkit.arrays(2))
    with pytest.raises(InputError, match="closed"):
        model.session()


def test_sessions_that_are_dropped_free_their_memory(model):
    model.run(tangkit.arrays(5))
    before = model.peak_bytes
    for _ in range(3):
        model.session().run(tangkit.arrays(4000))
    gc.collect()
    assert model.peak_bytes == before


def test_no_room_is_a_clear_error_and_the_model_goes_on(tmp_path, device):
    variants = tangkit.wgsl_variant(), tangkit.c_variant()
    for variant in variants:  # from 101 on more than there is
        variant["slots"][2] = ["max", tangkit.F32_N3, ["*", ["-", "n", 100], 2**40]]
    path = tangkit.make(tmp_path / "h.tang", plan=tangkit.plan(*variants))
    with tang_edge.load(path, device=device) as loaded:
        agree(loaded.run(tangkit.arrays(7)), tangkit.arrays(7))
        for _ in range(2):
            with pytest.raises(DeviceError):
                loaded.run(tangkit.arrays(101))
            agree(loaded.run(tangkit.arrays(7)), tangkit.arrays(7))
            agree(loaded.run(tangkit.arrays(100)), tangkit.arrays(100))


def test_steps_for_tools(model):
    inputs = tangkit.arrays(6)
    assert [s.name for s in model.steps] == ["scaled", "y", "count"]
    with pytest.raises(InputError, match="no inputs"):
        model.run_steps(0, 1)
    model.run_steps(0, 1, inputs)
    np.testing.assert_allclose(model.read_step(0), inputs["a"] * tangkit.W, rtol=1e-6)
    model.run_steps(1, 2)
    np.testing.assert_allclose(model.read_step(1), tangkit.expected(inputs)["y"], rtol=1e-5, atol=1e-5)
    model.run_steps(2, -1)
    np.testing.assert_array_equal(model.read_step(2), inputs["b"] + 1)
    agree(model.run(inputs), inputs)
    with pytest.raises(InputError, match="no step 3"):
        model.read_step(3)
    assert len(model.time(inputs, 3)) == 3
    assert model.output_shapes({"n": 4}) == {"y": (4, 3), "count": (4,)}


def _stateful(plan):
    """The count of the model fed back into its input b."""
    state = {"input": "b", "output": "count", "shape": ["n"], "dtype": "i64", "reset": "zeros"}
    return {**plan, "states": [state]}


def test_states_live_in_sessions(tmp_path, device):
    variants = [tangkit.wgsl_variant(), tangkit.c_variant()]
    path = tangkit.make(tmp_path / "s.tang", plan=_stateful(tangkit.plan(*variants)))
    a = {"a": np.ones((4, 3), np.float32)}
    with tang_edge.load(path, device=device) as model:
        for k in range(4):
            result = model.run(a)
            assert list(result) == ["y"]
            np.testing.assert_allclose(result["y"], tangkit.W[None] + k + np.zeros((4, 1)), rtol=1e-6)
        other = model.session()
        np.testing.assert_allclose(other.run(a)["y"][0], tangkit.W)
        saved = model.session()
        saved.restore({"b": np.full(4, 10)})
        assert saved.run(a)["y"][0, 0] == 12
        snapshot = saved.snapshot()
        assert snapshot["b"].tolist() == [11] * 4
        saved.reset()
        assert saved.run(a)["y"][0, 0] == 2
        given = saved.run({**a, "b": np.full(4, 5)})  # explicit: the output comes back
        assert given["count"].tolist() == [6] * 4
        assert saved.run(a)["y"][0, 0] == 8
        with pytest.raises(InputError, match="no states"):
            saved.restore({"zzz": a["a"]})
        with pytest.raises(InputError, match="axis 0"):
            saved.run({"a": np.ones((5, 3), np.float32)})  # the state has 4


def test_constraints_and_multiples(tmp_path, device):
    plan = tangkit.plan(tangkit.wgsl_variant(), tangkit.c_variant())
    plan["dims"][0] |= {"min": 2, "multiple": 2}
    plan["constraints"] = [{"left": ["%", "n", 6], "right": 0, "why": "made for sixes"}]
    path = tangkit.make(tmp_path / "m.tang", plan=plan, golden=[tangkit.golden(6)])
    with tang_edge.load(path, device=device) as model:
        agree(model.run(tangkit.arrays(12)), tangkit.arrays(12))
        with pytest.raises(InputError, match="a multiple of 2"):
            model.run(tangkit.arrays(9))
        with pytest.raises(InputError, match="made for sixes"):
            model.run(tangkit.arrays(8))


def test_bad_arguments(bundle):
    for arguments in ({"device": "tpu"}, {"threads": 0}, {"threads": "two"}):
        with pytest.raises(InputError):
            tang_edge.load(bundle, **arguments)


def test_errors_survive_pickling():
    error = DeviceError("broke", where="here", remedy="Do this.")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is DeviceError
    assert str(again) == "here: broke. Do this."


def test_constants_of_several_parts(tmp_path, device, monkeypatch):
    """Weights larger than a chunk; the C kernel reads them in its steps, not only in the prologue."""
    from tang_edge.bundle import format as fmt

    monkeypatch.setattr(fmt, "CHUNK_BYTES", 8)
    variant = tangkit.c_variant()
    variant["buffers"].append(tangkit.buffer(6, "wc", "constant", "f32", [3], 12, constant="w"))
    kernel = {"entry": "f", "workgroup": [1, 1, 1], "bindings": ["read"], "params": 0, "safe": True}
    variant["kernels"] = {"k": kernel}
    for alternate in variant["steps"][0]["alternates"]:
        alternate["dispatches"] = [{"kernel": "k", "args": [6], "params": [], "grid": [1, 1, 1]}]
    source = tangkit.C_MODEL.replace("(const float *)c->packed", "(const float *)c->constants[0]")
    members = {
        "kernels/c-generic.c": source.replace("BAD", "0.0f"),
        "kernels/webgpu-browser.wgsl": tangkit.WGSL_MODEL.replace("BAD", "0.0"),
    }
    plan = tangkit.plan(tangkit.wgsl_variant(), variant)
    path = tangkit.make(tmp_path / "p.tang", plan=plan, members=members)
    with tang_edge.load(path, device=device) as model:
        assert len(model.plan.constants[0].parts) == 2
        agree(model.run(tangkit.arrays(7)), tangkit.arrays(7))
