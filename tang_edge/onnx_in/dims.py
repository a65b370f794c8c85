"""Named dimensions: how a graph's unknown sizes get names and ranges.

A size that the model does not fix becomes a dimension. Its name is `dim_param` where that is an identifier,
else `<input>_<axis>`. One `dim_param` is one dimension, except "" and "?", which always stand for sizes of
their own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tang_edge.errors import InputError
from tang_edge.ir import affine
from tang_edge.ir.affine import Dim, Expr


@dataclass(frozen=True, slots=True)
class DimRange:
    """The sizes that a named dimension may take: lo <= size <= hi, in steps of `multiple`. lo == hi fixes
    it.
    """

    lo: int
    hi: int
    multiple: int = 1

    def __post_init__(self) -> None:
        if self.multiple < 1 or self.lo < 0 or self.lo > self.hi:
            raise InputError(
                f"{self.lo}..{self.hi}:{self.multiple} is not a range of sizes",
                remedy="Give lo..hi or lo..hi:multiple with 0 <= lo <= hi and multiple >= 1",
            )
        if self.hi // self.multiple * self.multiple < self.lo:
            raise InputError(f"no multiple of {self.multiple} lies in {self.lo}..{self.hi}")

    def __str__(self) -> str:
        return f"{self.lo}..{self.hi}" + (f":{self.multiple}" if self.multiple > 1 else "")


FIRST_AXIS: Final = "axis 0 (usually the batch)"
SAMPLES_AXIS: Final = "the last axis of an input of rank 1 or 2 (samples, tokens)"
OTHER_AXES: Final = "any other axis"
# The ranges of dimensions for which neither the model nor the caller gives one.
DEFAULT_RANGES: Final[dict[str, DimRange]] = {
    FIRST_AXIS: DimRange(1, 64),
    SAMPLES_AXIS: DimRange(1, 1 << 20),
    OTHER_AXES: DimRange(1, 4096),
}

_DISTINCT: Final = ("", "?")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED: Final = re.compile(r"i\d+|r\d+_\d+|min|max|idx|if")  # names that the text form of the IR uses


def clean_name(text: str) -> str:
    """An identifier made of a model's name: other characters become single underscores."""
    name = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_") or "input"
    return name if not name[0].isdigit() else f"d{name}"


@dataclass
class DimTable:
    """Gives out dimensions while a graph's inputs are read, and remembers where each one came from.

    given    ranges by dimension name (or by the model's own `dim_param`): what the caller says
    derived  ranges that the graph implies (`refine`), by dimension name; they win over `given`
    """

    given: Mapping[str, DimRange]
    derived: Mapping[str, DimRange] = field(default_factory=dict)
    ranges: dict[str, DimRange] = field(default_factory=dict)
    by_user: dict[str, bool] = field(default_factory=dict)
    _by_param: dict[str, str] = field(default_factory=dict)
    _used: set[str] = field(default_factory=set)

    def size(self, param: str, input_name: str, axis: int, rank: int) -> Expr:
        """The size of an unknown axis of an input."""
        name = self._by_param.get(param)
        if name is None:
            name = self._fresh(param, input_name, axis)
            if param not in _DISTINCT:
                self._by_param[param] = name
            self.ranges[name] = self._range(name, param, axis, rank)
        r = self.ranges[name]
        return affine.dim(name, r.lo, r.hi, r.multiple)

    def _fresh(self, param: str, input_name: str, axis: int) -> str:
        usable = _IDENTIFIER.fullmatch(param) and not _RESERVED.fullmatch(param)
        base = param if usable else f"{clean_name(input_name)}_{axis}"
        name, n = base, 1
        while name in self.ranges:
            n += 1
            name = f"{base}_{n}"
        return name

    def _range(self, name: str, param: str, axis: int, rank: int) -> DimRange:
        key = name if name in self.given else param if param and param in self.given else None
        self.by_user[name] = key is not None
        if key is not None:
            self._used.add(key)
        if name in self.derived:
            return self.derived[name]
        default = FIRST_AXIS if axis == 0 and rank > 1 else SAMPLES_AXIS if rank <= 2 else OTHER_AXES
        return self.given[key] if key is not None else DEFAULT_RANGES[default]

    def check_all_used(self) -> None:
        """Raise InputError when the caller gave a range for a dimension that the model does not have."""
        for key in self.given:
            if key not in self._used:
                known = ", ".join(self.ranges) or "none: all its sizes are fixed"
                raise InputError(f"the model has no dimension {key!r}", remedy=f"It has {known}")


def dim_of(e: Expr) -> Dim | None:
    """The one dimension that e mentions, or None when it mentions none or several."""
    found = sorted(affine.dims(e), key=lambda d: d.name)
    return found[0] if len(found) == 1 else None
