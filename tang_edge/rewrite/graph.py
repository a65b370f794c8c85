"""A working copy of a program for passes that change many binds: who makes and who reads a tensor.

Binds are numbered in program order ("slots"). Names of If results are bound once in each branch, so a slot
and not a name identifies a bind; such names, conditions, outputs and states are *pinned*: their tensors must
stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tang_edge.ir import scalar
from tang_edge.ir.scalar import Scalar
from tang_edge.ir.tensor import Alloc, Bind, Constant, If, Item, Loop, Origin, Program, TensorType, walk

Scope = tuple[int, ...]


def merged_origins(*groups: Sequence[Origin]) -> tuple[Origin, ...]:
    """Origins of several binds, in order, each once."""
    return tuple(dict.fromkeys(o for g in groups for o in g))


def tensors_read(x: Scalar) -> tuple[str, ...]:
    """The tensors that an expression reads, each once, in alphabetical order."""
    return tuple(sorted({r.tensor for r in scalar.reads(x)}))


def pinned_names(program: Program) -> frozenset[str]:
    """Tensors that must exist under their name: outputs, states, conditions and results of branches, what loops carry."""
    ifs = [i for i in walk(program.items) if isinstance(i, If)]
    names = [t for _, t in program.outputs] + [s.output for s in program.states]
    names += [i.cond for i in ifs] + [r for i in ifs for r in i.results]
    for loop in (i for i in walk(program.items) if isinstance(i, Loop)):
        names += [*loop.given, *loop.results, *(c.next for c in loop.carried)]
    return frozenset(names)


class Graph:
    """Binds by slot, readers and producers by tensor name. `program()` gives the changed program back."""

    def __init__(self, program: Program) -> None:
        self.source = program
        self.binds: dict[int, Bind] = {}
        self.scopes: dict[int, Scope] = {}
        self.allocs: dict[str, Alloc] = {}
        self.pinned = pinned_names(program)
        self.types: dict[str, TensorType] = program.types()
        self.constants: dict[str, Constant] = {c.name: c for c in program.constants}
        self._readers: dict[str, dict[int, None]] = {}
        self._producers: dict[str, int] = {}
        self._before: dict[int, list[object]] = {}
        self._count = 0
        self._tree = self._load(program.items, ())
        for slot in self.binds:
            self._index(slot)

    def _load(self, items: Sequence[Item], scope: Scope) -> list[object]:
        tree: list[object] = []
        for item in items:
            match item:
                case Bind():
                    slot = self._count
                    self._count += 1
                    self.binds[slot], self.scopes[slot] = item, scope
                    tree.append(slot)
                case Alloc():
                    self.allocs[item.name] = item
                    tree.append(item)
                case If():
                    self._count += 1
                    mark = self._count
                    then = self._load(item.then, (*scope, 2 * mark))
                    tree.append((item, then, self._load(item.orelse, (*scope, 2 * mark + 1))))
                case Loop():
                    self._count += 1
                    tree.append((item, self._load(item.body, (*scope, -self._count)), []))
        return tree

    def _index(self, slot: int) -> None:
        bind = self.binds[slot]
        for t in tensors_read(bind.expr):
            self._readers.setdefault(t, {})[slot] = None
        if bind.store is None:
            self._producers[bind.name] = slot

    def readers(self, tensor: str) -> tuple[int, ...]:
        """The slots of the binds that read a tensor, in program order."""
        return tuple(sorted(self._readers.get(tensor, ())))

    def producer(self, tensor: str) -> int | None:
        """The slot of the bind that makes a tensor; None for inputs, constants and allocations."""
        slot = self._producers.get(tensor)
        return None if slot is None or tensor in self.allocs else slot

    def is_pinned(self, tensor: str) -> bool:
        """True for a tensor that must stay under its name."""
        return tensor in self.pinned

    def visible(self, outer: int, inner: int) -> bool:
        """True when the scope of bind `inner` is that of bind `outer` or inside it."""
        o = self.scopes[outer]
        return self.scopes[inner][: len(o)] == o

    def enters_loop(self, outer: int, inner: int) -> bool:
        """True when bind `inner` is in the body of a loop that bind `outer` is not in."""
        return any(mark < 0 for mark in self.scopes[inner][len(self.scopes[outer]) :])

    def replace(self, slot: int, bind: Bind) -> None:
        """Put another bind into a slot and update who reads what."""
        for t in tensors_read(self.binds[slot].expr):
            self._readers[t].pop(slot, None)
        if self._producers.get(self.binds[slot].name) == slot:
            del self._producers[self.binds[slot].name]
        self.binds[slot] = bind
        self.types.setdefault(bind.name, bind.type)
        self._index(slot)

    def remove(self, slot: int) -> None:
        """Drop a bind that nothing reads."""
        bind = self.binds[slot]
        for t in tensors_read(bind.expr):
            self._readers[t].pop(slot, None)
        if self._producers.get(bind.name) == slot:
            del self._producers[bind.name]
        del self.binds[slot]

    def insert_before(self, slot: int, item: Alloc | Bind) -> None:
        """Put an item in front of a slot, in its scope. An inserted bind gets a slot above all others."""
        if isinstance(item, Bind):
            new, self._count = self._count, self._count + 1
            self.binds[new], self.scopes[new] = item, self.scopes[slot]
            self._index(new)
            self._before.setdefault(slot, []).append(new)
        else:
            self.allocs[item.name] = item
            self._before.setdefault(slot, []).append(item)
        self.types[item.name] = item.type

    def program(self) -> Program:
        """The program with all changes."""
        return self.source.with_items(self._items(self._tree))

    def _items(self, tree: Sequence[object]) -> list[Item]:
        out: list[Item] = []
        for node in tree:
            if isinstance(node, int):
                out.extend(self._items(self._before.get(node, ())))
                if node in self.binds:
                    out.append(self.binds[node])
            elif isinstance(node, tuple):
                item, then, orelse = node
                if isinstance(item, Loop):
                    out.append(replace(item, body=tuple(self._items(then))))
                    continue
                out.append(replace(item, then=tuple(self._items(then)), orelse=tuple(self._items(orelse))))
            elif isinstance(node, Alloc):
                out.append(node)
        return out
