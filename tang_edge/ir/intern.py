"""Hash-consing: equal nodes are one object, so equality is identity and sharing is free.

Ershov, "On programming of arithmetic operations" (1958); Filliâtre and Conchon, "Type-safe modular hash-consing" (2006).
"""

from __future__ import annotations

import weakref
from typing import Any, ClassVar


class Interned(type):
    """Metaclass: constructing a node with the fields of a living node returns that node.

    A class may define `_intern_key(*fields)` where field equality is coarser than node equality (0.0 == -0.0 == False).
    """

    _table: ClassVar[weakref.WeakValueDictionary[Any, Any]] = weakref.WeakValueDictionary()

    def __call__(cls, *fields: Any) -> Any:
        key = (cls, cls._intern_key(*fields)) if hasattr(cls, "_intern_key") else (cls, fields)
        node = Interned._table.get(key)
        if node is None:
            node = super().__call__(*fields)
            Interned._table[key] = node
        return node
