"""Build the wheel of tang-edge that a page loads: the compiler alone, pure Python.

    python tools/build_page_wheel.py [--dest dist/page] [--plain]

With pyodide-build, where there is a Python of 3.12 or later that can run it (a cross-build environment is made from Pyodide's
own npm package, no Emscripten is needed); else, or with --plain, with `pip wheel`, and this is said. Either gives the same
modules: then what `tang_edge.page` does not reach is left out, and the archive is written in a fixed order with fixed times.
Standard library only.
"""

from __future__ import annotations

import argparse
import ast
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # PYTHONSAFEPATH leaves a script's own folder out

import archives
import fetch_pyodide
from archives import FetchError

ROOT = Path(__file__).resolve().parents[1]
PYODIDE_BUILD = "pyodide-build==0.39.2"
PACKAGE = "tang_edge"
ENTRY = f"{PACKAGE}.page"
SYSCONFIG = "_sysconfigdata__emscripten_wasm32-emscripten.py"


def newer_python() -> Path | None:
    """A Python that can run pyodide-build: this one, one by name on the PATH, or one of pyenv's."""
    names = [sys.executable, *(shutil.which(f"python3.{minor}") or "" for minor in (14, 13, 12))]
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    names += [str(p) for minor in (14, 13, 12) for p in sorted(versions.glob(f"3.{minor}.*/bin/python"))]
    test = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 12))"
    for name in filter(None, names):
        if subprocess.run([name, "-c", test], capture_output=True, check=False).returncode == 0:
            return Path(name)
    return None


def environment(cache: Path) -> bytes:
    """A cross-build environment as pyodide-build unpacks it, made of Pyodide's npm package: enough for pure Python."""
    rows = {r.file: r for r in fetch_pyodide.read_table()}
    archive = archives.archive("npm", rows["pyodide.mjs"].package, cache)
    library = zipfile.ZipFile(io.BytesIO(archives.member(archive, rows["python_stdlib.zip"].path)))
    version = rows["pyodide.mjs"].package.partition("@")[2]
    files = {
        "xbuildenv/requirements.txt": b"",
        "xbuildenv/pyodide-root/Makefile.envs": makefile(version).encode(),
        f"xbuildenv/pyodide-root/cpython/sysconfigdata/{SYSCONFIG}": library.read(SYSCONFIG),
    }
    with tarfile.open(archive) as npm:
        for member in npm.getmembers():
            stream = npm.extractfile(member)
            if stream is not None:
                files[f"xbuildenv/pyodide-root/dist/{member.name.removeprefix('package/')}"] = stream.read()
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def makefile(version: str) -> str:
    """The variables that pyodide-build reads."""
    values = {
        "PYODIDE_VERSION": version,
        "PYODIDE_ABI_VERSION": "2026_0",
        "PYODIDE_EMSCRIPTEN_VERSION": "5.0.3",
        "PLATFORM_TRIPLET": "wasm32-emscripten",
        "SYSCONFIG_NAME": SYSCONFIG.removesuffix(".py"),
        "PYVERSION": "3.14.0",
        "PYMAJOR": "3",
        "PYMINOR": "14",
        "PYMICRO": "0",
        "TARGETINSTALLDIR": "$(PYODIDE_ROOT)/cpython",
        "CPYTHONINSTALL": "$(PYODIDE_ROOT)/cpython",
        "PYTHONINCLUDE": "$(PYODIDE_ROOT)/cpython/include/python3.14",
    }
    lines = [f"export {name} ?= {value}" for name, value in values.items()]
    return "\n".join([*lines, "", ".output_vars:", "\t@env", ""])


def with_pyodide_build(python: Path, out: Path, cache: Path) -> None:
    """Build into `out` with pyodide-build, which is installed in an environment of its own."""
    home = cache / "pyodide-build" / PYODIDE_BUILD
    tool = home / "venv" / "bin" / "pyodide"
    if not (home / "ready").exists():
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        archives.run([str(python), "-m", "venv", str(home / "venv")], ROOT)
        archives.run([str(home / "venv/bin/python"), "-m", "pip", "install", "--quiet", PYODIDE_BUILD], ROOT)
        (home / "env.tar.gz").write_bytes(environment(cache))
        url = (home / "env.tar.gz").as_uri()
        archives.run([str(tool), "xbuildenv", "install", "--path", str(home / "xbuildenv"), "--url", url], ROOT)
        (home / "ready").touch()
    os.environ["SKIP_EMSCRIPTEN_VERSION_CHECK"] = "1"
    path = ["--xbuildenv-path", str(home / "xbuildenv")]
    archives.run([str(tool), "build", str(ROOT), "--outdir", str(out), "--skip-emscripten-install", *path], ROOT)


