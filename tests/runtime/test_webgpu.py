"""What is particular to WebGPU: submissions, branches, the prologue, segments, errors, a lost device."""

from __future__ import annotations

import numpy as np
import pytest
import tangkit

import tang_edge
from tang_edge.bundle import format as fmt
from tang_edge.bundle.layout import region
from tang_edge.errors import BundleError, DeviceError
from tang_edge.wgsl import gpu

pytestmark = [pytest.mark.device, pytest.mark.usefixtures("needs_webgpu")]

HEAD = "@compute @workgroup_size(64)\nfn main(@builtin(global_invocation_id) id: vec3<u32>)"


def storage(*names, types=None):
    """Declarations of read_write bindings."""
    return "\n".join(
        f"@group(0) @binding({i}) var<storage, read_write> {n}: array<{(types or {}).get(n, 'f32')}>;"
        for i, n in enumerate(names)
    )


def load(tmp_path, variant, text=None, plan=None, **more):
    """A model of one WebGPU variant."""
    members = {"kernels/webgpu-browser.wgsl": text} if text is not None else None
    options = {"golden": []} | ({"members": members} if members else {})
    path = tangkit.make(tmp_path / "w.tang", plan=plan or tangkit.plan(variant), c=False, **options, **more)
    return tang_edge.load(path, device="webgpu")


def test_one_submission_a_run(bundle):
    with tang_edge.load(bundle, device="webgpu") as model:
        for n in (3, 3, 90):
            before = model._engine.submissions
            model.run(tangkit.arrays(n))
            assert model._engine.submissions == before + 1


def test_a_lost_device_is_made_again_once(bundle):
    with tang_edge.load(bundle, device="webgpu") as model:
        other = model.session()
        inputs = tangkit.arrays(5)
        want = model.run(inputs)
        other.run(inputs)
        for _ in range(2):
            model._engine.device.destroy()
            for run in (model.run, other.run):
                np.testing.assert_array_equal(run(inputs)["y"], want["y"])
        model._engine.device.destroy()
        np.testing.assert_array_equal(model.run(tangkit.arrays(50))["count"], tangkit.arrays(50)["b"] + 1)
        assert model._engine.epoch == 4


def test_a_device_that_cannot_come_back_is_an_error_and_never_zeros(bundle, monkeypatch):
    with tang_edge.load(bundle, device="webgpu") as model:
        inputs = tangkit.arrays(5)
        model.run(inputs)

        def gone(*_):
            raise DeviceError("the driver gives no device", where="test")

        monkeypatch.setattr(gpu, "open_device", gone)
        model._engine.device.destroy()
        with pytest.raises(DeviceError, match="gives no device"):
            model.run(inputs)


def test_cpu_adapters_prefer_their_alternate(tmp_path):
    variant = tangkit.wgsl_variant(cpu_adapter_prefers="safe")
    with load(tmp_path, variant, bad=1.0) as model:
        if not model._engine._adapter.is_cpu:
            pytest.skip("the adapter is a GPU")
        assert model._engine.choice(0) == 1
        inputs = tangkit.arrays(3)
        np.testing.assert_allclose(model.run(inputs)["y"], tangkit.expected(inputs)["y"], rtol=1e-5, atol=1e-5)


def test_a_kernel_that_the_driver_refuses_is_demoted_by_name(tmp_path):
    text = tangkit.WGSL_MODEL.replace("+ BAD", "+ no_such_function()")
    path = tangkit.make(tmp_path / "r.tang", c=False, members={"kernels/webgpu-browser.wgsl": text})
    with tang_edge.load(path) as model:
        (demotion,) = model.report.demotions
        assert demotion.name == "scaled" and "no_such_function" in demotion.why
    with (
        tang_edge.load(path, self_test=False) as model,
        pytest.raises(DeviceError, match=r"kernel scale of step 0.*no_such_function"),
    ):
        model.run(tangkit.arrays(2))
    text = tangkit.WGSL_MODEL.replace("BAD", "0.0").replace("//@kernel add\n", "//@kernel other\n")
    with (
        load(tmp_path, tangkit.wgsl_variant(), text) as model,
        pytest.raises(BundleError, match="lacks kernel add"),
    ):
        model.run(tangkit.arrays(2))


def test_a_dispatch_that_the_driver_refuses_is_named(tmp_path):
    # one arena buffer bound read-only and read-write in one dispatch
    variant = tangkit.wgsl_variant()
    variant["kernels"]["add"]["bindings"] = ["read", "read_write", "read_write"]
    text = tangkit.WGSL_MODEL.replace("BAD", "0.0")
    head, add = text.split("//@kernel add\n")
    text = head + "//@kernel add\n" + add.replace("read_write> t", "read> t", 1)
    with load(tmp_path, variant, text) as model:
        with pytest.raises(DeviceError, match=r"kernel add, step 1 \(y\)"):
            model.run(tangkit.arrays(2))
        model.run_steps(0, 1, tangkit.arrays(2))  # the device itself is well


