"""Writing a bundle: streaming, deterministic, and atomic (a whole new file or nothing)."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from tang_edge.bundle import container, layout, tensors, trust, verify
from tang_edge.bundle import format as fmt
from tang_edge.errors import BundleError, CompilerBug

JsonObject = Mapping[str, Any]

# The schema check takes ten seconds a megabyte, and refuses nothing that verify.py does not refuse (a test
# says so): it is there to notice that the two drift apart, and small plans are enough for that.
_SCHEMA_BYTES = 100_000


@dataclass(frozen=True, slots=True)
class GoldenVectors:
    """Golden vectors to pack.

    ``arrays`` holds ``in/<input>`` and ``out/<output>`` in the dtypes of the ports, and ``step/<bind name>``:
    float64 samples at :func:`sample_indices` of the step's tensor.
    """

    dims: Mapping[str, int]
    arrays: Mapping[str, npt.NDArray[Any]]
    rtol: float
    atol: float


def sample_indices(size: int, count: int = 256) -> npt.NDArray[np.intp]:
    """The logical linear indices at which a step of ``size`` elements is sampled."""
    return np.unique(np.linspace(0, size - 1, min(size, count)).astype(int)) if size else np.zeros(0, np.intp)


def write(
    path: str | os.PathLike[str],
    *,
    name: str,
    plan: JsonObject,
    members: Mapping[str, str | bytes],
    constants: Iterable[tuple[str, npt.NDArray[Any]]] = (),
    golden: Sequence[GoldenVectors] = (),
    created_by: str = "tang-edge",
    model_sha256: str = "",
    memory: JsonObject | None = None,
    default_dims: Mapping[str, int] | None = None,
    remember: bool = False,
) -> str:
    """Write ``path`` and return the SHA-256 of its manifest.

    Args:
        path: the file to make or replace; a temporary file beside it takes its place when all is written.
        name, created_by, model_sha256, memory: go into the manifest as they are.
        plan: the plan without its weights' places: ``constants`` and ``golden`` are filled in here. An entry
            of ``plan["constants"]`` that names a constant fixes its dtype name (bf16, i4 and u4 need that).
        members: texts and libraries by member name (kernels/..., explain.json, lib/...).
        constants: the canonical weights in the order of the plan, each taken when it is needed.
        golden: vectors for the self-test.
        default_dims: dimension values for the peak bytes in the manifest (their minima if not given).
        remember: note on this machine that the bundle was packed here, so that ``load`` trusts its C.

    Raises:
        BundleError: the plan does not fit its schema, or a member is missing or oversized.
    """
    if remember:
        trust.private_dir(trust.config_dir())  # a folder that cannot be used is said before there is a bundle
    with _atomically(Path(path)) as file:
        out = _Output(file)
        table = _write_constants(out, plan, constants)
        vectors = [_write_golden(out, i, g) for i, g in enumerate(golden)]
        full = {**plan, "constants": table, "golden": vectors}
        parsed = _checked(full)
        out.add(fmt.PLAN, _json(full))
        for member in sorted(members):
            content = members[member]
            out.add(member, content.encode() if isinstance(content, str) else content)
        named = {m for v in parsed.variants for m in (v.source, *v.prebuilt.values())}
        if named - set(out.files):
            raise BundleError("the plan names a member that was not given", where=min(named - set(out.files)))
        head = {"name": name, "created_by": created_by, "model_sha256": model_sha256}
        digest = out.finish(_manifest(head, full, parsed, memory or {}, default_dims))
    if remember:
        trust.remember(digest)
    return digest


@contextlib.contextmanager
def _atomically(target: Path) -> Iterator[IO[bytes]]:
    """A temporary file beside ``target`` that takes its place at the end, and is gone after an error."""
    if target.is_dir() or not target.name:
        raise BundleError("cannot be written (is a folder)", where=str(target), remedy="Give the name of a file")
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    except OSError as error:
        raise BundleError(f"cannot be written ({error.strerror or error})", where=str(target)) from error
    try:
        with os.fdopen(handle, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, target)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise BundleError(f"cannot be written ({error.strerror or error})", where=str(target)) from error
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    value = os.umask(0)
    os.umask(value)
    return value


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _checked(full: JsonObject) -> fmt.Plan:
    """The plan, if it passes the runtime's check and (where jsonschema is installed) the published schema."""
    parsed = verify.parse_plan(json.loads(_json(full)))
    _check_schema("plan.schema.json", full)
    return parsed


def _check_schema(schema: str, value: JsonObject) -> None:
    try:
        import jsonschema  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        return
    if len(_json(value)) > _SCHEMA_BYTES:
        return
    rules = json.loads((Path(__file__).parent / schema).read_text())
    errors = jsonschema.Draft202012Validator(rules).iter_errors(json.loads(_json(value)))
    for error in errors:
        raise BundleError(f"{error.message[:300]} (published schema {schema})", where=error.json_path)


