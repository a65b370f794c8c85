"""Which bundles were packed on this machine: a file of manifest hashes in the user's configuration folder.

``TANG_EDGE_CONFIG`` and ``TANG_EDGE_CACHE`` override the folders; XDG and the usual places of macOS and
Windows are the default.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from tang_edge.errors import BundleError

_FILE = "packed-here.txt"
_KEPT = 10_000  # the newest hashes; an older bundle needs trust=True again


def config_dir() -> Path:
    """The folder of the user's settings for tang-edge (it may not exist yet)."""
    return _user_dir("TANG_EDGE_CONFIG", "XDG_CONFIG_HOME", ".config", "Library/Application Support")


def cache_dir() -> Path:
    """The folder of what can be made again, such as compiled libraries (it may not exist yet)."""
    return _user_dir("TANG_EDGE_CACHE", "XDG_CACHE_HOME", ".cache", "Library/Caches")


def _user_dir(override: str, xdg: str, unix: str, mac: str) -> Path:
    if os.environ.get(override):
        return Path(os.environ[override])
    if os.environ.get(xdg):
        return Path(os.environ[xdg]) / "tang-edge"
    if sys.platform == "darwin":
        return Path.home() / mac / "tang-edge"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", str(Path.home()))) / "tang-edge"
    return Path.home() / unix / "tang-edge"


def private_dir(path: Path) -> Path:
    """Make ``path`` a folder that only this user can write to, and return it.

    Raises:
        BundleError: it cannot be made, or belongs to or can be written by somebody else.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        state = path.stat()
    except OSError as error:
        remedy = "Set TANG_EDGE_CONFIG (settings) and TANG_EDGE_CACHE (compiled libraries) to folders of yours"
        raise BundleError(f"the folder cannot be made ({error.strerror})", where=str(path), remedy=remedy) from error
    if os.name == "posix" and (state.st_uid != os.getuid() or state.st_mode & 0o022):
        raise BundleError(
            "the folder belongs to another user or others can write to it",
            where=str(path),
            remedy="Code is loaded from it: make it yours (chown, chmod go-w) or set another folder.",
        )
    return path


def write_atomically(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Put ``data`` at ``path``: the whole of it or nothing, also with several writers."""
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def remember(manifest_sha256: str) -> None:
    """Note that a bundle was packed on this machine."""
    path = private_dir(config_dir()) / _FILE
    if len(_hashes()) >= 2 * _KEPT:
        write_atomically(path, "".join(f"{h}\n" for h in _hashes()[-_KEPT:]).encode())
    # appended, not rewritten: another process that packs at the same time adds its own
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with os.fdopen(handle, "ab") as file:
        file.write(f"{manifest_sha256}\n".encode())


def packed_here(manifest_sha256: str) -> bool:
    """Whether the bundle with this manifest was packed on this machine."""
    return manifest_sha256 in _hashes()


def _hashes() -> list[str]:
    try:
        path = private_dir(config_dir()) / _FILE if config_dir().exists() else None
        return path.read_text().split() if path else []
    except (OSError, UnicodeDecodeError, BundleError):
        return []  # no list that can be relied on: nothing was packed here
