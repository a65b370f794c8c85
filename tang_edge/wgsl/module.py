"""The text of a WGSL module: one kernel, its bindings, and the decoding of workgroup and invocation indices."""

from __future__ import annotations

from collections.abc import Sequence

from tang_edge.emit.legalize import legalize
from tang_edge.emit.unit import Unit, grid_total, unit
from tang_edge.emit.vectors import align
from tang_edge.ir import affine
from tang_edge.ir.affine import Expr
from tang_edge.ir.kernel import Buffer, Kernel, Shared
from tang_edge.schedule.limits import Limits
from tang_edge.wgsl.dialect import WGSL
from tang_edge.wgsl.functions import needed

FOLD = 32768  # workgroups in x before the grid goes on in y (the limit is 65,535)


def kernel_module(k: Kernel, limits: Limits, where: str, modes: Sequence[str], once: bool = False) -> tuple[str, str, Unit]:
    """Name, text and unit of a kernel whose buffers are bound in these access modes ("read" or "read_write").

    `once`: it runs once, at load, where a pipeline costs more than the run: one text serves all sizes.
    """
    u = unit(align(legalize(k, limits, where)), WGSL, lift=once)
    name = u.name("wgsl " + ",".join(modes))
    return name, _text(u, modes), u


def grid_of(k: Kernel) -> tuple[Expr, Expr, Expr]:
    """Workgroups in x, y and z: one dimension folded under the limit."""
    total = grid_total(k)
    return affine.minimum(total, affine.const(FOLD)), (total + (FOLD - 1)) // FOLD, affine.const(1)


def _text(u: Unit, modes: Sequence[str]) -> str:
    k = u.kernel
    lines: list[str] = []
    for n, b in enumerate(k.buffers):
        lines.append(f"@group(0) @binding({n}) var<storage, {modes[n]}> {b.name}: array<{_element(b)}>;")
    if u.params:
        n = len(k.buffers)
        lines.append(f"@group(0) @binding({n}) var<uniform> params: array<vec4<i32>, {-(-len(u.params) // 4)}>;")
    for s in k.shared:
        lines.append(f"var<workgroup> {s.name}: array<{_element(s)}, {s.size // s.lanes}>;")
    body = "\n".join([*_decode(u), *u.lines])
    front, start = needed(body)
    lines += front
    builtins = ("workgroup_id) group: vec3<u32>", "num_workgroups) groups: vec3<u32>", "local_invocation_index) lane: u32")
    head = f"fn main({', '.join('@builtin(' + b for b in builtins)}) {{"
    lines += [f"@compute @workgroup_size({max(1, k.workgroup)}, 1, 1)", head]
    lines += [f"  let d{n}: i32 = params[{n // 4}].{'xyzw'[n % 4]};" for n in range(len(u.params))]
    return "\n".join([*lines, *start, body, "}"]) + "\n"


def _element(b: Buffer | Shared) -> str:
    """The element type that a buffer is declared with."""
    t = WGSL.types[b.dtype.name]
    return t if b.lanes == 1 else WGSL.vector.format(type=t, dtype=b.dtype.name, lanes=b.lanes)


def _decode(u: Unit) -> list[str]:
    k = u.kernel
    lines: list[str] = []
    if k.grid:
        total = " * ".join(f"({s})" for s in u.grid_sizes)
        lines += ["  let t: i32 = i32(group.x + group.y * groups.x);", f"  if (t >= {total}) {{ return; }}"]
        step = "t"
        # an empty grid runs nothing, but compilers refuse a division by 0 in what never runs
        for v, size in reversed([(v, "1" if s == "0" else s) for v, s in zip(k.grid, u.grid_sizes, strict=True)]):
            lines.append(f"  let {v.name}: i32 = {step if v is k.grid[0] else f'{step} % ({size})'};")
            step = f"({step} / ({size}))"
    step = "i32(lane)"
    for v in reversed(k.lanes):
        width = v.extent.constant
        lines.append(f"  let {v.name}: i32 = {step if v is k.lanes[0] else f'{step} % {width}'};")
        step = f"({step} / {width})"
    return lines
