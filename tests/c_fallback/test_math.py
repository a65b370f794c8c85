"""Vector mathematics of generated C against float64: the greatest error in units of the last place, and the special values.

Each function runs over all exponents and both signs, densely where it changes, and over NaN, infinities, denormals, zeros
and the limits of overflow.
"""

from __future__ import annotations

import ctypes
import math
import subprocess
from pathlib import Path

import numpy as np
import pytest

import tang_edge.c_fallback
from tang_edge.c_fallback import compile as cc

LANES = (4, 8, 16)
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1e-40, 1.1754944e-38, 3.4028235e38, -3.4028235e38]
SPECIAL += [88.72283, 88.72284, -87.33654, -103.97207, -103.98, 104.0, -104.1, 1.0, -1.0, 0.5, 2.0, 9.0, 10.0]

# name: (reference in float64, low, high of the dense part, greatest error in ulp)
FUNCTIONS = {
    "exp": (np.exp, -104.0, 88.8, 1.5),
    "log": (np.log, 1e-3, 1e3, 2.0),
    "tanh": (np.tanh, -12.0, 12.0, 3.0),
    "erf": (np.vectorize(math.erf), -5.0, 5.0, 2.5),
    "sin": (np.sin, -30.0, 30.0, 1.5),
    "cos": (np.cos, -30.0, 30.0, 1.5),
    "atan": (np.arctan, -30.0, 30.0, 1.5),
    "sqrt": (np.sqrt, 0.0, 1e4, 0.5),
    "floor": (np.floor, -1e4, 1e4, 0.0),
    "ceil": (np.ceil, -1e4, 1e4, 0.0),
    "round": (np.rint, -1e4, 1e4, 0.0),
    "trunc": (np.trunc, -1e4, 1e4, 0.0),
    "abs": (np.abs, -1e4, 1e4, 0.0),
    "sinh": (np.sinh, -20.0, 20.0, 2.0),
    "cosh": (np.cosh, -20.0, 20.0, 2.0),
    "asinh": (np.arcsinh, -20.0, 20.0, 2.5),
    "atanh": (np.arctanh, -0.999, 0.999, 2.0),
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """A library that applies each vector function to an array, for each number of lanes."""
    compiler = cc.find_compiler()
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("math")
    prelude = (Path(tang_edge.c_fallback.__file__).parent / "prelude.h").read_text()
    lines = [prelude, *(f"TANG_VECTORS({n})" for n in LANES)]
    for n in LANES:
        for name in FUNCTIONS:
            lines.append(
                f"void {name}_{n}(const float *x, float *y, long n) {{\n"
                f"  for (long i = 0; i < n; i += {n})\n"
                f"    TANG_STORE(v{n}f32, y + i, tang_{name}_v{n}f32(TANG_LOAD(v{n}f32, x + i)));\n}}"
            )
    (folder / "math.c").write_text("\n".join(lines) + "\n")
    flags = [f for f in cc.FLAGS if f != "-fvisibility=hidden"]
    command = [*compiler.command, *flags, "-o", str(folder / "math.so"), str(folder / "math.c"), *cc.LIBRARIES]
    subprocess.run(command, check=True, timeout=300)
    return ctypes.CDLL(str(folder / "math.so"))


def arguments(low: float, high: float) -> np.ndarray:
    """Float32 arguments: special ones, a dense range, and all exponents with random fractions; a multiple of 16."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, 60000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    steps = 1 + np.arange(-8, 8, dtype=np.float32) * np.float32(1.2e-7)
    near = np.concatenate([np.float32(s) * steps for s in SPECIAL[-13:]])
    x = np.concatenate([np.float32(SPECIAL), near, rng.uniform(low, high, 200000).astype(np.float32), bits]).astype(np.float32)
    return np.resize(x, -(-x.size // 16) * 16)


def ulps(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Error in units of the last place of float32 at the true value; below the least normal number, of that."""
    with np.errstate(all="ignore"):
        unit = np.spacing(np.maximum(np.abs(want), 1.1754944e-38).astype(np.float32)).astype(np.float64)
        return np.abs(got.astype(np.float64) - want) / unit


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_error(library: ctypes.CDLL, name: str, lanes: int) -> None:
    reference, low, high, most = FUNCTIONS[name]
    x = arguments(low, high)
    y = np.empty_like(x)
    getattr(library, f"{name}_{lanes}")(
        x.ctypes.data_as(ctypes.c_void_p), y.ctypes.data_as(ctypes.c_void_p), ctypes.c_long(x.size)
    )
    with np.errstate(all="ignore"):
        want = np.asarray(reference(x.astype(np.float64)), np.float64)
        rounded = want.astype(np.float32)
    assert np.array_equal(np.isnan(y), np.isnan(rounded)), x[np.isnan(y) != np.isnan(rounded)][:5]
    ends = np.isinf(rounded) | np.isinf(y)
    close = np.abs(want) > 3.40e38  # at the limit of overflow, an ulp decides between the greatest number and infinity
    wrong = ends & (y != rounded) & ~close
    assert not wrong.any(), (x[wrong][:5], y[wrong][:5])
    inside = np.isfinite(want) & ~ends
    error = ulps(y[inside], want[inside])
    at = int(error.argmax())
    assert error[at] <= most, f"{name}({x[inside][at]!r}) = {y[inside][at]!r}, wanted {want[inside][at]!r}: {error[at]:.2f} ulp"
    zero = x == 0
    if name not in ("exp", "log", "cos", "cosh", "abs"):
        assert np.array_equal(np.signbit(y[zero]), np.signbit(x[zero])), "the sign of zero"
