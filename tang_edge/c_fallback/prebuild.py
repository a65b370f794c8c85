"""Libraries made at pack time, for this machine and for others, so that a bundle runs where there is no compiler.

The host's are made by its own compiler, those of other triples by the package ziglang. They are made for a device class
(x86-64-v3 and the like), never for the processor of the packer. WebAssembly libraries hold the C library's mathematics and
import nothing, except that those with threads import the memory which the threads share.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tang_edge.c_fallback import compile as cc
from tang_edge.errors import DeviceError, InputError

HOST = "host"
GET_ZIG = "pip install 'tang-edge[c]'"
# By triple: zig's target. The C library of old systems is asked for where there is a choice, so that new ones do too.
TRIPLES = {
    "x86_64-linux-gnu": "x86_64-linux-gnu.2.17",
    "x86_64-linux-musl": "x86_64-linux-musl",
    "aarch64-linux-gnu": "aarch64-linux-gnu.2.17",
    "aarch64-linux-musl": "aarch64-linux-musl",
    "x86_64-macos": "x86_64-macos",
    "aarch64-macos": "aarch64-macos",
    "x86_64-windows-gnu": "x86_64-windows-gnu",
}
_SUFFIX = {"macos": ".dylib", "windows": ".dll", "simd": ".wasm"}
_LEVELS = {"cpu-x86-64-v2": "v2", "cpu-x86-64-v3": "v3", "cpu-x86-64-v4": "v4"}

_WASM_FLAGS = (
    *("-target", "wasm32-wasi", "-O3", "-fno-math-errno", "-fno-trapping-math", "-std=gnu11", "-fvisibility=hidden"),
    *("-mexec-model=reactor", "-Wl,--no-entry", "-Wl,--strip-all", f"-Wl,-z,stack-size={512 << 10}"),
    *("-Wl,--export-dynamic", "-Wl,--export=__heap_base"),
)
WASM = {
    "wasm32-simd": (*_WASM_FLAGS, "-mcpu=generic+simd128"),
    "wasm32-simd-threads": (
        *(*_WASM_FLAGS, "-mcpu=generic+simd128+atomics+bulk_memory"),
        *("-Wl,--import-memory", "-Wl,--shared-memory"),
        *(f"-Wl,--initial-memory={16 << 20}", f"-Wl,--max-memory={(4 << 30) - (64 << 10)}"),
    ),
}


def resolve(triples: tuple[str, ...]) -> tuple[str, ...]:
    """The triples asked for, ``host`` by its name, each once.

    Raises:
        InputError: one is not known.
    """
    named = dict.fromkeys(cc.host_triple() if t == HOST else t for t in triples)
    for t in named:
        if t not in TRIPLES and t != cc.host_triple():
            raise InputError(f"{t!r} is not known", where="prebuild", remedy=f"Known: {HOST}, {', '.join(TRIPLES)}.")
    return tuple(named)


def fits(triple: str, device_class: str) -> bool:
    """Whether a machine of that triple may be of that class."""
    arch = triple.partition("-")[0]
    return device_class == "cpu-generic" or device_class.startswith(f"cpu-{arch.replace('_', '-')}")


def member(triple: str, variant: str) -> str:
    """The name of a library in the bundle."""
    suffix = _SUFFIX.get(triple.split("-")[1], ".so")
    return f"lib/{triple}/{variant}{suffix}"


def can_cross_compile() -> bool:
    """Whether libraries for other machines than this one can be made."""
    return cc.find_zig() is not None


def library(text: str, triple: str, device_class: str, where: str) -> bytes:
    """A shared library of a variant's C text.

    Raises:
        DeviceError: there is no compiler for the triple, or it refuses the text.
    """
    host = triple == cc.host_triple()
    compiler = cc.find_compiler() if host else cc.find_zig()
    if compiler is None:
        raise DeviceError(
            f"there is no compiler here for {triple}",
            where="prebuild",
            remedy=f"Install gcc or clang, or {GET_ZIG}." if host else f"{GET_ZIG} (ziglang).",
        )
    with tempfile.TemporaryDirectory(prefix="tang-edge-build-") as work:
        return cc.build(text, compiler, _flags(compiler, triple, device_class), Path(work), where).read_bytes()


def _flags(compiler: cc.Compiler, triple: str, device_class: str) -> tuple[str, ...]:
    if triple in WASM:
        return WASM[triple]
    zig = compiler.command[-1:] == ("cc",) and "ziglang" in compiler.command
    level = _LEVELS.get(device_class, "")
    # zig spells the processor with underscores
    arch = [f"-march={'x86_64_' if zig else 'x86-64-'}{level}"] if level else []
    target = ["-target", TRIPLES[triple]] if zig and triple in TRIPLES else []
    return (*target, *arch, *(f for f in cc.FLAGS if f != "-march=native"))
