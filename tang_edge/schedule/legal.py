"""What a device class guarantees, checked on a variant: a bundle holds no kernel or buffer that some device of the class must
refuse.

Kernels: bindings, invocations, workgroup memory. Buffers: bytes at the smallest sizes, where nothing that the caller asks for
makes them larger; sizes beyond are checked by the runtimes when they prepare them, with the numbers of the device at hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tang_edge.errors import TargetLimit
from tang_edge.ir import affine
from tang_edge.ir.kernel import Kernel
from tang_edge.ir.tensor import Bind
from tang_edge.schedule.addresses import Placed
from tang_edge.schedule.limits import Limits

Option = tuple[str, tuple[Kernel, ...]]  # tag, kernels


def lacking(kernel: Kernel, limits: Limits) -> str:
    """Which guarantee of the class a kernel exceeds, in words; empty where it fits. The parameters are a uniform buffer."""
    shared = sum(s.size * s.dtype.bytes for s in kernel.shared)
    for what, need, have in (
        ("storage buffers", len(kernel.buffers), limits.storage_buffers),
        ("invocations a workgroup", kernel.workgroup, limits.invocations),
        ("bytes of workgroup memory", shared, limits.workgroup_memory),
    ):
        if need > have:
            return f"needs {need} {what}, {limits.name} guarantees {have}"
    return ""


def legal(options: Sequence[Option], bind: Bind, limits: Limits) -> list[Option]:
    """The alternates of a bind whose kernels fit the class.

    Raises:
        TargetLimit: there is none.
    """
    found = [o for o in options if not any(lacking(k, limits) for k in o[1])]
    if not found:
        why = next(w for _, kernels in options for k in kernels if (w := lacking(k, limits)))
        where = ", ".join(map(str, bind.origin)) or bind.name
        raise TargetLimit(why, where=where, remedy="Pack for another target, or simplify this part of the model.")
    return found


def check_buffers(tensors: Mapping[str, Placed], limits: Limits) -> None:
    """Every buffer can be bound on a device of the class, at least at the smallest sizes.

    Raises:
        TargetLimit: one cannot; the tensor, its bytes and the limit are named.
    """
    for name, placed in tensors.items():
        least = affine.bounds(placed.bytes())[0]
        if least > limits.binding_bytes:
            raise TargetLimit(
                f"takes {least:,} bytes at the smallest sizes, {limits.name} guarantees bindings of {limits.binding_bytes:,}",
                where=f"tensor '{name}'",
                remedy="Give smaller sizes (--dim), or pack for another target (cpu-generic).",
            )
