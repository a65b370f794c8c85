"""What a bundle is, as data: versions, limits, member names, element types and the parsed plan.

The published JSON Schemas (``manifest.schema.json``, ``plan.schema.json``) say it for other languages;
``verify.py`` turns JSON into the dataclasses below, totally: a BundleError, or a plan that is well-formed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tang_edge.bundle.expr import Expr
from tang_edge.errors import BundleError

MANIFEST = "manifest.json"
MANIFEST_HASH = "manifest.sha256"
PLAN = "plan.json"

MANIFEST_VERSION = (1, 1)  # 1.1: what each variant needs of a device, and its members
PLAN_VERSION = (1, 0)

CHUNK_BYTES = 16 << 20  # tensor bytes of one weight chunk at most
ALIGN = 64  # of the data of a member in the file, and of host arenas
SLOT_ALIGN = 256  # of a slot in an arena: the storage offset alignment that every WebGPU device accepts
SEGMENT_BYTES = 128 << 20  # of one GPU buffer of the arena

# sizes are checked against these before anything is read
MAX_MEMBERS = 65_000
MAX_NAME = 200
MAX_MANIFEST_BYTES = 16 << 20
MAX_PLAN_BYTES = 256 << 20
MAX_TEXT_BYTES = 256 << 20
MAX_CHUNK_FILE_BYTES = CHUNK_BYTES + (4 << 20)  # chunk plus its header
MAX_GOLDEN_BYTES = 1 << 30
MAX_LIB_BYTES = 512 << 20

DTYPES: dict[str, np.dtype[Any]] = {
    "f16": np.dtype(np.float16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "bf16": np.dtype(np.uint16),  # the bits; NumPy has no bfloat16
    "i8": np.dtype(np.int8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "u8": np.dtype(np.uint8),
    "u16": np.dtype(np.uint16),
    "u32": np.dtype(np.uint32),
    "u64": np.dtype(np.uint64),
    "bool": np.dtype(np.bool_),
    "i4": np.dtype(np.uint8),  # two a byte, the first in the low nibble
    "u4": np.dtype(np.uint8),
}
PACKED_4BIT = ("i4", "u4")

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+\-]*(/[A-Za-z0-9_][A-Za-z0-9_.+\-]*)*")
_LIMITS = (
    (re.compile(r"manifest\.json"), MAX_MANIFEST_BYTES),
    (re.compile(r"manifest\.sha256"), 65),
    (re.compile(r"plan\.json"), MAX_PLAN_BYTES),
    (re.compile(r"weights/\d{5}\.safetensors"), MAX_CHUNK_FILE_BYTES),
    (re.compile(r"golden/.*"), MAX_GOLDEN_BYTES),
    (re.compile(r"lib/.*"), MAX_LIB_BYTES),
)


def check_member_name(name: str) -> None:
    """Raise BundleError unless ``name`` is a plain relative path of ASCII parts, with no ``..`` in it."""
    if len(name) > MAX_NAME or not _NAME.fullmatch(name) or ".." in name:
        raise BundleError(
            "unsafe or malformed member name",
            where=repr(name[:MAX_NAME]),
            remedy="Do not use this file; get the bundle from its maker again.",
        )


def member_limit(name: str) -> int:
    """The most bytes that member ``name`` may have."""
    for pattern, limit in _LIMITS:
        if pattern.fullmatch(name):
            return limit
    return MAX_TEXT_BYTES


def sha256(data: Any) -> str:
    """Hexadecimal SHA-256 of a bytes-like object."""
    return hashlib.sha256(data).hexdigest()


def storage_bytes(dtype: str, count: int) -> int:
    """Bytes of ``count`` elements of ``dtype``, stored densely."""
    if dtype in PACKED_4BIT:
        return (count + 1) // 2
    return count * DTYPES[dtype].itemsize


def align_up(value: int, to: int) -> int:
    """The least multiple of ``to`` that is not below ``value``."""
    return -(-value // to) * to


@dataclass(frozen=True, slots=True)
class Dim:
    """A named dimension: its inclusive range and what it is a multiple of."""

    name: str
    min: int
    max: int
    multiple: int


@dataclass(frozen=True, slots=True)
class Constraint:
    """Two size expressions that must be equal before a run, and the reason in words."""

    left: Expr
    right: Expr
    why: str


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of the model: name, dtype name and shape (one size expression an axis)."""

    name: str
    dtype: str
    shape: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class State:
    """An output that a session feeds back into an input; both are ports of the model."""

    input: str
    output: str
    shape: tuple[Expr, ...]
    dtype: str
    reset: str


@dataclass(frozen=True, slots=True)
class Part:
    """Where (a part of) a constant lies: member name and key in that safetensors file."""

    chunk: str
    key: str