def test_grids_beyond_the_limit(tmp_path):
    variant = tangkit.wgsl_variant()
    variant["steps"][0]["alternates"][0]["dispatches"][0]["grid"] = ["n", ["*", "n", 1000], 1]
    with load(tmp_path, variant) as model:
        model.run(tangkit.arrays(2))
        with pytest.raises(BundleError, match="65535"):
            model.run(tangkit.arrays(66))


def test_buffers_that_do_not_fit(tmp_path):
    for place, value, match in [("bytes", 4, "do not fit"), ("strides", [4096, 1], "do not fit")]:
        variant = tangkit.wgsl_variant()
        variant["buffers"][3][place] = value
        with load(tmp_path, variant) as model, pytest.raises(BundleError, match=match):
            model.run(tangkit.arrays(100))
    variant = tangkit.wgsl_variant()
    variant["buffers"][0]["shape"] = ["n", 1]  # would be broadcast
    with load(tmp_path, variant) as model, pytest.raises(BundleError, match="not the port's"):
        model.run(tangkit.arrays(2))
    variant = tangkit.wgsl_variant()
    variant["slots"][2] = 256
    with load(tmp_path, variant) as model, pytest.raises(BundleError, match="larger than its slot"):
        model.run(tangkit.arrays(100))


def test_branches_read_their_condition_back(tmp_path):
    """if b[0] != 0: y = 10 a else if a[0] != 0: y = 20 a, else y = 30 a; then count as ever."""
    text = tangkit.WGSL_MODEL.replace("BAD", "0.0")
    for factor in (10, 20, 30):
        text += f"""//@kernel times{factor}
{storage("a", "y")}
@group(0) @binding(2) var<uniform> p: array<vec4<i32>, 2>;
{HEAD} {{ if (i32(id.x) < p[1].x) {{ y[id.x] = a[id.x] * {factor}.0 * f32(p[0].w); }} }}
"""
    variant = tangkit.wgsl_variant()
    kernel = {"entry": "main", "workgroup": [64, 1, 1], "params": 5, "safe": True}
    branch = {}
    for factor in (10, 20, 30):
        variant["kernels"][f"times{factor}"] = {**kernel, "bindings": ["read_write", "read_write"]}
        dispatch = {"kernel": f"times{factor}", "args": [0, 3], "params": [0, 0, 0, 1, ["*", "n", 3]]}
        step = {**variant["steps"][1], "name": f"y{factor}"}
        branch[factor] = {
            **step,
            "alternates": [{"tag": "x", "dispatches": [{**dispatch, "grid": ["n", 1, 1]}]}],
        }
    inner = {"if": {"cond": 0, "then": [branch[20]], "else": [branch[30]]}}
    outer = {"if": {"cond": 1, "then": [branch[10]], "else": [inner]}}
    variant["steps"] = [variant["steps"][0], outer, variant["steps"][2]]
    with load(tmp_path, variant, text) as model:
        assert len(model.steps) == 7
        for b, a, factor, submissions in [(1, 1, 10, 2), (0, 1, 20, 3), (0, 0, 30, 3), (-1, 0, 10, 2)]:
            inputs = tangkit.arrays(4)
            inputs["b"][0], inputs["a"][0, 0] = b, a
            before = model._engine.submissions
            result = model.run(inputs)
            assert model._engine.submissions == before + submissions
            np.testing.assert_allclose(result["y"], inputs["a"] * factor, rtol=1e-6)
            np.testing.assert_array_equal(result["count"], inputs["b"] + 1)
            at = {10: 2, 20: 4, 30: 5}[factor]
            model.run_steps(0, 1, inputs)
            model.run_steps(at, at + 1)
            np.testing.assert_allclose(model.read_step(at), inputs["a"] * factor, rtol=1e-6)


def test_prologue_packs_weights_once(tmp_path):
    """The packed weight is 2 w + 1, made by the prologue through a scratch tensor in the arena."""
    text = tangkit.WGSL_MODEL.replace("BAD", "0.0")
    text += f"""//@kernel double
@group(0) @binding(0) var<storage, read> w: array<f32>;
@group(0) @binding(1) var<storage, read_write> s: array<f32>;
{HEAD} {{ if (id.x < 3u) {{ s[id.x] = w[id.x] * 2.0; }} }}
//@kernel plus
{storage("s", "p")}
{HEAD} {{ if (id.x < 3u) {{ p[id.x] = s[id.x] + 1.0; }} }}
"""
    variant = tangkit.wgsl_variant()
    variant["buffers"] += [
        tangkit.buffer(6, "packed", "packed", "f32", [3], 76, slot=0),
        tangkit.buffer(7, "scratch", "arena", "f32", [3], 76, slot=2),
    ]
    variant["packed_slots"] = [76]
    kernel = {"entry": "main", "workgroup": [64, 1, 1], "params": 0, "safe": True}
    variant["kernels"]["double"] = {**kernel, "bindings": ["read", "read_write"]}
    variant["kernels"]["plus"] = {**kernel, "bindings": ["read_write", "read_write"]}
    steps = [("double", [5, 7], 7), ("plus", [7, 6], 6)]
    variant["prologue"] = [
        {
            "name": name,
            "origin": [],
            "writes": {"buffer": target, "shape": [3], "strides": [1], "offset": 0},
            "alternates": [{"tag": "x", "dispatches": [{"kernel": name, "args": args, "params": [], "grid": [1, 1, 1]}]}],
        }
        for name, args, target in steps
    ]
    for alternate in variant["steps"][0]["alternates"]:
        alternate["dispatches"][0]["args"] = [0, 6, 2]
    with load(tmp_path, variant, text) as model:
        assert not model._engine.constants  # no step reads the canonical weight
        for _ in range(2):
            inputs = tangkit.arrays(4)
            want = inputs["a"] * (2 * tangkit.W + 1) + inputs["b"][:, None]
            np.testing.assert_allclose(model.run(inputs)["y"], want, rtol=1e-5, atol=1e-5)
            model._engine.device.destroy()  # the prologue runs again on the new device


