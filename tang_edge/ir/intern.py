"""Hash-consing: equal nodes are one object, so equality is identity and sharing is free.

Ershov, "On programming of arithmetic operations" (1958); Filliâtre and Conchon, "Type-safe modular hash-consing" (2006).
"""

from __future__ import annotations

import weakref
from typing import Any

# By class and fields, the living nodes. No WeakValueDictionary: its look-up is Python, and none is made more often.
_nodes: dict[Any, _Reference] = {}


class _Reference(weakref.ref[Any]):
    """A reference to a node that knows where it is kept."""

    __slots__ = ("key",)
    key: Any


def _gone(reference: Any, nodes: dict[Any, _Reference] = _nodes) -> None:  # bound: at exit globals go before nodes do
    key = reference.key
    if nodes.get(key) is reference:  # else an equal node has taken the place already
        del nodes[key]


class Interned(type):
    """Metaclass: constructing a node with the fields of a living node returns that node.

    A class may define `_intern_key(*fields)` where field equality is coarser than node equality (0.0 == -0.0 == False).
    """

    def __init__(cls, *made: Any) -> None:
        super().__init__(*made)
        cls._coarse = getattr(cls, "_intern_key", None)

    def __call__(cls, *fields: Any) -> Any:
        key = (cls, fields) if cls._coarse is None else (cls, cls._coarse(*fields))
        reference = _nodes.get(key)
        node = None if reference is None else reference()
        if node is None:
            node = super().__call__(*fields)
            made = _Reference(node, _gone)
            made.key = key
            _nodes[key] = made
        return node
