"""The folder of compiled libraries: entries appear whole, and the least recently used go when there are too many bytes."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from tang_edge.bundle import trust
from tang_edge.errors import BundleError, DeviceError

MAX_BYTES = 512 << 20  # of all libraries together; TANG_EDGE_CACHE_BYTES sets another number
_BUILD = ".build-"
_STALE = 24 * 3600.0  # seconds; a build that takes longer was killed


def folder() -> Path:
    """The folder, which only the user can write to.

    Raises:
        DeviceError: it cannot be used.
    """
    try:
        return trust.private_dir(trust.cache_dir() / "lib")
    except BundleError as error:
        remedy = error.remedy or "Set TANG_EDGE_CACHE to a folder of yours."
        raise DeviceError(error.message, where=error.where, remedy=remedy) from error


def suffix() -> str:
    """The ending of a library's name on this machine."""
    return {"darwin": ".dylib", "win32": ".dll"}.get(sys.platform, ".so")


def kept(key: str, make: Callable[[Path], Path]) -> Path:
    """The library of this key, now the most recently used one; ``make`` builds it in the folder that it is given.

    Of several processes that make the same one, one wins; the file is whole at any time.
    """
    place = folder()
    path = place / f"{key}{suffix()}"
    if not _touch(path):
        with TemporaryDirectory(prefix=_BUILD, dir=place) as work:
            os.replace(make(Path(work)), path)
        prune(place, spare=path)
    return path


def _touch(path: Path) -> bool:
    """Mark as used now; whether it is there. Marking comes first: what was just used is the last to be pruned."""
    try:
        os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))
    except OSError:
        return False
    return True


def limit() -> int:
    """The most bytes that libraries may take."""
    given = os.environ.get("TANG_EDGE_CACHE_BYTES", "")
    return int(given) if given.isdigit() else MAX_BYTES


def prune(place: Path, spare: Path) -> list[Path]:
    """Delete the least recently used libraries until the rest fits, never ``spare``; left-overs of killed builds too."""
    entries: list[tuple[float, int, Path]] = []
    for path in place.iterdir():
        try:
            state = path.stat()
        except OSError:
            continue  # another process was faster
        if path.name.startswith(_BUILD):
            if time.time() - state.st_mtime > _STALE:
                shutil.rmtree(path, ignore_errors=True)
        elif path.suffix == suffix():
            entries.append((state.st_atime, state.st_size, path))
    room, gone = limit(), []
    for _, size, path in sorted(entries, reverse=True):
        room -= size
        if room < 0 and path != spare:
            try:
                path.unlink(missing_ok=True)  # a process that has loaded it keeps it
            except OSError:
                continue  # Windows: in use
            gone.append(path)
    return gone
