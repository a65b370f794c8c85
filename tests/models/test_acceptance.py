"""The acceptance models on C and on WebGPU against ONNX Runtime: answers, kernel counts, both branches, exact integers.

One bundle a model holds both variants; it is packed once. Models that were not fetched skip visibly.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import devicekit
import numpy as np
import pytest

pytest.importorskip("PIL")
onnxruntime = pytest.importorskip("onnxruntime")

from tang_edge import compiler, vectors  # noqa: E402
from tang_edge.bundle import write as bundle_write  # noqa: E402
from tang_edge.onnx_in import import_model  # noqa: E402
from tang_edge.rewrite.pipeline import optimize  # noqa: E402
from tang_edge.runtime.load import load  # noqa: E402
from tang_edge.runtime.session import Model  # noqa: E402
from tang_edge.schedule import variant  # noqa: E402
from tang_edge.schedule.limits import CLASSES  # noqa: E402
from tests.models import real_inputs  # noqa: E402

Array = Any
# WebGPU without a GPU is slow: the great sizes of these run with real inputs only there
SLOW_ON_A_CPU_ADAPTER = ("ppocr-det", "ddddocr-det", "ppocr-rec")


class Packed:
    """A model's program, its bundle with a C and a WebGPU variant, and ONNX Runtime's session."""

    def __init__(self, name: str) -> None:
        path = real_inputs.model_path(name)
        if not path.exists():
            pytest.skip(f"{path} is not fetched")
        self.name = name
        self.program = optimize(import_model(path).program)
        self.rtol = vectors.tolerance(self.program)
        self.path: Path = devicekit.folder() / f"{name}.tang"
        self.made = {c: compiler.build_variant(self.program, CLASSES[c]) for c in (devicekit.c_class(), "laptop")}
        plan, members = compiler.assemble(self.program, list(self.made.values()))
        constants = ((c.name, np.asarray(c.data)) for c in self.program.constants)
        bundle_write.write(self.path, name=name, plan=plan, members=members, constants=constants, remember=True)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        self.ort = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    @functools.cached_property
    def models(self) -> dict[str, Model]:
        """Loaded models by device."""
        return {}

    def on(self, device: str) -> Model:
        """The bundle on a device."""
        if devicekit.missing(device):
            pytest.skip(f"{device}: {devicekit.missing(device)}")
        if device not in self.models:
            self.models[device] = load(self.path, device=device, trust=True, self_test=False)
        return self.models[device]

    def expected(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """ONNX Runtime's answer."""
        names = [o.name for o in self.ort.get_outputs()]
        return dict(zip(names, self.ort.run(None, dict(feeds)), strict=True))


@functools.cache
def packed(name: str) -> Packed:
    """The packed model; once in a session."""
    return Packed(name)


# ONNX Runtime's logistic is a rational function with an absolute error of one unit in the last place of 1.0: maps that are
# 1e-8 in truth come out as 0 or 1.2e-7 there (ours keep their relative accuracy)
LOGISTIC = {"ppocr-det": 2.0**-22, "oww-jarvis": 2.0**-22}


def assert_close(got: Array, want: Array, rtol: float, floor: float = 0.0) -> None:
    """Each element within rtol of its own magnitude plus rtol of the output's root mean square (plus `floor`).

    Rounding errors of a sum scale with its terms, not with its result, and outputs are sums of terms of the output's
    general size. Both runtimes have these errors: hence the factor of 2.
    """
    assert got.dtype == want.dtype and got.shape == want.shape
    size = float(np.sqrt(np.mean(np.square(want, dtype=np.float64)))) if want.size else 0.0
    np.testing.assert_allclose(got, want, rtol=2 * rtol, atol=2 * rtol * size + floor)