def plain(out: Path) -> None:
    """Build into `out` with pip: for pure Python the same wheel."""
    archives.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(out), str(ROOT)], ROOT)


def reached(modules: dict[str, str], entry: str = ENTRY) -> set[str]:
    """The modules that one imports, and those that they import in turn, imports in functions included.

    What the package itself imports on first use is for those who run bundles: it is not followed.
    """
    found: set[str] = set()
    waiting = [entry]
    while waiting:
        name = waiting.pop()
        if name in modules and name not in found:
            found.add(name)
            waiting.append(name.rpartition(".")[0])
            waiting += [] if name == PACKAGE else _imports(ast.parse(modules[name]))
    return found


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def needed(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Of a wheel's files those that the page reaches, what lies beside them (headers), and what says whose they are."""
    code = {n: data.decode() for n, data in files.items() if n.endswith(".py")}
    modules = {n.removesuffix(".py").removesuffix("/__init__").replace("/", "."): n for n in code}
    kept = {modules[m] for m in reached({m: code[n] for m, n in modules.items()})}
    folders = {n.rpartition("/")[0] for n in kept}
    for name in files:
        beside = name.rpartition("/")[0] in folders and not name.endswith((".py", ".pyc", ".json"))
        if beside or name.endswith((".dist-info/METADATA", ".dist-info/WHEEL")) or "/licenses/" in name:
            kept.add(name)
    return {n: files[n] for n in sorted(kept)}


def trimmed(wheel: Path, dest: Path) -> Path:
    """The wheel with what the page needs."""
    with zipfile.ZipFile(wheel) as source:
        files = needed({n: source.read(n) for n in source.namelist()})
    out = dest / wheel.name
    archives.put(out, fetch_pyodide.zipped(files))
    return out


def of_folder(package: Path, dest: Path) -> Path:
    """The same wheel made of an installed package or a checkout, with no build tool: for tests of what is there just now."""
    files = {f"{PACKAGE}/{f.relative_to(package).as_posix()}": f.read_bytes() for f in package.rglob("*") if f.is_file()}
    version = re.search(r'^__version__ = "(.*)"', files[f"{PACKAGE}/__init__.py"].decode(), re.MULTILINE)
    if version is None:
        raise FetchError(f"{package}: __init__.py has no version")
    name = f"{PACKAGE}-{version[1]}"
    files[f"{name}.dist-info/METADATA"] = f"Metadata-Version: 2.1\nName: tang-edge\nVersion: {version[1]}\n".encode()
    files[f"{name}.dist-info/WHEEL"] = b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    out = dest / f"{name}-py3-none-any.whl"
    archives.put(out, fetch_pyodide.zipped(needed(files)))
    return out


def build(dest: Path, cache: Path, force_plain: bool) -> tuple[Path, str]:
    """The wheel, and what made it."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        python = None if force_plain else newer_python()
        if python is not None:
            with_pyodide_build(python, folder, cache)
        else:
            plain(folder)
        wheels = list(folder.glob(f"{PACKAGE}-*-py3-none-any.whl"))
        if len(wheels) != 1:
            raise FetchError(f"the build gave {[w.name for w in folder.iterdir()]} instead of one pure wheel")
        made = "pip wheel" if python is None else f"{PYODIDE_BUILD} on {python}"
        return trimmed(wheels[0], dest), made


def main(argv: list[str] | None = None) -> int:
    """The command line; 0 if the wheel is there."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--dest", type=Path, default=ROOT / "dist" / "page", help="folder of the wheel (default: dist/page)")
    parser.add_argument("--cache", type=Path, default=None, help="folder of the packages (default: the user's cache)")
    parser.add_argument("--plain", action="store_true", help="use pip wheel even where pyodide-build could run")
    options = parser.parse_args(argv)
    try:
        wheel, made = build(options.dest, options.cache or archives.default_cache(), options.plain)
    except (FetchError, OSError) as problem:
        print(f"build_page_wheel: {problem}", file=sys.stderr)
        return 1
    if made == "pip wheel" and not options.plain:
        print(
            "build_page_wheel: no Python of 3.12 or later here, so pyodide-build was not used: pip wheel was", file=sys.stderr
        )
    print(f"{wheel}  {wheel.stat().st_size:,} bytes, made with {made}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
