"""Small hand-written bundles for the tests of the runtime: y = tanh-free arithmetic that is easy to check.

The model: inputs a f32 (n, 3) and b i64 (n,); constants w f32 (3,). Steps: scaled = a * w; y = scaled + b as
output f32 (n, 3); count = b + 1 as output i64 (n,).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tang_edge.bundle.write import GoldenVectors, sample_indices, write

W = np.array([2.0, -1.0, 0.5], np.float32)
ABI = (Path(__file__).parents[2] / "tang_edge/c_fallback/tang_abi.h").read_text()

N3 = ["*", "n", 3]
F32_N3 = ["+", ["*", N3, 4], 64]

C_MODEL = (
    ABI
    + r"""
#include <string.h>
#include <stddef.h>
static int64_t up(int64_t v) { return (v + 255) / 256 * 256; }
TANG_EXPORT int32_t tang_abi(void) { return 1; }
TANG_EXPORT int32_t tang_sizes(const int64_t *d, int64_t *s) {
  if (d[0] < 1 || d[0] > 4096) return 1;
  int64_t m = up(d[0] * 12 + 64), i = up(d[0] * 8 + 64);
  s[0] = m * 3 + i * 2; s[1] = up(12 + 64);
  return 0;
}
static void scale(const tang_call *c, float bad) {
  int64_t n = c->dims[0], m = up(n * 12 + 64), i = up(n * 8 + 64);
  const float *a = (const float *)c->arena, *w = (const float *)c->packed;
  float *t = (float *)(c->arena + m + i);
  for (int64_t k = 0; k < n * 3; k++) t[k] = a[k] * w[k % 3] + bad;
}
static void add(const tang_call *c) {
  int64_t n = c->dims[0], m = up(n * 12 + 64), i = up(n * 8 + 64);
  const int64_t *b = (const int64_t *)(c->arena + m);
  const float *t = (const float *)(c->arena + m + i);
  float *y = (float *)(c->arena + 2 * m + i);
  for (int64_t k = 0; k < n * 3; k++) y[k] = t[k] + (float)b[k / 3];
}
static void count(const tang_call *c) {
  int64_t n = c->dims[0], m = up(n * 12 + 64), i = up(n * 8 + 64);
  const int64_t *b = (const int64_t *)(c->arena + m);
  int64_t *o = (int64_t *)(c->arena + 3 * m + i);
  for (int64_t k = 0; k < n; k++) o[k] = b[k] + 1;
}
TANG_EXPORT int32_t tang_run(const tang_call *c) {
  if (c->phase == 0) { memcpy(c->packed, c->constants[0], 12); return 0; }
  int32_t last = c->last < 0 ? 3 : c->last;
  static float FLAKY = 0;
  for (int32_t s = c->first; s < last; s++) {
    int choice = c->choice ? c->choice[s] : 0;
    if (s == 0) scale(c, choice == 0 ? BAD : 0.0f);
    if (s == 1) add(c);
    if (s == 2) count(c);
    if (s > 2) return 7;
  }
  FLAKY += 1;
  return 0;
}
TANG_EXPORT void *tang_pool_new(int32_t threads) { return threads > 1 ? (void *)&tang_run : NULL; }
TANG_EXPORT void tang_pool_free(void *pool) { (void)pool; }
"""
)

WGSL_MODEL = """// header, before the first kernel
//@kernel scale
@group(0) @binding(0) var<storage, read_write> a: array<f32>;
@group(0) @binding(1) var<storage, read> w: array<f32>;
@group(0) @binding(2) var<storage, read_write> t: array<f32>;
@group(0) @binding(3) var<uniform> p: array<vec4<i32>, 1>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (i32(id.x) < p[0].x) { t[id.x] = a[id.x] * w[id.x % 3u] + BAD; }
}
//@kernel scale_safe
@group(0) @binding(0) var<storage, read_write> a: array<f32>;
@group(0) @binding(1) var<storage, read> w: array<f32>;
@group(0) @binding(2) var<storage, read_write> t: array<f32>;
@group(0) @binding(3) var<uniform> p: array<vec4<i32>, 1>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (i32(id.x) < p[0].x) { t[id.x] = a[id.x] * w[id.x % 3u]; }
}
//@kernel add
@group(0) @binding(0) var<storage, read_write> t: array<f32>;
@group(0) @binding(1) var<storage, read_write> b: array<i32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<uniform> p: array<vec4<i32>, 1>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (i32(id.x) < p[0].x) { y[id.x] = t[id.x] + f32(b[id.x / 3u]); }
}
//@kernel count
@group(0) @binding(0) var<storage, read_write> b: array<i32>;
@group(0) @binding(1) var<storage, read_write> o: array<i32>;
@group(0) @binding(2) var<uniform> p: array<vec4<i32>, 1>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (i32(id.x) < p[0].x) { o[id.x] = b[id.x] + 1; }
}
"""


def buffer(key: int, name: str, kind: str, dtype: str, shape: list[Any], size: Any, **more: Any) -> dict[str, Any]:
    """A dense buffer entry."""
    strides: list[Any] = []
    for axis in range(len(shape)):
        rest = shape[axis + 1 :]
        strides.append(1 if not rest else rest[0] if len(rest) == 1 else ["*", *rest])
    entry = {"id": key, "name": name, "kind": kind, "dtype": dtype, "shape": shape, "strides": strides}
    return {**entry, "bytes": size, "slot": None, "constant": None, "io": None, **more}


def _step(name: str, target: int, shape: list[Any], alternates: list[tuple[str, list[Any]]]) -> dict[str, Any]:
    strides = [3, 1] if len(shape) == 2 else [1]
    return {
        "name": name,
        "origin": [f"node_{name}"],
        "writes": {"buffer": target, "shape": shape, "strides": strides, "offset": 0},
        "alternates": [{"tag": tag, "dispatches": dispatches} for tag, dispatches in alternates],
    }


def _dispatch(kernel: str, args: list[int], count: Any) -> dict[str, Any]:
    return {"kernel": kernel, "args": args, "params": [count], "grid": [["//", ["+", count, 63], 64], 1, 1]}


def c_variant(**more: Any) -> dict[str, Any]:
    """The C variant of the model."""
    i64 = ["+", ["*", "n", 8], 64]
    return {
        "id": "c-generic",
        "backend": "c",
        "class": "cpu-generic",
        "features": [],
        "limits": {},
        "source": "kernels/c-generic.c",
        "buffers": [
            buffer(0, "a", "input", "f32", ["n", 3], F32_N3, slot=0, io="a"),
            buffer(1, "b", "input", "i64", ["n"], i64, slot=1, io="b"),
            buffer(2, "t", "arena", "f32", ["n", 3], F32_N3, slot=2),
            buffer(3, "y", "output", "f32", ["n", 3], F32_N3, slot=3, io="y"),
            buffer(4, "count", "output", "i64", ["n"], i64, slot=4, io="count"),
            buffer(5, "w", "packed", "f32", [3], 76, slot=0),
        ],
        "slots": [F32_N3, i64, F32_N3, F32_N3, i64],
        "packed_slots": [76],
        "kernels": {},
        "prologue": [],
        "steps": [
            _step("scaled", 2, ["n", 3], [("fast", []), ("safe", [])]),
            _step("y", 3, ["n", 3], [("only", [])]),
            _step("count", 4, ["n"], [("only", [])]),
        ],
        **more,
    }


def wgsl_variant(**more: Any) -> dict[str, Any]:
    """The WebGPU variant of the model."""
    i32 = ["+", ["*", "n", 4], 64]
    kernel = {"entry": "main", "workgroup": [64, 1, 1], "params": 1, "safe": True}
    return {
        "id": "webgpu-browser",
        "backend": "webgpu",
        "class": "browser",
        "features": [],
        "limits": {"maxStorageBuffersPerShaderStage": 8},
        "source": "kernels/webgpu-browser.wgsl",
        "buffers": [
            buffer(0, "a", "input", "f32", ["n", 3], F32_N3, slot=0, io="a"),
            buffer(1, "b", "input", "i32", ["n"], i32, slot=1, io="b"),
            buffer(2, "t", "arena", "f32", ["n", 3], F32_N3, slot=2),
            buffer(3, "y", "output", "f32", ["n", 3], F32_N3, slot=3, io="y"),
            buffer(4, "count", "output", "i32", ["n"], i32, slot=4, io="count"),
            buffer(5, "w", "constant", "f32", [3], 76, constant="w"),
        ],
        "slots": [F32_N3, i32, F32_N3, F32_N3, i32],
        "packed_slots": [],
        "kernels": {
            "scale": {**kernel, "bindings": ["read_write", "read", "read_write"]},
            "scale_safe": {**kernel, "bindings": ["read_write", "read", "read_write"]},
            "add": {**kernel, "bindings": ["read_write", "read_write", "read_write"]},
            "count": {**kernel, "bindings": ["read_write", "read_write"]},
        },
        "prologue": [],
        "steps": [
            _step(
                "scaled",
                2,
                ["n", 3],
                [
                    ("fast", [_dispatch("scale", [0, 5, 2], N3)]),
                    ("safe", [_dispatch("scale_safe", [0, 5, 2], N3)]),
                ],
            ),
            _step("y", 3, ["n", 3], [("only", [_dispatch("add", [2, 1, 3], N3)])]),
            _step("count", 4, ["n"], [("only", [_dispatch("count", [1, 4], "n")])]),
        ],
        **more,
    }


def plan(*variants: dict[str, Any]) -> dict[str, Any]:
    """The plan of the model with the given variants."""
    return {
        "version": [1, 0],
        "dims": [{"name": "n", "min": 1, "max": 4096, "multiple": 1}],
        "constraints": [],
        "inputs": [
            {"name": "a", "dtype": "f32", "shape": ["n", 3]},
            {"name": "b", "dtype": "i64", "shape": ["n"]},
        ],
        "outputs": [
            {"name": "y", "dtype": "f32", "shape": ["n", 3]},
            {"name": "count", "dtype": "i64", "shape": ["n"]},
        ],
        "states": [],
        "constants": [{"name": "w", "dtype": "f32", "shape": [3]}],
        "variants": list(variants),
        "golden": [],
    }


def arrays(n: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Inputs of the model."""
    rng = np.random.default_rng(seed)
    return {"a": rng.standard_normal((n, 3), np.float32), "b": rng.integers(-50, 50, n)}


