"""Every output gets a tensor of its own: runtimes hand out one buffer per output, and each buffer has one owner.

An output that is an input, a constant, or a tensor made of constants only (which the prologue makes), and the second of two
outputs of one tensor, is copied by an identity bind at the end of the program.
"""

from __future__ import annotations

from dataclasses import replace

from tang_edge.ir import scalar
from tang_edge.ir.tensor import Bind, Program, bind, walk


def own_outputs(program: Program) -> Program:
    """The program with an identity bind for each output that shares its tensor."""
    types = program.types()
    taken = set(types) | {i.name for i in walk(program.items) if isinstance(i, Bind)}
    shared = {i.name for i in program.inputs} | _of_constants(program)
    outputs: list[tuple[str, str]] = []
    copies: list[Bind] = []
    for name, tensor in program.outputs:
        if tensor in shared:
            t = types[tensor]
            own = _fresh(name, taken)
            taken.add(own)
            copies.append(bind(own, t.shape, lambda *axes, n=tensor, d=t.dtype: scalar.read(n, axes, d)))
            tensor = own
        outputs.append((name, tensor))
        shared.add(tensor)
    if not copies:
        return program
    return replace(program, items=(*program.items, *copies), outputs=tuple(outputs))


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "|out"
    return name


def _of_constants(program: Program) -> set[str]:
    """Constants and the tensors that are functions of constants alone."""
    found = {c.name for c in program.constants}
    for item in program.items:
        if isinstance(item, Bind) and item.store is None:
            read = {r.tensor for r in scalar.reads(item.expr)}
            if read and read <= found:
                found.add(item.name)
    return found