@dataclass(frozen=True, slots=True)
class Constant:
    """Canonical weights: dense, row-major. More than one part where it is larger than a chunk."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Buffer:
    """A buffer of a variant. ``strides`` count elements of the storage ``dtype``; ``bytes`` has the slack."""

    id: int
    name: str
    kind: str
    dtype: str
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    bytes: Expr
    slot: int | None
    constant: str | None
    io: str | None


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel of a variant: entry point, workgroup size, access of each binding, number of parameters."""

    id: str
    entry: str
    workgroup: tuple[int, int, int]
    bindings: tuple[str, ...]
    params: int
    safe: bool


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One dispatch: kernel id, buffer ids for its bindings, parameters and grid as size expressions."""

    kernel: str
    args: tuple[int, ...]
    params: tuple[Expr, ...]
    grid: tuple[Expr, Expr, Expr]


@dataclass(frozen=True, slots=True)
class Alternate:
    """One of the interchangeable ways to do a step."""

    tag: str
    dispatches: tuple[Dispatch, ...]


@dataclass(frozen=True, slots=True)
class Writes:
    """The tensor that a step makes: a strided view of a buffer (strides and offset in elements)."""

    buffer: int
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    offset: Expr


@dataclass(frozen=True, slots=True)
class Step:
    """A step that makes one tensor. ``index`` is its preorder number."""

    index: int
    name: str
    origin: tuple[str, ...]
    writes: Writes
    alternates: tuple[Alternate, ...]


@dataclass(frozen=True, slots=True)
class IfStep:
    """A choice between two step lists by one element of a buffer; ``end`` is the index after its children."""

    index: int
    cond: int
    then: tuple[AnyStep, ...]
    orelse: tuple[AnyStep, ...]
    end: int


@dataclass(frozen=True, slots=True)
class LoopStep:
    """Steps that repeat: ``trip`` times (a size, or the one integer of the buffer ``trip_buffer``, read once), as long as the
    one element of ``cond`` is not zero, which is looked at before each turn. The body is numbered once, and a range of steps
    runs the loop as a whole, when its own number is in the range.
    """

    index: int
    trip: Expr
    trip_buffer: int | None
    cond: int | None
    body: tuple[AnyStep, ...]
    end: int


@dataclass(frozen=True, slots=True)
class DimStep:
    """From here on the dimension has the value of the one integer in the buffer, which must be legal for it.

    Only among the steps at the top. Before it the dimension is at its maximum, which is what slots are sized for; no input or
    output has it. It is read whenever a later step runs, so the buffer keeps its value to the end.
    """

    index: int
    name: str
    buffer: int


AnyStep = Step | IfStep | LoopStep | DimStep


@dataclass(frozen=True, slots=True)
class Variant:
    """The model compiled for one backend and device class."""

    id: str
    backend: str
    device_class: str
    features: tuple[str, ...]
    limits: Mapping[str, int]
    source: str
    prebuilt: Mapping[str, str]
    cpu_adapter_prefers: str | None
    buffers: Mapping[int, Buffer]
    slots: tuple[Expr, ...]
    packed_slots: tuple[Expr, ...]
    kernels: Mapping[str, Kernel]
    prologue: tuple[AnyStep, ...]
    steps: tuple[AnyStep, ...]


@dataclass(frozen=True, slots=True)
class Golden:
    """Golden vectors: dimension values, the member that holds them, and the tolerance against float64."""

    dims: Mapping[str, int]
    file: str
    rtol: float
    atol: float


@dataclass(frozen=True, slots=True)
class Plan:
    """A parsed plan.json: everything a runtime needs besides kernel texts and weights."""

    dims: tuple[Dim, ...]
    constraints: tuple[Constraint, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    states: tuple[State, ...]
    constants: tuple[Constant, ...]
    variants: tuple[Variant, ...]
    golden: tuple[Golden, ...]
    version: tuple[int, int] = field(default=PLAN_VERSION)


@dataclass(frozen=True, slots=True)
class Manifest:
    """A parsed manifest.json. ``files`` maps member names to (SHA-256, bytes); ``raw`` is the JSON object."""

    name: str
    created_by: str
    model_sha256: str
    files: Mapping[str, tuple[str, int]]
    signed: bool
    raw: Mapping[str, Any]


def flatten(steps: tuple[AnyStep, ...]) -> list[AnyStep]:
    """The steps in preorder; the position of a step in the result is its index."""
    result: list[AnyStep] = []
    for step in steps:
        result.append(step)
        if isinstance(step, IfStep):
            result += flatten(step.then) + flatten(step.orelse)
        elif isinstance(step, LoopStep):
            result += flatten(step.body)
    return result


def control_buffers(steps: tuple[AnyStep, ...]) -> set[int]:
    """The buffers that decide what runs: conditions and trip counts."""
    found: set[int] = set()
    for step in flatten(steps):
        if isinstance(step, IfStep):
            found.add(step.cond)
        elif isinstance(step, LoopStep):
            found |= {b for b in (step.cond, step.trip_buffer) if b is not None}
        elif isinstance(step, DimStep):
            found.add(step.buffer)
    return found


def measured_dims(variant: Variant) -> frozenset[str]:
    """Names of the dimensions that the variant reads from buffers while it runs."""
    return frozenset(s.name for s in variant.steps if isinstance(s, DimStep))
