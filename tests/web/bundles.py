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
