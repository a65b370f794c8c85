"""Opening a bundle: memory-mapped, every member checked against the manifest before its first use."""

from __future__ import annotations

import functools
import mmap
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from tang_edge.bundle import container, tensors, verify
from tang_edge.bundle import format as fmt
from tang_edge.errors import BundleError

_P = ParamSpec("_P")
_R = TypeVar("_R")
_AGAIN = "Copy or download the bundle again, or pack it again."


def _naming(method: Callable[Concatenate[Bundle, _P], _R]) -> Callable[Concatenate[Bundle, _P], _R]:
    """The method, with errors that name the file before the member."""

    @functools.wraps(method)
    def named(self: Bundle, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return method(self, *args, **kwargs)
        except BundleError as error:
            raise _in_file(error, self.path) from error

    return named


def _in_file(error: BundleError, path: Path) -> BundleError:
    if error.where.startswith(str(path)):
        return error
    return BundleError(error.message, where=f"{path}: {error.where}" if error.where else str(path), remedy=error.remedy)


class Bundle:
    """An open bundle. Small members are read and checked on request, weights are views of the mapped file.

    Attributes:
        path: the file.
        manifest: its parsed manifest.
        manifest_sha256: hexadecimal SHA-256 of the manifest's bytes; it fixes every byte of the bundle.
    """

    def __init__(self, path: Path, mapped: mmap.mmap) -> None:
        self.path = path
        self._mapped = mapped
        self._data = memoryview(mapped)
        self._checked: set[str] = set()
        self._slots: dict[str, dict[str, tensors.Slot]] = {}
        self._lock = threading.Lock()
        self._entries = container.read_entries(self._data)
        raw = self._manifest_bytes()
        self.manifest_sha256 = fmt.sha256(raw)
        self.manifest = verify.parse_manifest(tensors.load_json(raw, fmt.MANIFEST))
        self._match_members()
        self._plan: fmt.Plan | None = None

    def _manifest_bytes(self) -> bytes:
        for name in (fmt.MANIFEST, fmt.MANIFEST_HASH):
            if name not in self._entries:
                raise BundleError("member is missing", where=name, remedy=_AGAIN)
        raw = bytes(self._raw(fmt.MANIFEST))
        if bytes(self._raw(fmt.MANIFEST_HASH)).strip() != fmt.sha256(raw).encode():
            raise BundleError("the manifest does not match its SHA-256", where=fmt.MANIFEST, remedy=_AGAIN)
        return raw

    def _match_members(self) -> None:
        listed = set(self.manifest.files)
        present = set(self._entries) - {fmt.MANIFEST, fmt.MANIFEST_HASH}
        for name in sorted(listed - present):
            raise BundleError("member is missing", where=name, remedy=_AGAIN)
        for name in sorted(present - listed):
            raise BundleError("member is not in the manifest", where=name, remedy="Do not use this file.")
        for name, (_, size) in self.manifest.files.items():
            if self._entries[name].size != size:
                raise BundleError("member has another size than the manifest says", where=name, remedy=_AGAIN)

    def _raw(self, name: str) -> memoryview:
        entry = self._entries[name]
        return self._data[entry.start : entry.start + entry.size]

    @property
    def names(self) -> list[str]:
        """Names of all members that the manifest lists, sorted."""
        return sorted(self.manifest.files)

    @_naming
    def member(self, name: str) -> memoryview:
        """The bytes of a member, checked against the manifest once.

        Raises:
            BundleError: there is no such member, or its SHA-256 is another.
        """
        if name not in self.manifest.files:
            raise BundleError("member is missing", where=name, remedy=_AGAIN)
        data = self._raw(name)
        with self._lock:
            if name not in self._checked:
                if fmt.sha256(data) != self.manifest.files[name][0]:
                    raise BundleError("member does not match its SHA-256", where=name, remedy=_AGAIN)
                self._checked.add(name)
        return data

    @_naming
    def text(self, name: str) -> str:
        """A member as UTF-8 text."""
        try:
            return bytes(self.member(name)).decode("utf-8")
        except UnicodeDecodeError as error:
            raise BundleError("member is not UTF-8 text", where=name, remedy=_AGAIN) from error

    @property
    @_naming
    def plan(self) -> fmt.Plan:
        """The parsed plan (read on first use), with the members that it names checked to be there."""
        if self._plan is None:
            plan = verify.parse_plan(tensors.load_json(bytes(self.member(fmt.PLAN)), fmt.PLAN))
            for name in _members_of(plan):
                if name not in self.manifest.files:
                    raise BundleError("the plan names a member that is not there", where=name, remedy=_AGAIN)
            self._plan = plan
        return self._plan

    @_naming
    def tensors(self, name: str) -> dict[str, npt.NDArray[Any]]:
        """All tensors of a safetensors member, as read-only views."""
        return tensors.read(self.member(name), name)

    @_naming
    def constant_parts(self, constant: fmt.Constant) -> list[npt.NDArray[Any]]:
        """The parts of a constant as flat read-only views of bytes, checked to add up to its size."""
        result = []
        for part in constant.parts:
            data = self.member(part.chunk)
            slots = self._slots.get(part.chunk) or tensors.parse(data, part.chunk)
            self._slots[part.chunk] = slots
            if part.key not in slots:
                raise BundleError(f"lacks tensor {part.key[:80]!r}", where=part.chunk, remedy=_AGAIN)
            slot = slots[part.key]
            result.append(np.frombuffer(data[slot.start : slot.stop], np.uint8))
        total = sum(p.nbytes for p in result)
        if total != fmt.storage_bytes(constant.dtype, int(np.prod(constant.shape, dtype=object))):
            raise BundleError(f"constant {constant.name[:80]!r} has another size than its shape says", where=fmt.PLAN)
        return result

    def constant(self, constant: fmt.Constant) -> npt.NDArray[Any]:
        """A constant in its canonical layout, read-only; a view of the file unless it has several parts.

        The shape is the constant's (for i4 and u4: flat bytes).
        """
        parts = self.constant_parts(constant)
        flat = parts[0] if len(parts) == 1 else np.concatenate(parts)
        if constant.dtype in fmt.PACKED_4BIT:
            return flat
        dtype = fmt.DTYPES[constant.dtype]
        if not flat.size:
            return np.zeros(constant.shape, dtype)
        return flat.view(dtype).reshape(constant.shape)

    def verify_all(self) -> None:
        """Check every member now (loading checks each before its first use only)."""
        for name in self.names:
            self.member(name)

    def close(self) -> None:
        """Let go of the file. Views of constants that are still alive keep the mapping."""
        self._data.release()
        try:
            self._mapped.close()
        except BufferError:
            return  # arrays over the mapping are alive: it goes when they go

    def __enter__(self) -> Bundle:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()


def _members_of(plan: fmt.Plan) -> list[str]:
    names = [part.chunk for c in plan.constants for part in c.parts]
    names += [g.file for g in plan.golden]
    for variant in plan.variants:
        names += [variant.source, *variant.prebuilt.values()]
    return names


def open_bundle(path: str | os.PathLike[str]) -> Bundle:
    """Open a bundle file: its layout and manifest are checked now, members when they are used.

    Raises:
        BundleError: there is no such file, or it is not a bundle, or it was changed.
    """
    where = Path(path)
    try:
        with where.open("rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise BundleError("the file is empty", where=str(where), remedy=_AGAIN)
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise BundleError(f"cannot be opened ({error.strerror or error})", where=str(where)) from error
    try:
        return Bundle(where, mapped)
    except BundleError as error:
        raise _in_file(error, where) from error
