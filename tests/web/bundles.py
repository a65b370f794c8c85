"""Bundles for tests of delivery: the small model of tangkit, with as many bytes of weights as wanted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tangkit

MIB = 1 << 20


def kit(path: Path) -> Path:
    """The model for WebGPU, a few kilobytes."""
    return tangkit.make(path, c=False, remember=False)


def heavy(path: Path, mebibytes: int, seed: int = 0) -> Path:
    """The same with so many MiB of constants, which are uploaded and not used: each of 15 MiB, so one fills a chunk."""
    rng = np.random.default_rng(seed)
    sizes = [15 * MIB] * (mebibytes // 15) + [mebibytes % 15 * MIB] * (mebibytes % 15 > 0)
    arrays = {f"heavy{i}": np.frombuffer(rng.bytes(size), np.int32) for i, size in enumerate(sizes)}
    variant = tangkit.wgsl_variant()
    for i, (name, array) in enumerate(arrays.items()):
        entry = tangkit.buffer(100 + i, name, "constant", "i32", [array.size], array.nbytes + 64, constant=name)
        variant["buffers"].append(entry)
    plan = tangkit.plan(variant)
    plan["constants"] += [{"name": n, "dtype": "i32", "shape": [a.size]} for n, a in arrays.items()]
    text = tangkit.WGSL_MODEL.replace("BAD", "0.0")
    return write(path, plan, {"kernels/webgpu-browser.wgsl": text}, {"w": tangkit.W, **arrays})


def write(path: Path, plan: dict, members: dict[str, str], constants: dict[str, np.ndarray]) -> Path:
    """A bundle of the kit's inputs and answers."""
    from tang_edge.bundle.write import write as write_bundle

    write_bundle(path, name="kit", plan=plan, members=members, constants=constants.items(), golden=[tangkit.golden()])
    return path


def doubling(path: Path) -> Path:
    """y = 2 x, for x f32 [n, 3]."""
    from tang_edge.bundle.write import GoldenVectors, sample_indices
    from tang_edge.bundle.write import write as write_bundle

    variant = tangkit.wgsl_variant()
    size = tangkit.F32_N3
    kernel = {"entry": "main", "workgroup": [64, 1, 1], "params": 1, "safe": True, "bindings": ["read_write", "read_write"]}
    dispatch = {"kernel": "double", "args": [0, 1], "params": [tangkit.N3], "grid": [["//", ["+", tangkit.N3, 63], 64], 1, 1]}
    port = {"dtype": "f32", "shape": ["n", 3]}
    variant |= {
        "buffers": [
            tangkit.buffer(0, "x", "input", "f32", ["n", 3], size, slot=0, io="x"),
            tangkit.buffer(1, "y", "output", "f32", ["n", 3], size, slot=1, io="y"),
        ],
        "slots": [size, size],
        "kernels": {"double": kernel},
        "steps": [
            {
                "name": "y",
                "origin": ["Mul"],
                "writes": {"buffer": 1, "shape": ["n", 3], "strides": [3, 1], "offset": 0},
                "alternates": [{"tag": "only", "dispatches": [dispatch]}],
            }
        ],
    }
    plan = {
        **tangkit.plan(variant),
        "inputs": [{"name": "x", **port}],
        "outputs": [{"name": "y", **port}],
        "constants": [],
    }
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    arrays = {"in/x": x, "out/y": 2 * x, "step/y": (2.0 * x).reshape(-1)[sample_indices(6)]}
    golden = [GoldenVectors({"n": 2}, arrays, 1e-5, 1e-5)]
    write_bundle(path, name="double", plan=plan, members={"kernels/webgpu-browser.wgsl": DOUBLE}, golden=golden)
    return path


DOUBLE = """//@kernel double
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> p: array<vec4<i32>, 1>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (i32(id.x) < p[0].x) { y[id.x] = x[id.x] * 2.0; }
}
"""