def test_segments(tmp_path, monkeypatch):
    monkeypatch.setattr(fmt, "SEGMENT_BYTES", 1024)
    with load(tmp_path, tangkit.wgsl_variant()) as model:
        for n in (5, 400, 3, 40):
            inputs = tangkit.arrays(n)
            np.testing.assert_allclose(model.run(inputs)["y"], tangkit.expected(inputs)["y"], rtol=1e-5, atol=1e-5)
        assert len(model._first._worker._arena.buffers) > 1


def test_segment_places(monkeypatch):
    monkeypatch.setattr(fmt, "SEGMENT_BYTES", 1024)
    layout = region((512, 512, 256, 3000, 10, 0), {}, "x")
    assert gpu.segment_places(layout) == [(0, 0), (0, 512), (1, 0), (2, 0), (3, 0), (3, 256)]
    assert gpu.segment_sizes(layout) == [1024, 256, 3072, 512]


def test_narrow_types_are_held_as_i32(tmp_path):
    """u8 and bool ports, i16 output, f16 weights as f32: all exact."""
    plan = tangkit.plan()
    plan["inputs"] = [
        {"name": "p", "dtype": "u8", "shape": ["n"]},
        {"name": "q", "dtype": "bool", "shape": ["n"]},
    ]
    plan["outputs"] = [
        {"name": "r", "dtype": "i16", "shape": ["n"]},
        {"name": "s", "dtype": "bool", "shape": ["n"]},
    ]
    plan["constants"] = [{"name": "w", "dtype": "i64", "shape": [3]}]
    i32 = ["+", ["*", "n", 4], 64]
    text = f"""//@kernel mix
{storage("p", "q", "r", "s", types=dict.fromkeys("pqrs", "i32"))}
@group(0) @binding(4) var<storage, read> w: array<i32>;
@group(0) @binding(5) var<uniform> d: array<vec4<i32>, 1>;
{HEAD} {{
  let i = id.x;
  if (i32(i) < d[0].x) {{ r[i] = p[i] * w[0] - q[i] * w[1]; s[i] = select(0, 1, p[i] > 100); }}
}}
"""
    ports = [("p", "input"), ("q", "input"), ("r", "output"), ("s", "output")]
    variant = tangkit.wgsl_variant(
        buffers=[
            *(tangkit.buffer(i, n, k, "i32", ["n"], i32, slot=i, io=n) for i, (n, k) in enumerate(ports)),
            tangkit.buffer(4, "w", "constant", "i32", [3], 76, constant="w"),
        ],
        slots=[i32] * 4,
        kernels={
            "mix": {
                "entry": "main",
                "workgroup": [64, 1, 1],
                "bindings": ["read_write"] * 4 + ["read"],
                "params": 1,
                "safe": True,
            }
        },
        steps=[
            {
                "name": "r",
                "origin": [],
                "writes": {"buffer": 2, "shape": ["n"], "strides": [1], "offset": 0},
                "alternates": [
                    {
                        "tag": "x",
                        "dispatches": [{"kernel": "mix", "args": [0, 1, 2, 3, 4], "params": ["n"], "grid": ["n", 1, 1]}],
                    }
                ],
            }
        ],
    )
    members = {"kernels/webgpu-browser.wgsl": text}
    from tang_edge.bundle.write import write

    def packed(weights):
        path = tmp_path / "t.tang"
        write(path, name="t", plan={**plan, "variants": [variant]}, members=members, constants=[("w", weights)])
        return tang_edge.load(path, device="webgpu")

    with packed(np.array([2, 7, 0])) as model:
        p, q = np.arange(0, 255, 5, dtype=np.uint8), np.arange(51) % 2 == 0
        result = model.run({"p": p, "q": q})
        assert result["r"].dtype == np.int16 and result["s"].dtype == np.bool_
        np.testing.assert_array_equal(result["r"], p.astype(int) * 2 - q * 7)
        np.testing.assert_array_equal(result["s"], p > 100)
    with pytest.raises(DeviceError, match="constant w"):
        packed(np.array([2**40, 7, 0]))
