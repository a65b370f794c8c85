"""Compiling generated C into a shared library, cached by what it is made from.

The cache key is the SHA-256 of text, compiler version, flags and the features of the processor, so that a
library is never loaded on a machine it was not made for. Files appear atomically, in a folder that only the
user can write to.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tang_edge.bundle import trust
from tang_edge.c_fallback import libraries
from tang_edge.errors import CompilerBug, DeviceError

# NaN and infinity keep their meaning, so no -ffast-math; errno and traps are not observed
FLAGS = (
    *("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-std=gnu11"),
    *("-shared", "-fPIC", "-fvisibility=hidden"),
)
LIBRARIES = ("-lm", "-lpthread")
_TIMEOUT = 1800.0  # seconds; a large model is some ten thousand lines

CPU_CLASSES = ("cpu-x86-64-v4", "cpu-x86-64-v3", "cpu-x86-64-v2", "cpu-aarch64", "cpu-generic")
_NEEDS = {
    "cpu-x86-64-v2": {"cx16", "popcnt", "sse4_1", "sse4_2", "ssse3"},
    "cpu-x86-64-v3": {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"},
    "cpu-x86-64-v4": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
}


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C compiler: the command and what it says about its version."""

    command: tuple[str, ...]
    version: str


@functools.cache
def cpu_features() -> frozenset[str]:
    """Features of this processor by the names of /proc/cpuinfo (empty where they cannot be read)."""
    if sys.platform == "darwin":
        return _sysctl_features()
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return frozenset()
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


def _sysctl_features() -> frozenset[str]:
    names = ("machdep.cpu.features", "machdep.cpu.leaf7_features", "machdep.cpu.extfeatures")
    found: set[str] = set()
    for name in names:
        done = subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, check=False)
        found |= {f.lower().replace(".", "_") for f in done.stdout.split()}
    # sysctl spells some of them in another way
    return frozenset(found | ({"avx"} if "avx1_0" in found else set()))


@functools.cache
def cpu_classes() -> tuple[str, ...]:
    """The device classes whose code this processor runs, best first."""
    machine = platform.machine().lower()
    if machine in ("aarch64", "arm64"):
        return ("cpu-aarch64", "cpu-generic")
    if machine not in ("x86_64", "amd64"):
        return ("cpu-generic",)
    have, reached, needed = cpu_features(), [], set[str]()
    for name in ("cpu-x86-64-v2", "cpu-x86-64-v3", "cpu-x86-64-v4"):
        needed |= _NEEDS[name]
        if needed <= have:
            reached.append(name)
    return (*reversed(reached), "cpu-generic")


def host_triple() -> str:
    """The triple by which a bundle names libraries for this machine, such as ``x86_64-linux-gnu``."""
    machine = platform.machine().lower()
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)
    if sys.platform == "darwin":
        return f"{machine}-macos"
    if sys.platform == "win32":
        return f"{machine}-windows-gnu"
    libc = platform.libc_ver()[0]
    return f"{machine}-linux-{'gnu' if libc == 'glibc' else 'musl'}"


@functools.cache
def find_compiler() -> Compiler | None:
    """The C compiler of this machine: ``TANG_EDGE_CC`` if it is set, else gcc, cc, clang or ziglang; None if there is none.

    Raises:
        DeviceError: ``TANG_EDGE_CC`` is set and is no working compiler.
    """
    asked = os.environ.get("TANG_EDGE_CC")
    if asked:
        found = _working(tuple(shlex.split(asked)))
        if found is None:
            raise DeviceError("is no working C compiler", where=f"TANG_EDGE_CC={asked}", remedy="Correct it or unset it")
        return found
    candidates = [(path,) for name in ("gcc", "cc", "clang") if (path := shutil.which(name))]
    return next((c for command in candidates if (c := _working(command)) is not None), None) or find_zig()


@functools.cache
def find_zig() -> Compiler | None:
    """The compiler of the package ziglang, which makes libraries for other machines too; None if it is not installed."""
    if importlib.util.find_spec("ziglang") is None:
        return None
    return _working((sys.executable, "-m", "ziglang", "cc"))


def _working(command: tuple[str, ...]) -> Compiler | None:
    version = _version(command)
    return Compiler(command, version) if version else None


def _version(command: tuple[str, ...]) -> str:
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def compile_library(text: str, compiler: Compiler, *, where: str = "C source") -> Path:
    """The path of a shared library made from ``text``; taken from the cache if it was made before.

    Raises:
        CompilerBug: the compiler refuses the text.
        DeviceError: the compiler does not work, or the cache folder cannot be used.
    """
    parts = [text, compiler.version, *compiler.command, *FLAGS, *LIBRARIES, *sorted(cpu_features()), platform.machine()]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    return libraries.kept(key, lambda work: build(text, compiler, FLAGS, work, where))


def cached_library(data: bytes | memoryview, digest: str) -> Path:
    """The path of a copy of a prebuilt library (bytes whose SHA-256 is ``digest``) that can be loaded."""

    def write(work: Path) -> Path:
        made = work / "library"
        made.write_bytes(data)
        made.chmod(0o700)
        return made

    path = libraries.kept(digest, write)
    if hashlib.sha256(path.read_bytes()).hexdigest() != digest:
        trust.write_atomically(path, bytes(data), 0o700)
    return path


def build(text: str, compiler: Compiler, flags: Sequence[str], work: Path, where: str) -> Path:
    """A shared library in the folder ``work``.

    Raises:
        CompilerBug: the compiler refuses the text; it is kept in the cache folder, and the error says where.
        DeviceError: the compiler does not work at all, with these flags.
    """
    done, made = _compile(text, compiler, flags, work, where)
    if made.exists() and done.returncode == 0:
        return made
    empty, library = _compile("int tang_nothing(void) { return 0; }\n", compiler, flags, work, where)
    if empty.returncode != 0 or not library.exists():
        remedy = "Set TANG_EDGE_CC to a working compiler, or use device='webgpu'"
        raise DeviceError(f"{compiler.command[0]} does not work: {_first(empty.stderr)}", where=where, remedy=remedy)
    kept = trust.private_dir(trust.cache_dir() / "refused") / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.c"
    trust.write_atomically(kept, text.encode())
    raise CompilerBug(
        f"{compiler.command[0]} refused the generated C ({_first(done.stderr)}; the text is kept in {kept})",
        where=where,
        remedy="Another compiler (TANG_EDGE_CC) or device='webgpu' may do",
    )


def _first(errors: str) -> str:
    """The first errors of a compiler, without the excerpts around them."""
    lines = [x.strip() for x in errors.splitlines() if "error" in x] or errors.strip().splitlines()
    return "; ".join(x[:200] for x in lines[:2]) or "it says nothing"


def _compile(
    text: str, compiler: Compiler, flags: Sequence[str], work: Path, where: str
) -> tuple[subprocess.CompletedProcess[str], Path]:
    """What the compiler said, and where the library is if it made one."""
    source, made = work / "model.c", work / "model.library"
    made.unlink(missing_ok=True)
    source.write_text(text)
    here = str(Path(__file__).parent)
    command = [*compiler.command, *flags, "-I", here, "-o", str(made), source.name, *LIBRARIES]
    zig = str(trust.cache_dir() / "zig")
    environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": zig, "ZIG_LOCAL_CACHE_DIR": str(work / "zig"), "LC_ALL": "C"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False, env=environment, cwd=work)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DeviceError(f"the C compiler did not finish ({error})", where=where) from error
    return done, made