class _Output:
    """The file being written, with the members so far."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._at = 0
        self.entries: list[container.Entry] = []
        self.files: dict[str, dict[str, Any]] = {}

    def add(self, name: str, data: bytes) -> None:
        """Append a member."""
        fmt.check_member_name(name)
        if name in self.files or name in (fmt.MANIFEST, fmt.MANIFEST_HASH):
            raise BundleError("member would occur twice", where=name)
        if len(data) > fmt.member_limit(name):
            raise BundleError(f"member has {len(data)} bytes, more than a bundle allows", where=name)
        self._put(name, data)
        self.files[name] = {"sha256": fmt.sha256(data), "bytes": len(data)}

    def _put(self, name: str, data: bytes) -> None:
        entry = container.place(name, container.crc32(data), len(data), self._at)
        # 64 MiB are more than the directory of the most members takes
        if entry.start + entry.size > container.MAX_FILE - (64 << 20):
            raise BundleError("a bundle cannot be larger than 4 GiB", where=name)
        self._file.write(container.local_header(entry))
        self._file.write(data)
        self._at = entry.start + entry.size
        self.entries.append(entry)

    def finish(self, manifest: dict[str, Any]) -> str:
        """Write the manifest, its hash and the directory; return the hash."""
        manifest["files"] = self.files
        verify.parse_manifest(json.loads(_json(manifest)))
        _check_schema("manifest.schema.json", manifest)
        raw = _json(manifest)
        digest = fmt.sha256(raw)
        self._put(fmt.MANIFEST, raw)
        self._put(fmt.MANIFEST_HASH, digest.encode())
        self._file.write(container.directory(self.entries))
        return digest


def _manifest(
    head: Mapping[str, str],
    full: JsonObject,
    parsed: fmt.Plan,
    memory: JsonObject,
    default_dims: Mapping[str, int] | None,
) -> dict[str, Any]:
    least = {d.name: fmt.align_up(d.min, d.multiple) for d in parsed.dims} | dict(default_dims or {})
    most = {d.name: d.max // d.multiple * d.multiple for d in parsed.dims}
    variants = [
        {
            "id": v.id,
            "backend": v.backend,
            "class": v.device_class,
            "peak_bytes": layout.peak_bytes(v, least),
            "peak_bytes_max": layout.peak_bytes(v, most),
            "features": list(v.features),
            "limits": dict(v.limits),
            # a compiled library stands for the text that it was made of
            "members": sorted(set(v.prebuilt.values())) or [v.source],
        }
        for v in parsed.variants
    ]
    return {
        "format": "tang",
        "version": list(fmt.MANIFEST_VERSION),
        **head,
        **{k: full[k] for k in ("dims", "inputs", "outputs")},
        "variants": variants,
        "memory": dict(memory),
        "signature": None,
    }


def _write_golden(out: _Output, index: int, golden: GoldenVectors) -> dict[str, Any]:
    member = f"golden/{index}.safetensors"
    out.add(member, tensors.pack(golden.arrays))
    tolerance = {"rtol": float(golden.rtol), "atol": float(golden.atol)}
    return {"dims": dict(golden.dims), "file": member, "tolerance": tolerance}


def _write_constants(out: _Output, plan: JsonObject, constants: Iterable[tuple[str, npt.NDArray[Any]]]) -> list[dict[str, Any]]:
    """Write the weights in chunks as they come; return the constants table of the plan in its order."""
    declared = {c["name"]: c for c in plan.get("constants", ())}
    writer = _Chunks(out)
    table = {}
    for name, array in constants:
        entry = declared.get(name, {})
        dtype = entry.get("dtype") or _dtype_name(name, array)
        shape = [int(n) for n in entry.get("shape", array.shape)]
        if fmt.storage_bytes(dtype, int(np.prod(shape, dtype=object))) != array.nbytes:
            raise CompilerBug(f"constant has {array.nbytes} bytes, its dtype and shape say otherwise", where=name)
        parts = writer.add(array)
        table[name] = {"name": name, "dtype": dtype, "shape": shape, **parts[0]}
        if len(parts) > 1:
            table[name]["parts"] = parts
    writer.flush()
    if set(declared) - set(table):
        raise CompilerBug(f"constants were not given: {sorted(set(declared) - set(table))[:5]}")
    # the plan's order counts: it is the order of the pointers in a C call
    return [table[n] for n in declared] + [t for n, t in table.items() if n not in declared]


def _dtype_name(name: str, array: npt.NDArray[Any]) -> str:
    for key, dtype in fmt.DTYPES.items():
        if dtype == array.dtype:
            return key
    raise CompilerBug(f"constant has dtype {array.dtype}, which cannot be stored", where=name)


class _Chunks:
    """Collects tensors into safetensors members of at most 16 MiB; a larger tensor is cut into flat parts."""

    def __init__(self, out: _Output) -> None:
        self._out = out
        self._held: dict[str, npt.NDArray[Any]] = {}
        self._bytes = 0
        self._chunk = 0
        self._key = 0

    def add(self, array: npt.NDArray[Any]) -> list[dict[str, str]]:
        if array.nbytes <= fmt.CHUNK_BYTES:
            return [self._hold(array)]
        flat = np.ascontiguousarray(array).reshape(-1)
        step = fmt.CHUNK_BYTES // flat.itemsize
        return [self._hold(flat[i : i + step]) for i in range(0, flat.size, step)]

    def _hold(self, array: npt.NDArray[Any]) -> dict[str, str]:
        if self._bytes + array.nbytes > fmt.CHUNK_BYTES:
            self.flush()
        # keys are numbers: model names may hold anything, the plan maps them
        key = f"{self._key:06d}"
        self._key += 1
        self._held[key] = array
        self._bytes += array.nbytes
        return {"chunk": f"weights/{self._chunk:05d}.safetensors", "key": key}

    def flush(self) -> None:
        if self._held:
            self._out.add(f"weights/{self._chunk:05d}.safetensors", tensors.pack(self._held))
            self._chunk += 1
        self._held, self._bytes = {}, 0
