"""What this machine offers: packages, WebGPU adapters, C compilers, processor, folders. Facts for `doctor`, as JSON."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tang_edge import __version__
from tang_edge.bundle import trust
from tang_edge.c_fallback import compile as cc
from tang_edge.runtime.load import usable_cores
from tang_edge.wgsl import gpu

# package -> what it is for, and how to get it
PACKAGES: Final[dict[str, tuple[str, str]]] = {
    "numpy": ("arrays", "pip install tang-edge"),
    "wgpu": ("running on WebGPU", "pip install tang-edge"),
    "onnx": ("pack, explain, bisect: reading models", "pip install 'tang-edge[compiler]'"),
    "safetensors": ("the compiler", "pip install 'tang-edge[compiler]'"),
    "jsonschema": ("pack: checking bundles against the published schema", "pip install 'tang-edge[compiler]'"),
    "ziglang": ("a C compiler, where the system has none", "pip install 'tang-edge[c]'"),
    "onnxruntime": ("run --compare-ort", "pip install onnxruntime"),
    "pillow": ("pictures as inputs", "pip install pillow"),
}
LIMITS: Final = (
    "max-buffer-size",
    "max-storage-buffer-binding-size",
    "max-storage-buffers-per-shader-stage",
    "max-compute-workgroup-storage-size",
    "max-compute-invocations-per-workgroup",
)
FEATURES: Final = ("shader-f16", "subgroup", "timestamp-query")


def facts() -> dict[str, Any]:
    """All of it; asks the drivers, starts the compilers for their versions."""
    found, reason = gpu.adapters()
    chosen = cc.find_compiler()
    return {
        "tang_edge": __version__,
        "python": {"version": platform.python_version(), "path": sys.executable, "platform": platform.platform()},
        "packages": {name: version_of(name) for name in PACKAGES},
        "adapters": [_adapter(a) for a in found],
        "no_adapter": reason,
        "vulkan_drivers": vulkan_drivers(),
        "compilers": compilers(),
        "compiler": None if chosen is None else {"command": list(chosen.command), "version": _line(chosen.version)},
        "processor": {
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            "usable_cores": usable_cores(),
            "classes": list(cc.cpu_classes()),
            "triple": cc.host_triple(),
        },
        "folders": folders(),
    }


def version_of(package: str) -> str | None:
    """The installed version of a package, None where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else ""


def _adapter(a: gpu.Adapter) -> dict[str, Any]:
    info, offered = a.handle.info, {gpu.limit_key(k): v for k, v in a.handle.limits.items()}
    return {
        "name": a.name,
        "type": info.get("adapter_type", "?"),
        "backend": info.get("backend_type", "?"),
        "driver": info.get("description", ""),
        "computes_on_cpu": a.is_cpu,
        "limits": {k: int(offered[gpu.limit_key(k)]) for k in LIMITS if gpu.limit_key(k) in offered},
        "features": [f for f in FEATURES if f in a.handle.features],
    }


def vulkan_drivers(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Manifest files of Vulkan drivers where the loader looks for them (Linux); empty elsewhere."""
    if not sys.platform.startswith("linux"):
        return []
    for name in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES"):
        if environment.get(name):
            return environment[name].split(os.pathsep)
    shared = environment.get("XDG_DATA_DIRS", "/usr/local/share:/usr/share").split(":")
    homes = [environment.get("XDG_DATA_HOME") or str(Path.home() / ".local/share")]
    found = [p for d in (*homes, "/etc", *shared) if d for p in sorted(Path(d, "vulkan/icd.d").glob("*.json"))]
    return [str(p) for p in dict.fromkeys(found)]


def compilers() -> dict[str, str | None]:
    """By name of each C compiler that is looked for: the first line of its version, None where there is none."""
    out: dict[str, str | None] = {}
    for name in ("gcc", "cc", "clang"):
        path = shutil.which(name)
        out[name] = _compiler_version(path) if path else None
    zig = version_of("ziglang")
    out["ziglang"] = f"ziglang {zig}" if zig else None
    return out


def _compiler_version(path: str) -> str | None:
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return _line(done.stdout) or None


def folders() -> dict[str, dict[str, Any]]:
    """The folders of this user: where they are, how full, and whether they can be written."""
    out = {}
    for name, path in (("cache", trust.cache_dir()), ("config", trust.config_dir())):
        files = [p for p in path.rglob("*") if p.is_file()] if path.is_dir() else []
        nearest = next(p for p in (path, *path.parents) if p.exists())
        out[name] = {
            "path": str(path),
            "files": len(files),
            "bytes": sum(p.stat().st_size for p in files),
            "writable": os.access(nearest, os.W_OK),
        }
    return out
