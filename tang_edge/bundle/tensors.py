"""A small reader and writer of safetensors files in memory: header JSON and offsets, every bound checked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tang_edge.bundle import format as fmt
from tang_edge.errors import BundleError

_TAGS: dict[str, np.dtype[Any]] = {
    "F16": np.dtype(np.float16),
    "F32": np.dtype(np.float32),
    "F64": np.dtype(np.float64),
    "I8": np.dtype(np.int8),
    "I16": np.dtype(np.int16),
    "I32": np.dtype(np.int32),
    "I64": np.dtype(np.int64),
    "U8": np.dtype(np.uint8),
    "U16": np.dtype(np.uint16),
    "U32": np.dtype(np.uint32),
    "U64": np.dtype(np.uint64),
    "BOOL": np.dtype(np.bool_),
}
_TAG_OF = {dtype: tag for tag, dtype in _TAGS.items()}
_MAX_HEADER = 4 << 20
_MAX_RANK = 32


@dataclass(frozen=True, slots=True)
class Slot:
    """A tensor in a file: dtype, shape, and its byte range counted from the start of the file."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    start: int
    stop: int


def parse(data: memoryview, where: str) -> dict[str, Slot]:
    """The tensors of a safetensors file.

    Raises:
        BundleError: the header is no JSON, or a range does not fit its shape or the file.
    """
    if len(data) < 8:
        raise BundleError("too short for a safetensors file", where=where)
    length = int.from_bytes(data[:8], "little")
    if length > _MAX_HEADER or 8 + length > len(data):
        raise BundleError("safetensors header is longer than the file or the limit", where=where)
    header = load_json(bytes(data[8 : 8 + length]), where)
    if not isinstance(header, dict):
        raise BundleError("safetensors header is not an object", where=where)
    base = 8 + length
    return {
        key: _slot(entry, base, len(data), f"{where}: {key[:80]}") for key, entry in header.items() if key != "__metadata__"
    }


def _slot(entry: object, base: int, total: int, where: str) -> Slot:
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise BundleError("malformed tensor entry", where=where)
    tag, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(tag, str) or tag not in _TAGS:
        raise BundleError("unknown tensor dtype", where=where)
    if not _naturals(shape) or len(shape) > _MAX_RANK or not _naturals(offsets) or len(offsets) != 2:
        raise BundleError("malformed tensor shape or offsets", where=where)
    size = _TAGS[tag].itemsize
    for extent in shape:
        size *= extent
        if size > total:
            break
    start, stop = offsets
    if stop - start != size or base + stop > total:
        raise BundleError("tensor bytes do not fit its shape or the file", where=where)
    return Slot(_TAGS[tag], tuple(shape), base + start, base + stop)


def _naturals(value: object) -> bool:
    return isinstance(value, list) and all(type(v) is int and 0 <= v < 2**53 for v in value)


def view(data: memoryview, slot: Slot) -> npt.NDArray[Any]:
    """The tensor of ``slot`` as a read-only array over ``data`` (no copy)."""
    raw = np.frombuffer(data[slot.start : slot.stop], np.uint8)
    array = raw.view(slot.dtype).reshape(slot.shape) if raw.size else np.zeros(slot.shape, slot.dtype)
    array.flags.writeable = False
    return array


def read(data: memoryview, where: str) -> dict[str, npt.NDArray[Any]]:
    """All tensors of a file, as read-only views."""
    return {key: view(data, slot) for key, slot in parse(data, where).items()}


def pack(tensors: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """A safetensors file of the tensors, wide element types first so that each is aligned to its element.

    The header is padded so that the data starts at a multiple of 64 bytes.
    """
    order = sorted(tensors, key=lambda k: (-tensors[k].dtype.itemsize, k))
    header: dict[str, object] = {}
    at = 0
    for key in order:
        array = tensors[key]
        tag = _TAG_OF.get(array.dtype.newbyteorder("="))
        if tag is None:
            raise BundleError(f"dtype {array.dtype} cannot be stored", where=key)
        header[key] = {"dtype": tag, "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (fmt.align_up(8 + len(text), fmt.ALIGN) - 8 - len(text))
    return b"".join([len(text).to_bytes(8, "little"), text, *_bodies(tensors[k] for k in order)])


def _bodies(arrays: Iterable[npt.NDArray[Any]]) -> Iterable[bytes]:
    for array in arrays:
        yield np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()


def load_json(data: bytes, where: str) -> Any:
    """Strict JSON: UTF-8, no NaN or infinity, no key twice, no absurd nesting or digits.

    Raises:
        BundleError: it is not that.
    """
    try:
        return json.loads(data.decode("utf-8"), parse_constant=_no_constant, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise BundleError(f"not valid JSON ({str(error)[:120]})", where=where) from error


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key occurs twice")
    return result
