"""Prepare an environment with onnxruntime-webgpu, the peer that `benchmarks.run --webgpu` measures against.

    python tools/peer_webgpu/prepare.py [--dest .peer-webgpu] [--json]

onnxruntime-webgpu and onnxruntime install the same module, so the peer has an environment of its own. On
Linux with an old lavapipe as the only adapter, Dawn needs the Vulkan layer beside this script: it is built
when gcc (or cc) and the Vulkan headers are there, and said to be missing when not. Running it again reuses
what is there.

The environment is tried at the end with a one-node model on the WebGPU provider; the exit status is 1 if that
fails. Standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
PEER = "onnxruntime-webgpu==1.27.0"
LAYER = "VK_LAYER_TANG_lavapipe"
ICD_FOLDERS = ("/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d")

# Run by the peer's interpreter. Without an adapter ONNX Runtime goes on with the CPU and does not say so:
# get_providers() is what tells.
PROBE = """
import sys, numpy as np, onnxruntime as ort
session = ort.InferenceSession(sys.argv[1], providers=["WebGpuExecutionProvider"])
assert session.get_providers()[0] == "WebGpuExecutionProvider", session.get_providers()
x = np.arange(4, dtype=np.float32)
assert np.allclose(session.run(None, {"x": x})[0], x + x)
"""


def peer_python(dest: Path) -> Path:
    """The interpreter of the environment at `dest`."""
    return dest / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def environment(dest: Path) -> dict[str, str]:
    """The variables that a process of the peer (and ours, to get the same adapter) runs with, beside the
    caller's.

    Only what is needed here and not set by the caller: on Linux without a GPU's driver, lavapipe alone and,
    where it was built, the layer.
    """
    if sys.platform != "linux":
        return {}
    found: dict[str, str] = {}
    if not os.environ.get("XDG_RUNTIME_DIR"):
        runtime = dest.resolve() / "xdg"
        runtime.mkdir(mode=0o700, parents=True, exist_ok=True)
        found["XDG_RUNTIME_DIR"] = str(runtime)
    if os.environ.get("VK_ICD_FILENAMES") or os.environ.get("VK_DRIVER_FILES") or _has_gpu():
        return found
    drivers = [icd for folder in ICD_FOLDERS for icd in sorted(Path(folder).glob("lvp_icd*.json"))]
    if drivers:
        found["VK_ICD_FILENAMES"] = str(drivers[0])
        if (dest / "liblavapipe_layer.so").exists():
            found["VK_LAYER_PATH"] = str(dest.resolve())
            found["VK_INSTANCE_LAYERS"] = LAYER
    return found


def _has_gpu() -> bool:
    """Whether a GPU's device node is there (Mesa's or the vendor's)."""
    return any(Path("/dev/dri").glob("renderD*")) or Path("/dev/nvidiactl").exists()


def build_layer(dest: Path) -> str | None:
    """Compile the layer into `dest`; give the reason as text where that is not possible."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return "no C compiler (Debian: apt-get install gcc libc6-dev)"
    library = dest / "liblavapipe_layer.so"
    command = [compiler, "-O2", "-shared", "-fPIC", "-fvisibility=hidden", str(HERE / "lavapipe_layer.c")]
    done = subprocess.run([*command, "-o", str(library)], capture_output=True, text=True, check=False)
    if done.returncode:
        return f"the layer did not compile (Debian: apt-get install libvulkan-dev): {done.stderr.strip()[:300]}"
    shutil.copyfile(HERE / "lavapipe_layer.json", dest / "lavapipe_layer.json")
    return None


def probe_model() -> bytes:
    """A model `y = x + x` over four floats, as ONNX protobuf bytes, spelt here as onnx may be missing."""

    def field(number: int, payload: bytes | int) -> bytes:
        if isinstance(payload, int):
            return bytes([number << 3, payload])
        return bytes([number << 3 | 2, len(payload)]) + payload

    shape = field(1, field(1, 4))  # one dimension of 4
    tensor = field(2, field(1, field(1, 1) + field(2, shape)))  # a tensor of floats with that shape
    node = field(1, b"x") + field(1, b"x") + field(2, b"y") + field(4, b"Add")
    graph = field(1, node) + field(2, b"g") + field(11, field(1, b"x") + tensor) + field(12, field(1, b"y") + tensor)
    return field(1, 8) + field(7, graph) + field(8, field(1, b"") + field(2, 13))


def prepare(dest: Path) -> str | None:
    """Make or complete the environment at `dest`; give the reason as text if the WebGPU provider does not
    run.
    """
    python = peer_python(dest)
    if not python.exists():
        venv.create(dest, with_pip=True)
    have = subprocess.run([str(python), "-c", "import onnxruntime, numpy"], capture_output=True, check=False)
    if have.returncode:
        subprocess.run([str(python), "-m", "pip", "install", "-q", PEER, "numpy"], check=True, stdout=sys.stderr)
    layer = build_layer(dest) if sys.platform == "linux" and not _has_gpu() else None
    model = dest / "probe.onnx"
    model.write_bytes(probe_model())
    settings = {**os.environ, **environment(dest)}
    command = [str(python), "-c", PROBE, str(model)]
    done = subprocess.run(command, env=settings, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return None
    said = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1]
    return f"onnxruntime-webgpu does not run on an adapter here: {said}" + (f"; {layer}" if layer else "")


def main() -> int:
    """The command line; 0 if the peer runs on WebGPU."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--dest", type=Path, default=Path(".peer-webgpu"))
    parser.add_argument("--json", action="store_true", help="print the interpreter and the environment as JSON")
    options = parser.parse_args()
    trouble = prepare(options.dest)
    if trouble:
        print(f"peer_webgpu: {trouble}", file=sys.stderr)
        return 1
    answer = {"python": str(peer_python(options.dest).absolute()), "environment": environment(options.dest)}
    if options.json:
        print(json.dumps(answer, indent=2))
    else:
        print(f"{PEER} runs on WebGPU: {answer['python']}")
        for key, value in environment(options.dest).items():
            print(f"  {key}={value}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
