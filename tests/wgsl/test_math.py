"""Mathematics of WGSL kernels, helpers included, against float64 on whatever adapter there is.

The bounds are those of the WGSL specification (section "Floating Point Accuracy") for its built-in functions, and our own for
`tang_erf`, `tanh` and `tang_pow`. Large arguments must saturate; NaN and infinity are in tests/emit/test_ops.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import devicekit
import numpy as np
import pytest

from tang_edge.ir.dtype import f32, i32
from tang_edge.ir.scalar import Scalar, cast, op
from tang_edge.ir.tensor import Builder

pytestmark = pytest.mark.device
N = 4096

# name: (reference, arguments, relative error, absolute error); arguments are (low, high)
FUNCTIONS: dict[str, tuple[Callable[..., object], tuple[float, float], float, float]] = {
    "exp": (np.exp, (-80, 80), 1e-5, 1e-37),  # (3 + 2 |x|) ulp
    "log": (np.log, (1e-6, 1e6), 5e-7, 6e-7),
    "tanh": (np.tanh, (-20, 20), 3e-6, 2e-6),
    "erf": (np.vectorize(math.erf), (-6, 6), 4e-7, 4e-7),
    "sqrt": (np.sqrt, (0, 1e6), 4e-7, 0),
    "sin": (np.sin, (-3.14, 3.14), 0, 5e-4),
    "cos": (np.cos, (-3.14, 3.14), 0, 5e-4),
    "atan": (np.arctan, (-20, 20), 5e-4, 0),
    "sinh": (np.sinh, (-10, 10), 1e-4, 1e-5),
    "cosh": (np.cosh, (-10, 10), 1e-4, 0),
    "asinh": (np.arcsinh, (-10, 10), 1e-4, 1e-5),
    "floor": (np.floor, (-1000, 1000), 0, 0),
    "ceil": (np.ceil, (-1000, 1000), 0, 0),
    "round": (np.rint, (-1000, 1000), 0, 0),
    "trunc": (np.trunc, (-1000, 1000), 0, 0),
    "abs": (np.abs, (-1000, 1000), 0, 0),
    "sign": (np.sign, (-2, 2), 0, 0),
    "neg": (np.negative, (-2, 2), 0, 0),
}


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> devicekit.Device:
    """One program with an output for each function."""
    if devicekit.missing("webgpu"):
        pytest.skip(devicekit.missing("webgpu"))
    b = Builder("math")
    for name in (*FUNCTIONS, "base", "power", "big", "a", "b"):
        b.input(f"x_{name}", f32, [N])
    for name in FUNCTIONS:
        b.bind(name, [N], lambda i, name=name: op(name, b.read(f"x_{name}", [i])))
    b.bind("pow", [N], lambda i: op("pow", b.read("x_base", [i]), b.read("x_power", [i])))
    b.bind("mod", [N], lambda i: op("mod", b.read("x_a", [i]), b.read("x_b", [i])))
    b.bind("fmod", [N], lambda i: op("fmod", b.read("x_a", [i]), b.read("x_b", [i])))
    sigmoid: Callable[[Scalar], Scalar] = lambda x: 1 / (1 + op("exp", -x))  # noqa: E731
    for name, body in (("sigmoid", sigmoid), ("gelu", lambda x: op("erf", x)), ("t", lambda x: op("tanh", x))):
        b.bind(f"far_{name}", [N], lambda i, body=body: body(b.read("x_big", [i])))
    b.bind("int", [N], lambda i: cast(b.read("x_big", [i]), i32))
    for name in (*FUNCTIONS, "pow", "mod", "fmod", "far_sigmoid", "far_gelu", "far_t", "int"):
        b.output(name)
    path: Path = tmp_path_factory.mktemp("math") / "math.tang"
    devicekit.write_bundle(b.build(), ["browser"], path)
    return devicekit.Device(path, "webgpu")


@pytest.fixture(scope="module")
def results(device: devicekit.Device) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Inputs and outputs of one run."""
    rng = np.random.default_rng(0)
    feeds = {f"x_{n}": rng.uniform(*f[1], N) for n, f in FUNCTIONS.items()}
    feeds |= {"x_base": rng.uniform(-4, 4, N), "x_power": rng.integers(-4, 5, N).astype(float)}
    feeds["x_base"][::2] = np.abs(feeds["x_base"][::2])
    feeds["x_power"][::2] = rng.uniform(-4, 4, N // 2)
    feeds["x_big"] = np.resize([30.0, -30, 88, -88, 100, -100, 1e4, -1e4, 1e9, -1e9, 1e30, -1e30, 3e38, -3e38, 0, -0.0], N)
    feeds |= {"x_a": rng.uniform(-20, 20, N), "x_b": rng.uniform(0.5, 3, N) * rng.choice([-1, 1], N)}
    cast_feeds = {k: v.astype(np.float32) for k, v in feeds.items()}
    return cast_feeds, device.run(cast_feeds)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_error(results: tuple[dict[str, np.ndarray], dict[str, np.ndarray]], name: str) -> None:
    feeds, got = results
    reference, _, rtol, atol = FUNCTIONS[name]
    want = np.asarray(reference(feeds[f"x_{name}"].astype(np.float64)))
    np.testing.assert_allclose(got[name], want, rtol=rtol, atol=atol)


def test_pow(results: tuple[dict[str, np.ndarray], dict[str, np.ndarray]]) -> None:
    """Negative bases with integer exponents keep their sign."""
    feeds, got = results
    want = feeds["x_base"].astype(np.float64) ** feeds["x_power"]
    np.testing.assert_allclose(got["pow"], want, rtol=3e-5)


def test_mod(results: tuple[dict[str, np.ndarray], dict[str, np.ndarray]]) -> None:
    """The remainder of a float division may be off by the whole divisor where the quotient rounds to an integer."""
    feeds, got = results
    a, b = feeds["x_a"].astype(np.float64), feeds["x_b"].astype(np.float64)
    for name, want in (("mod", np.mod(a, b)), ("fmod", np.fmod(a, b))):
        away = np.abs((a / b) - np.rint(a / b)) > 1e-4
        np.testing.assert_allclose(got[name][away], want[away], atol=2e-5, err_msg=name)


def test_saturation(results: tuple[dict[str, np.ndarray], dict[str, np.ndarray]]) -> None:
    """Far arguments give the limits, not NaN."""
    feeds, got = results
    x = feeds["x_big"].astype(np.float64)
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(got["far_sigmoid"], 1 / (1 + np.exp(-x)), atol=1e-7)
    np.testing.assert_allclose(got["far_gelu"], np.sign(x), atol=1e-6)
    np.testing.assert_allclose(got["far_t"], np.sign(x), atol=1e-6)
    whole = np.clip(x, -(2.0**31), 2.0**31 - 1).astype(np.int64)
    np.testing.assert_array_equal(got["int"], whole)
