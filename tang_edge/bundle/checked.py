"""Reading untrusted JSON values: every accessor checks the type and names the place where it does not fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from tang_edge.bundle import format as fmt
from tang_edge.bundle.expr import Expr, is_int, validate
from tang_edge.errors import BundleError

T = TypeVar("T")

_MAX_ITEMS = 1_000_000
_BAD = "The bundle was made by a faulty or different packer: pack it again."


@dataclass(frozen=True, slots=True)
class At:
    """A JSON value and its path; every accessor checks the type and raises BundleError with the path."""

    value: object
    path: str

    def fail(self, why: str) -> NoReturn:
        """Raise BundleError for this place."""
        raise BundleError(why, where=self.path, remedy=_BAD)

    def obj(self, required: str, optional: str = "") -> dict[str, At]:
        """The members of an object that has all the required keys and no unknown one."""
        if not isinstance(self.value, dict):
            self.fail("must be an object")
        need, may = set(required.split()), set(optional.split())
        have = {k for k in self.value if not str(k).startswith("x-")}
        if need - have:
            self.fail(f"lacks {', '.join(sorted(need - have))}")
        if have - need - may:
            self.fail(f"has unknown keys {', '.join(sorted(map(str, have - need - may)))[:200]}")
        return {k: At(self.value[k], f"{self.path}.{k}") for k in have}

    def items(self) -> dict[str, At]:
        """The members of an object with free keys."""
        if not isinstance(self.value, dict) or not all(isinstance(k, str) for k in self.value):
            self.fail("must be an object")
        return {k: At(v, f"{self.path}.{k}") for k, v in self.value.items()}

    def array(self, each: Callable[[At], T], length: int | None = None) -> tuple[T, ...]:
        """The elements of an array, each read by ``each``."""
        if not isinstance(self.value, (list, tuple)) or len(self.value) > _MAX_ITEMS:
            self.fail("must be an array of reasonable length")
        if length is not None and len(self.value) != length:
            self.fail(f"must have {length} elements, has {len(self.value)}")
        return tuple(each(At(v, f"{self.path}[{i}]")) for i, v in enumerate(self.value))

    def text(self) -> str:
        """A string."""
        if not isinstance(self.value, str) or len(self.value) > 100_000:
            self.fail("must be a string")
        return self.value

    def name(self) -> str:
        """A string that is not empty."""
        text = self.text()
        if not text:
            self.fail("must not be empty")
        return text

    def one_of(self, values: tuple[str, ...] | Mapping[str, Any]) -> str:
        """One of the given strings."""
        if self.value not in tuple(values):
            self.fail(f"must be one of {', '.join(values)}")
        return self.text()

    def integer(self, low: int = 0, high: int = 2**53 - 1) -> int:
        """An integer in the range."""
        if not is_int(self.value) or not low <= self.value <= high:  # type: ignore[operator]
            self.fail(f"must be an integer in {low}..{high}")
        return self.value  # type: ignore[return-value]

    def boolean(self) -> bool:
        """A boolean."""
        if not isinstance(self.value, bool):
            self.fail("must be true or false")
        return self.value

    def number(self) -> float:
        """A finite number that is not negative."""
        good = is_int(self.value) or isinstance(self.value, float)
        if not good or not math.isfinite(self.value) or self.value < 0:  # type: ignore[arg-type,operator]
            self.fail("must be a finite number, not negative")
        return float(self.value)  # type: ignore[arg-type]

    def member(self) -> str:
        """A safe member name."""
        text = self.text()
        fmt.check_member_name(text)
        return text

    def expr(self, dims: frozenset[str]) -> Expr:
        """A size expression over the dimensions."""
        validate(self.value, dims, self.path)
        return self.value  # type: ignore[return-value]
