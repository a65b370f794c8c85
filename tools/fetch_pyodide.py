"""Fetch what the compiler in a page needs: Pyodide, the packages of tools/pyodide.toml, and a lock file for both.

    python tools/fetch_pyodide.py [--dest .cache/pyodide] [--wheel dist/page/tang_edge-....whl] [--json]

Everything comes out of npm and PyPI packages and is checked against its SHA-256 (tools/archives.py says how). The lock file,
`pyodide-lock.json`, names the wheels of this folder alone, with their hashes: a page that loads it asks no other host. Standard
library only.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import sys
import tomllib
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # PYTHONSAFEPATH leaves a script's own folder out

import archives
from archives import FetchError

TABLE = Path(__file__).with_name("pyodide.toml")
UPSTREAM = "upstream-lock.json"
LOCK = "pyodide-lock.json"
OURS = "tang-edge"


@dataclass(frozen=True, slots=True)
class Row:
    """One file of the table. `wheel` is the Python package that it is, or empty."""

    file: str
    registry: str
    package: str
    sha256: str
    licence: str
    path: str = ""
    wheel: str = ""
    imports: tuple[str, ...] = ()
    depends: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()


def read_table(table: Path = TABLE) -> list[Row]:
    """Read pyodide.toml; FetchError names the row that is wrong."""
    rows = []
    for file, row in tomllib.loads(table.read_text(encoding="utf-8")).items():
        try:
            rows.append(Row(file, **{k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}))
        except TypeError as problem:
            raise FetchError(f'{table.name}: ["{file}"] {problem}') from problem
        if row["registry"] not in archives.DOWNLOADERS:
            raise FetchError(f'{table.name}: ["{file}"] registry {row["registry"]!r}: use {" or ".join(archives.DOWNLOADERS)}')
    return rows


def fetch(row: Row, dest: Path, cache: Path) -> bytes:
    """Put one file into `dest`, if it is not there, and give its bytes."""
    out = dest / row.file
    kept = cache / "checked" / row.sha256
    if not archives.is_right(kept, row.sha256):
        data = archives.whole(row.registry, (row.package,), row.path, cache)
        archives.put(kept, archives.checked(data, row.sha256, f"{row.path or row.file} of {row.package}"))
    data = kept.read_bytes()
    data = trimmed(data, row.keep) if row.keep else data
    if not out.is_file() or out.read_bytes() != data:
        archives.put(out, data)
    return data


def trimmed(wheel: bytes, keep: Iterable[str]) -> bytes:
    """A wheel with these members only; its RECORD is left out, since it would be wrong."""
    with zipfile.ZipFile(io.BytesIO(wheel)) as source:
        try:
            return zipped({name: source.read(name) for name in keep})
        except KeyError as missing:
            raise FetchError(f"the wheel lacks a member: {missing}") from missing


def zipped(files: Mapping[str, bytes]) -> bytes:
    """A ZIP archive of these files: the same bytes each time."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as target:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            target.writestr(entry, files[name])
    return out.getvalue()


def entry(name: str, file: str, data: bytes, imports: Iterable[str], depends: Iterable[str]) -> dict[str, Any]:
    """A package of Pyodide's lock file (its documentation, "Pyodide lock file")."""
    return {
        "name": name,
        "version": file.split("-")[1],
        "file_name": file,
        "install_dir": "site",
        "sha256": hashlib.sha256(data).hexdigest(),
        "package_type": "package",
        "imports": list(imports),
        "depends": list(depends),
        "unvendored_tests": False,
    }


def lock(rows: Iterable[Row], data: Mapping[str, bytes], wheel: Path | None) -> dict[str, Any]:
    """The lock file of this folder: Pyodide's own facts, and the packages here. Raises FetchError where they disagree."""
    upstream = json.loads(data[UPSTREAM])
    wheels = [r for r in rows if r.wheel]
    packages = {r.wheel: entry(r.wheel, r.file, data[r.file], r.imports, r.depends) for r in wheels}
    for r in wheels:
        known = upstream["packages"].get(r.wheel)
        if known and known["file_name"] == r.file and known["sha256"] != r.sha256:
            raise FetchError(f"{r.file}: Pyodide's lock file has the SHA-256 {known['sha256']}, the table {r.sha256}")
    if wheel is not None:
        packages[OURS] = entry(OURS, wheel.name, wheel.read_bytes(), ["tang_edge"], [r.wheel for r in wheels])
    return {"info": upstream["info"], "packages": packages}


def gather(dest: Path, cache: Path, wheel: Path | None) -> list[Path]:
    """Fill the folder and write its lock file last: where that is, all is. Other files in it are removed."""
    rows = read_table()
    data = {r.file: fetch(r, dest, cache) for r in rows}
    if wheel is not None:
        archives.put(dest / wheel.name, wheel.read_bytes())
    archives.put(dest / LOCK, (json.dumps(lock(rows, data, wheel), indent=1) + "\n").encode())
    (dest / UPSTREAM).unlink()
    names = {r.file for r in rows if r.file != UPSTREAM} | {LOCK} | ({wheel.name} if wheel else set())
    for old in [f for f in dest.iterdir() if f.name not in names and f.is_file()]:
        old.unlink()
    return [dest / n for n in sorted(names)]


def main(argv: list[str] | None = None) -> int:
    """The command line; 0 if every file is there."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--dest", type=Path, default=Path(".cache/pyodide"), help="folder (default: .cache/pyodide)")
    parser.add_argument("--cache", type=Path, default=None, help="folder of the packages (default: the user's cache)")
    parser.add_argument("--wheel", type=Path, default=None, help="the wheel of tang-edge for the page")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(argv)
    try:
        files = gather(options.dest, options.cache or archives.default_cache(), options.wheel)
    except (FetchError, OSError) as problem:
        print(f"fetch_pyodide: {problem}", file=sys.stderr)
        return 1
    sizes = {str(f): f.stat().st_size for f in files}
    print(json.dumps(sizes, indent=1) if options.json else "\n".join(f"{n:>10,}  {f}" for f, n in sizes.items()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
