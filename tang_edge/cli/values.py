"""Options of the form name=value, and what stands on their right side."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import typer

_RANGE = re.compile(r"(\d+)(?:\.\.(\d+)(?::(\d+))?)?")


def pairs(option: str, given: Iterable[str]) -> dict[str, str]:
    """``name=value`` texts as a dict; a name that occurs twice or a text without ``=`` is a usage error."""
    out: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not name or not equals or not value:
            raise typer.BadParameter(f"{text!r} is not of the form name=value", param_hint=option)
        if name in out:
            raise typer.BadParameter(f"{name!r} is given twice", param_hint=option)
        out[name] = value
    return out


def sizes(option: str, given: Iterable[str]) -> dict[str, int]:
    """``name=48`` texts, separated by commas or not, as sizes."""
    out: dict[str, int] = {}
    for name, text in pairs(option, (part for g in given for part in commas([g]))).items():
        if not text.isdecimal():
            raise typer.BadParameter(f"{name}={text}: the size must be a number", param_hint=option)
        out[name] = int(text)
    return out


def ranges(option: str, given: Iterable[str]) -> dict[str, tuple[int, int, int]]:
    """``name=lo..hi[:multiple]`` or ``name=48`` as (lo, hi, multiple)."""
    out: dict[str, tuple[int, int, int]] = {}
    for name, text in pairs(option, given).items():
        found = _RANGE.fullmatch(text)
        if not found:
            raise typer.BadParameter(f"{name}={text}: give {name}=48, {name}=1..64 or {name}=32..2048:32", param_hint=option)
        lo, hi, multiple = found.groups()
        out[name] = (int(lo), int(hi or lo), int(multiple or 1))
    return out


def commas(given: Sequence[str]) -> list[str]:
    """Values given several times or separated by commas, as one list."""
    return [part.strip() for g in given for part in g.split(",") if part.strip()]