@pytest.mark.parametrize("device", ["c", pytest.param("webgpu", marks=pytest.mark.device)])
@pytest.mark.parametrize(("model", "size", "kind"), real_inputs.cases(), ids=lambda v: getattr(v, "label", v))
def test_agrees_with_onnx_runtime(model: str, size: real_inputs.Size, kind: real_inputs.Kind, device: str) -> None:
    p = packed(model)
    m = p.on(device)
    if device == "webgpu" and kind == "random" and model in SLOW_ON_A_CPU_ADAPTER and not os.environ.get("TANG_EDGE_ALL"):
        pytest.skip("real inputs only where the adapter is slow; set TANG_EDGE_ALL=1 for both")
    for seed in range(1 if model in SLOW_ON_A_CPU_ADAPTER else 3):
        feeds = real_inputs.inputs(model, size, kind=kind, seed=seed)
        want = p.expected(feeds)
        got = m.run(dict(feeds))
        assert list(got) == list(want)
        for name, value in want.items():
            assert_close(got[name], value, p.rtol, LOGISTIC.get(model, 0.0))


# ---------------------------------------------------------------- structure


def kernels(p: Packed, device: str) -> int:
    """Dispatches of a run, the longer branch of an If counted."""
    made = p.made["laptop" if device == "webgpu" else devicekit.c_class()]

    def count(steps: list[Any]) -> int:
        return sum(
            max(count(s["if"]["then"]), count(s["if"]["else"])) if "if" in s else len(s["alternates"][0]["dispatches"])
            for s in steps
        )

    return count(made.plan["steps"])


@pytest.mark.parametrize("device", ["c", "webgpu"])
@pytest.mark.parametrize(("model", "most"), [("go2-policy", 4), ("reachy-fk", 7), ("reachy-ik", 7), ("reachy-fk-int8", 8)])
def test_one_kernel_a_layer(model: str, most: int, device: str) -> None:
    """Gemm with its activation is one kernel: 4 layers, 7 layers, and the quantisation of the input."""
    assert kernels(packed(model), device) <= most


@pytest.mark.parametrize(("model", "most"), [("ppocr-cls", 77), ("ddddocr-det", 92), ("oww-embedding", 25)])
def test_convolutions_with_all_around_them_are_one_kernel(model: str, most: int) -> None:
    """One step for each bind of tests/rewrite/test_models.py, and one kernel a step that holds a convolution: only sums
    with few results (global pools) may be split in two."""
    p = packed(model)
    assert kernels(p, "c") <= most
    for made in p.made.values():
        steps = made.plan["steps"]
        assert len(steps) <= most
        held = [s for s in steps if any(o.startswith("Conv ") for o in s["origin"])]
        assert held and all(len(s["alternates"][0]["dispatches"]) == 1 for s in held)


def test_reachy_is_exact() -> None:
    """QDQ: integer products are exact and the requantisation rounds as ONNX Runtime does, so outputs are equal."""
    p = packed("reachy-fk-int8")
    for device in ("c", "webgpu"):
        if devicekit.missing(device):
            continue
        for kind in ("random", "real"):
            for seed in range(20):
                feeds = real_inputs.inputs("reachy-fk-int8", kind=kind, seed=seed)  # type: ignore[arg-type]
                want = p.expected(feeds)
                got = p.on(device).run(dict(feeds))
                for name, value in want.items():
                    np.testing.assert_array_equal(got[name], value, err_msg=f"{device} {kind} {seed}")


def test_conditional_takes_both_branches() -> None:
    """The wake-word model holds an If: inputs on either side of its condition."""
    p = packed("oww-jarvis")
    branches = [s for s in p.made["laptop"].variant.steps if isinstance(s, variant.Branch)]
    if not branches:
        pytest.skip("the If was folded away")
    cond = branches[0].cond
    seen: dict[bool, dict[str, Array]] = {}
    rng = np.random.default_rng(0)
    from tang_edge.ir import interp

    for scale in (1.0, 10.0, 50.0, -50.0, 0.0, 300.0, 1000.0):
        feeds = {"x.1": (rng.normal(size=(1, 16, 96)) * scale).astype(np.float32)}
        value = interp.run(p.program, feeds, keep={cond})[cond]
        seen.setdefault(bool(np.ravel(value)[0]), feeds)
    assert set(seen) == {False, True}, f"only {set(seen)} were met"
    for feeds in seen.values():
        want = p.expected(feeds)
        for device in ("c", "webgpu"):
            if not devicekit.missing(device):
                got = p.on(device).run(dict(feeds))
                for name, a in want.items():
                    assert_close(got[name], a, p.rtol)
