"""The ZIP layout of a bundle: every byte of it is determined by the members, so that every flipped bit shows.

Members are stored, with one fixed timestamp and a zero-filled extra field that aligns their data to 64 bytes.
Any ZIP tool reads such a file. The reader takes the central directory from ``zipfile``, rebuilds all headers
from the member names, sizes and checksums alone, and compares them byte for byte with what the file holds.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from dataclasses import dataclass

from tang_edge.bundle import format as fmt
from tang_edge.errors import BundleError

_DATE, _TIME = 0x0021, 0  # 1980-01-01 00:00, the least that ZIP can say
_PAD_ID = 0xD935  # the extra field that Android's zipalign uses for padding
_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_AGAIN = "Copy or download the bundle again, or pack it again."
MAX_FILE = 0xFFFFFFFE


@dataclass(frozen=True, slots=True)
class Entry:
    """A member: name, CRC-32, bytes, offset of its local header and of its data in the file."""

    name: str
    crc: int
    size: int
    header: int
    start: int


def place(name: str, crc: int, size: int, header: int) -> Entry:
    """The entry of a member whose local header is at ``header``; its data starts at a multiple of 64."""
    bare = header + _LOCAL.size + len(name) + 4  # 4: id and length of the padding field
    return Entry(name, crc, size, header, fmt.align_up(bare, fmt.ALIGN))


def local_header(entry: Entry) -> bytes:
    """The local header, with its padding."""
    extra = entry.start - entry.header - _LOCAL.size - len(entry.name)
    fixed = _LOCAL.pack(b"PK\3\4", 20, 0, 0, _TIME, _DATE, entry.crc, entry.size, entry.size, len(entry.name), extra)
    return fixed + entry.name.encode("ascii") + struct.pack("<2H", _PAD_ID, extra - 4) + bytes(extra - 4)


def directory(entries: list[Entry]) -> bytes:
    """The central directory and the end record."""
    out = io.BytesIO()
    for e in entries:
        out.write(
            _CENTRAL.pack(
                *(b"PK\1\2", 20, 20, 0, 0, _TIME, _DATE, e.crc, e.size, e.size),
                *(len(e.name), 0, 0, 0, 0, 0, e.header),
            )
        )
        out.write(e.name.encode("ascii"))
    size = out.tell()
    start = entries[-1].start + entries[-1].size if entries else 0
    out.write(_END.pack(b"PK\5\6", 0, 0, len(entries), len(entries), size, start, 0))
    return out.getvalue()


def crc32(data: bytes | memoryview, value: int = 0) -> int:
    """CRC-32 of the data, going on from ``value``."""
    return zlib.crc32(data, value)


def read_entries(data: memoryview) -> dict[str, Entry]:
    """The members of the file in ``data``, after checking that its layout is exactly the one described above.

    Raises:
        BundleError: not a ZIP, truncated, compressed, oversized, unsafe names, or a layout of another writer.
    """
    infos = _central_directory(data)
    entries: list[Entry] = []
    at = 0
    for info in infos:
        _check_info(info)
        entry = place(info.filename, info.CRC, info.file_size, at)
        if info.header_offset != at or entry.start + entry.size > len(data):
            raise BundleError("member is not where it must be", where=info.filename, remedy=_AGAIN)
        if bytes(data[at : entry.start]) != local_header(entry):
            raise BundleError("member header was changed", where=info.filename, remedy=_AGAIN)
        entries.append(entry)
        at = entry.start + entry.size
    if bytes(data[at:]) != directory(entries):
        raise BundleError("the directory at the end of the file was changed", where="bundle", remedy=_AGAIN)
    result = {e.name: e for e in entries}
    if len(result) != len(entries):
        raise BundleError("a member occurs twice", where="bundle", remedy=_AGAIN)
    return result


def _central_directory(data: memoryview) -> list[zipfile.ZipInfo]:
    if len(data) < _END.size or len(data) > MAX_FILE:
        raise BundleError("the file is empty, truncated or too large", where="bundle", remedy=_AGAIN)
    tail = bytes(data[-_END.size :])
    magic, _, _, _, count, size, start, comment = _END.unpack(tail)
    if magic != b"PK\5\6" or comment or start + size + _END.size != len(data) or count > fmt.MAX_MEMBERS:
        remedy = _AGAIN if bytes(data[:4]) == b"PK\3\4" else "A bundle is made with: tang-edge pack MODEL.onnx"
        raise BundleError("not a tang bundle, or truncated", where="bundle", remedy=remedy)
    if size > count * (_CENTRAL.size + fmt.MAX_NAME):
        raise BundleError("the directory of the file is too large", where="bundle", remedy=_AGAIN)
    try:
        # only the directory is handed over, behind as many virtual bytes as there are before it
        with zipfile.ZipFile(_Tail(bytes(data[start:]), start)) as archive:
            return archive.infolist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError, struct.error, OSError, EOFError) as error:
        raise BundleError(f"not a readable ZIP file ({error})", where="bundle", remedy=_AGAIN) from error


class _Tail(io.BytesIO):
    """A read-only file whose first ``skip`` bytes are not held; ``zipfile`` never asks for them here."""

    def __init__(self, tail: bytes, skip: int) -> None:
        super().__init__(tail)
        self._skip = skip

    def seek(self, offset: int, whence: int = 0) -> int:
        if whence == 0:
            if offset < self._skip:
                raise zipfile.BadZipFile("bad offset in the directory")
            return super().seek(offset - self._skip) + self._skip
        return super().seek(offset, whence) + self._skip

    def tell(self) -> int:
        return super().tell() + self._skip


def _check_info(info: zipfile.ZipInfo) -> None:
    fmt.check_member_name(info.orig_filename)
    name = info.filename
    if info.external_attr:
        raise BundleError("member is a link or carries file modes", where=name, remedy="Do not use this file.")
    limit = fmt.member_limit(name)
    if info.file_size > limit:
        raise BundleError(
            f"member declares {info.file_size} bytes, more than the {limit} allowed",
            where=name,
            remedy="Do not use this file.",
        )
    if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
        raise BundleError("member is compressed; bundles store their members", where=name, remedy=_AGAIN)