def expected(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The model's answer."""
    y = (inputs["a"].astype(np.float64) * W + inputs["b"][:, None]).astype(np.float32)
    return {"y": y, "count": inputs["b"] + 1}


def golden(n: int = 5) -> GoldenVectors:
    """Golden vectors with samples of every step."""
    inputs = arrays(n, 42)
    outputs = expected(inputs)
    steps = {"scaled": inputs["a"].astype(np.float64) * W, "y": outputs["y"], "count": outputs["count"]}
    named = {f"in/{k}": v for k, v in inputs.items()} | {f"out/{k}": v for k, v in outputs.items()}
    for key, value in steps.items():
        flat = value.astype(np.float64).reshape(-1)
        named[f"step/{key}"] = flat[sample_indices(flat.size)]
    return GoldenVectors({"n": n}, named, 1e-5, 1e-5)


def make(path: Path, *, c: bool = True, wgsl: bool = True, bad: float = 0.0, remember: bool = True, **more: Any) -> Path:
    """Write a bundle of the model; ``bad`` is what the first alternate of its first step adds wrongly."""
    variants = ([wgsl_variant()] if wgsl else []) + ([c_variant()] if c else [])
    members = {"kernels/c-generic.c": C_MODEL.replace("BAD", f"{bad:.1f}f")} if c else {}
    if wgsl:
        members["kernels/webgpu-browser.wgsl"] = WGSL_MODEL.replace("BAD", f"{bad:.1f}")
    arguments = {"plan": plan(*variants), "members": members, "golden": [golden()], **more}
    write(path, name="kit", constants=[("w", W)], remember=remember, **arguments)
    return path
