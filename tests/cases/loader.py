"""Case files: a program in the text form, inputs, a reference, and the structure expected after rewriting.

    tang-ir 1
    program ...                      `const w f32[2, 3] = random 1` makes a seeded normal constant
    ---
    structure comprehensions 1, kernels <= 2      optional: of the rewritten program
    tolerance 1e-3                                optional: relative, instead of the derived one (declared)
    run x = normal(3, 7); k = ints(0, 5, 4)       a line for each set of inputs; seeded by case and line
    reference
    y = x @ w                                     Python; given inputs and constants, assigns the outputs

A backend runs a case: `Backend(name, run, exact, missing)`. Others register theirs with `register`. The devices `c` and
`webgpu` run the rewritten program from a bundle of the case; `TargetLimit` where a dtype does not exist there is a pass.
"""

from __future__ import annotations

import functools
import math
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import devicekit
import numpy as np
import pytest

from tang_edge.errors import TargetLimit
from tang_edge.ir import affine, interp, scalar
from tang_edge.ir.dtype import BY_NAME
from tang_edge.ir.tensor import Program
from tang_edge.ir.text import digest
from tang_edge.ir.text_parse import parse_program
from tang_edge.schedule.limits import CLASSES

Array = Any
FOLDER = Path(__file__).parent
_RANDOM = re.compile(r"^(const \S+ (\w+)\[([\d, ]*)\]) = random (\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class Case:
    """A program, its sets of inputs, the code of its reference and the structure expected after rewriting."""

    name: str
    program: Program
    runs: tuple[Mapping[str, Array], ...]
    reference: str
    structure: tuple[tuple[str, str, int], ...] = ()  # (what, "==" or "<=", count)
    tolerance: float | None = None

    def expected(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs of the reference, in float64 where they are floats."""
        scope: dict[str, Any] = {c.name: _wide(c.data) for c in self.program.constants}
        scope |= {k: _wide(v) for k, v in inputs.items()}
        scope |= {"np": np, "erf": np.vectorize(math.erf, otypes=[float]), "conv2d": conv2d}
        with np.errstate(all="ignore"):
            exec(compile(self.reference, f"{self.name}.te", "exec"), scope)
        return {name: np.asarray(scope[name]) for name, _ in self.program.outputs}

    def rtol(self, exact: bool) -> float:
        """Relative tolerance, of the greatest magnitude: c · eps · sqrt(length of the longest reduction)."""
        if exact:
            return 1e-11
        if self.tolerance is not None:
            return self.tolerance
        eps = max([t.dtype.eps for t in self.program.types().values()], default=0.0)
        return 16 * eps * math.sqrt(longest_reduction(self.program))


def _wide(x: Array) -> Array:
    return x.astype(np.float64) if x.dtype.kind == "f" else x


def longest_reduction(p: Program) -> int:
    """The greatest number of elements that one reduction may have."""
    found = [1]
    for b in p.binds():
        for c in scalar.comprehensions(b.expr):
            found.append(math.prod(max(1, affine.bounds(a.extent)[1]) for a in c.axes))
    return max(found)


def conv2d(x: Array, w: Array, stride: int, pads: tuple[int, int, int, int], groups: int = 1) -> Array:
    """A convolution by loops; pads are top, left, bottom, right."""
    x = np.pad(x, ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
    kh, kw = w.shape[2:]
    oh, ow = (x.shape[2] - kh) // stride + 1, (x.shape[3] - kw) // stride + 1
    y = np.zeros((x.shape[0], w.shape[0], oh, ow))
    per, wide = w.shape[0] // groups, w.shape[1]
    for o in range(w.shape[0]):
        part = x[:, o // per * wide : o // per * wide + wide]
        for i in range(oh):
            for j in range(ow):
                window = part[:, :, i * stride : i * stride + kh, j * stride : j * stride + kw]
                y[:, o, i, j] = (window * w[o]).sum(axis=(1, 2, 3))
    return y


def load(path: Path) -> Case:
    """The case of a file."""
    weights: dict[str, Array] = {}
    head, _, tail = path.read_text(encoding="utf-8").partition("\n---\n")
    program = parse_program(_RANDOM.sub(lambda m: _random_constant(m, weights), head), weights)
    lines, _, reference = tail.partition("\nreference\n")
    runs: list[Mapping[str, Array]] = []
    structure: list[tuple[str, str, int]] = []
    tolerance = None
    for k, line in enumerate(lines.splitlines()):
        word, _, rest = line.partition(" ")
        if word == "run":
            runs.append(_inputs(program, rest, zlib.crc32(f"{path.stem} {k}".encode())))
        elif word == "structure":
            structure += [_count(part) for part in rest.split(",")]
        elif word == "tolerance":
            tolerance = float(rest)
        elif line.strip():
            raise ValueError(f"{path.name}: unknown line {line!r}")
    return Case(path.stem, program, tuple(runs), reference, tuple(structure), tolerance)


def _count(text: str) -> tuple[str, str, int]:
    words = text.split()
    return words[0], "<=" if "<=" in words else "==", int(words[-1])


def _random_constant(m: re.Match[str], weights: dict[str, Array]) -> str:
    dt, shape = np.dtype(BY_NAME[m[2]].numpy), [int(n) for n in m[3].split(",") if n.strip()]
    rng = np.random.default_rng(int(m[4]))
    data = (rng.normal(size=shape) if dt.kind == "f" else rng.integers(-100, 100, shape)).astype(dt)
    weights[digest(data)] = data
    return f"{m[1]} = sha256:{digest(data)}"


def _inputs(program: Program, code: str, seed: int) -> Mapping[str, Array]:
    rng = np.random.default_rng(seed)
    scope: dict[str, Any] = {
        "np": np,
        "normal": lambda *shape: rng.normal(size=shape),
        "ints": lambda lo, hi, *shape: rng.integers(lo, hi, shape),
    }
    exec(code, scope)
    return {i.name: np.asarray(scope[i.name]).astype(i.type.dtype.numpy) for i in program.inputs}


def cases() -> list[Case]:
    """All cases, by name."""
    return [load(p) for p in sorted(FOLDER.glob("*.te"))]


# ---------------------------------------------------------------- backends


def _always() -> str | None:
    return None


@dataclass(frozen=True)
class Backend:
    """A way to run a case: inputs to outputs by name.

    `exact` says that it computes in float64; `missing` gives the reason to skip when it cannot run here.
    """

    name: str
    run: Callable[[Case, Mapping[str, Array]], dict[str, Array]]
    exact: bool = False
    missing: Callable[[], str | None] = field(default=_always)


BACKENDS: list[Backend] = [
    Backend("interp-f64", lambda case, x: interp.run(case.program, x, floats="f64"), exact=True),
    Backend("interp-declared", lambda case, x: interp.run(case.program, x)),
]


def register(backend: Backend) -> None:
    """Adds a backend; every case then runs through it."""
    BACKENDS.append(backend)


def optimizer() -> Callable[[Program], Program] | None:
    """The rewriter, where it is there."""
    try:
        from tang_edge.rewrite.pipeline import optimize
    except ModuleNotFoundError:
        return None
    return optimize


def _no_rewriter() -> str | None:
    return None if optimizer() else "tang_edge.rewrite.pipeline is not there"


def _run_rewritten(case: Case, inputs: Mapping[str, Array]) -> dict[str, Array]:
    optimize = optimizer()
    assert optimize is not None
    return interp.run(optimize(case.program), inputs, floats="f64")


register(Backend("rewritten", _run_rewritten, exact=True, missing=_no_rewriter))


def structure_of(p: Program) -> dict[str, int]:
    """What a `structure` line counts: comprehensions (distinct ones, bind by bind) and kernels (dispatches of the C plan)."""
    steps = flatten(devicekit.compiler.build_variant(p, CLASSES["cpu-generic"]).plan["steps"])
    return {
        "comprehensions": sum(len(scalar.comprehensions(b.expr)) for b in p.binds()),
        "kernels": sum(len(s["alternates"][0]["dispatches"]) for s in steps),
    }


def flatten(steps: list[Any]) -> list[Any]:
    """Steps of a plan, those of branches included."""
    out: list[Any] = []
    for s in steps:
        out += [*flatten(s["if"]["then"]), *flatten(s["if"]["else"])] if "if" in s else [s]
    return out


# ---------------------------------------------------------------- devices


@functools.cache
def bundle_of(name: str, device: str) -> Path:
    """The bundle of a case for a device."""
    optimize = optimizer()
    assert optimize is not None
    program = optimize(load(FOLDER / f"{name}.te").program)
    path = devicekit.folder() / f"case-{device}-{name}.tang"
    devicekit.write_bundle(program, [devicekit.c_class() if device == "c" else "browser"], path)
    return path


def any_wide(program: Program) -> bool:
    """True when the program computes in a dtype that WGSL does not have at all."""
    return any(t.dtype.name in ("f64", "u64") for t in program.types().values())


@functools.cache
def device_of(name: str, device: str) -> devicekit.Device:
    """The bundle of a case on a device."""
    return devicekit.Device(bundle_of(name, device), device)


def _run_on(device: str, case: Case, inputs: Mapping[str, Array]) -> dict[str, Array]:
    optimize = optimizer()
    assert optimize is not None
    if device == "webgpu" and any_wide(case.program):
        with pytest.raises(TargetLimit, match="cannot be computed"):
            devicekit.compiler.build_variant(optimize(case.program), CLASSES["browser"])
        pytest.skip("WGSL has no such dtype: TargetLimit, as it should be")
    try:
        got = device_of(case.name, device).run(inputs)
    except TargetLimit as e:
        if "64-bit integers" not in str(e):
            raise
        pytest.skip(f"{device}: {e}")
    return {name: _ends(a) for name, a in got.items()} if device == "webgpu" else got


def _ends(a: Array) -> Array:
    """WGSL has no 64-bit integers: what saturates does so at the ends of i32."""
    if a.dtype != np.int64:
        return a
    lo, hi = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    return np.where(a == 2**31 - 1, hi, np.where(a == -(2**31), lo, a))


for _device in ("c", "webgpu"):
    register(Backend(_device, functools.partial(_run_on, _device), missing=functools.partial(devicekit.missing, _device)))
