"""Weights that a file holds as lists of numbers, for a protobuf that reads lists number by number.

A packed list of floats is, byte for byte, what `raw_data` holds: only the field's number in front of it differs. The
pure-Python protobuf, the one under WebAssembly, takes seconds a million for the list and no time for the bytes, so the number
is changed. Protocol Buffers documentation, "Encoding": a field is a tag, (number << 3 | wire type), and a value.
"""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.internal import api_implementation

from tang_edge.onnx_in.proto import TensorProto

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_GRAPH, _INITIALIZER, _DATA_TYPE, _RAW = 7, 5, 2, 9  # of ModelProto, GraphProto, and TensorProto
_LISTS: dict[int, int] = {TensorProto.FLOAT: 4, TensorProto.DOUBLE: 10}  # of TensorProto: float_data, double_data
_FEW = 4096  # bytes of a list that is left as it is


def quick(raw: bytes) -> bytes | bytearray:
    """The file with the long packed lists of initializers called raw data, where that helps. A damaged file stays as it is."""
    if api_implementation.Type() != "python":
        return raw
    try:
        tensors = [t for graph in _inside(raw, _GRAPH, 0, len(raw)) for t in _inside(raw, _INITIALIZER, *graph)]
        tags = [at for t in tensors for at in _tags(raw, *t)]
    except (IndexError, ValueError):
        return raw
    if not tags:
        return raw
    out = bytearray(raw)
    for at in tags:
        out[at] = _RAW << 3 | _BYTES
    return out


def _tags(raw: bytes, start: int, stop: int) -> list[int]:
    """Where the tag of a tensor's one long list is: at most one place."""
    fields = list(_fields(raw, start, stop))
    kinds = [value for number, wire, _, value, _ in fields if number == _DATA_TYPE and wire == _VARINT]
    wanted = _LISTS.get(kinds[-1]) if kinds else None
    lists = [f for f in fields if f[0] == wanted]
    if len(lists) != 1 or any(f[0] == _RAW for f in fields):
        return []
    ((_, wire, tag, begin, end),) = lists
    return [tag] if wire == _BYTES and end - begin >= _FEW else []


def _inside(raw: bytes, number: int, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """The extents of the messages in a field."""
    for found, wire, _, begin, end in _fields(raw, start, stop):
        if found == number and wire == _BYTES:
            yield begin, end


def _fields(raw: bytes, start: int, stop: int) -> Iterator[tuple[int, int, int, int, int]]:
    """(number, wire type, place of the tag, begin, end) of each field; for a varint its value stands for the beginning."""
    at = start
    while at < stop:
        tag = at
        key, at = _varint(raw, at)
        wire = key & 7
        value, begin = _varint(raw, at) if wire in (_VARINT, _BYTES) else (0, at)
        size = {_VARINT: 0, _FIXED64: 8, _BYTES: value, _FIXED32: 4}.get(wire)
        if size is None or begin + size > stop:
            raise ValueError("no such field")
        at = begin + size
        yield key >> 3, wire, tag, value if wire == _VARINT else begin, at


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    """A number in groups of seven bits, the least first, and the place behind it."""
    value = shift = 0
    while True:
        byte = raw[at]
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("too long a number")
