"""Device classes as data: what a kernel of that class may use, and what the default schedules aim at.

Sources: WebGPU specification (W3C), section "Limits" (guaranteed defaults): 8 storage buffers a stage, 16,384 bytes of
workgroup memory, 256 invocations, 65,535 workgroups a dimension, 134,217,728 bytes a binding. x86-64 levels: System V psABI.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from tang_edge.errors import TargetLimit


@dataclass(frozen=True, slots=True)
class Limits:
    """What a device class offers. Sizes in bytes unless said; 0 lanes of a vector means scalars only.

    widen          storage dtypes that the class cannot hold, by name, and what is stored instead
    lacks          dtypes that the class cannot compute with, nor store as another
    registers      vector registers a micro-kernel may count on (accumulators + operands)
    multiply_adds  vectors of them a cycle: half where each is two instructions
    address_cost   cycles that the address of a load takes from arithmetic
    copy_constants kernels read constants from the packed region only (which has slack behind each), not from the model file
    aligned_vectors vectors are loaded and stored at multiples of their size only, from buffers declared as vectors
    serial_turns   turns that the loops of one invocation may take in all (Mesa's llvmpipe ends a shader's loops after 65,535
                   turns and says nothing: lp_limits.h)
    libraries      triples whose compiled libraries always go along, since nothing compiles C where the class runs
    cpu_prefers    tag of the alternates to prefer when the adapter turns out to be a CPU
    """

    name: str
    backend: str
    vector_bytes: int = 0
    registers: int = 64
    multiply_adds: float = 2
    address_cost: float = 0
    workgroup_memory: int = 0
    invocations: int = 1
    workgroups: int = 65535
    storage_buffers: int = 8
    binding_bytes: int = 1 << 62
    f16: bool = False
    widen: tuple[tuple[str, str], ...] = ()
    lacks: tuple[str, ...] = ()
    tile: tuple[int, int] = (4, 4)
    libraries: tuple[str, ...] = ()
    cpu_prefers: str | None = None
    copy_constants: bool = False
    aligned_vectors: bool = False
    serial_turns: int = 1 << 62
    measured_on: str = "untested defaults"

    def lanes(self, bytes_each: int) -> int:
        """Elements in a vector register (1 where there are none)."""
        return max(1, self.vector_bytes // max(1, bytes_each))

    def storage(self, dtype: str) -> str:
        """The dtype that stores `dtype` on this class."""
        return dict(self.widen).get(dtype, dtype)


_WORDS = tuple((d, "i32") for d in ("i8", "u8", "i16", "u16", "bool", "i64"))
_PLAIN = (*_WORDS, ("f16", "f32"))  # no f16: its values are kept, unrounded, in f32

_BROWSER = Limits(
    "browser",
    "webgpu",
    vector_bytes=16,
    aligned_vectors=True,
    serial_turns=65535,
    workgroup_memory=16384,
    invocations=256,
    binding_bytes=128 << 20,
    widen=_PLAIN,
    lacks=("f64", "u64"),
    cpu_prefers="registers",
)
_CPU = Limits("cpu-generic", "c", vector_bytes=16, registers=16, tile=(4, 2), copy_constants=True, storage_buffers=1 << 62)

CLASSES: Final[dict[str, Limits]] = {
    c.name: c
    for c in (
        _BROWSER,
        replace(_BROWSER, name="laptop", measured_on="NVIDIA H200 (Vulkan), lavapipe (Mesa)"),
        replace(_BROWSER, name="robot-soc"),
        _CPU,
        replace(_CPU, name="cpu-x86-64-v2"),
        replace(_CPU, name="cpu-aarch64", registers=32, tile=(4, 4)),
        replace(_CPU, name="cpu-x86-64-v3", vector_bytes=32, registers=16, tile=(6, 2)),
        replace(
            _CPU,
            name="cpu-x86-64-v4",
            vector_bytes=64,
            registers=32,
            tile=(6, 4),
            measured_on="Xeon with AVX-512, gcc 12",
        ),
        replace(
            _CPU,
            name="wasm-simd",
            registers=14,
            multiply_adds=1,
            address_cost=0.5,
            widen=(("f16", "f32"),),  # clang has no _Float16 there
            libraries=("wasm32-simd", "wasm32-simd-threads"),
            measured_on="V8 (Node 20) on a Xeon",
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Target:
    """What `pack --target` accepts: a name and the device classes whose variants go into the bundle."""

    name: str
    classes: tuple[str, ...] = field(default=())


TARGETS: Final[dict[str, Target]] = {
    t.name: t
    for t in (
        Target("browser", ("browser", "wasm-simd")),
        Target("webgpu", ("browser",)),  # what a page can make: it has no C compiler
        Target("laptop", ("laptop", "cpu-x86-64-v4", "cpu-x86-64-v3", "cpu-generic")),
        Target("robot-soc", ("robot-soc", "cpu-aarch64")),
        *(Target(name, (name,)) for name in CLASSES if name.startswith("cpu-")),
    )
}


def classes_of(targets: tuple[str, ...]) -> tuple[Limits, ...]:
    """The device classes of some targets, in order, each once. Raises TargetLimit for a name that is not known."""
    out: dict[str, Limits] = {}
    for name in targets:
        if name not in TARGETS:
            raise TargetLimit(f"unknown target '{name}'", remedy=f"Known targets: {', '.join(TARGETS)}.")
        out.update({c: CLASSES[c] for c in TARGETS[name].classes})
    return tuple(out.values())
