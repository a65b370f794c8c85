"""Where the commands print: results to standard output, progress and errors to standard error."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

# a pipe or a file has no width: tables get room, instead of the 80 columns that rich assumes
out = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 200)
err = Console(stderr=True, highlight=False)

Stage = Callable[[str, int, int], None]


def _note_json(ctx: typer.Context, value: bool) -> bool:
    root = ctx.find_root()
    if value and isinstance(root.obj, dict):
        root.obj["json"] = True
    return value


AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.", callback=_note_json)]


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON object on standard output. NaN and infinities, which JSON has not, become strings."""
    print(json.dumps(_plain(value), indent=2, ensure_ascii=False, allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


@contextmanager
def progress(quiet: bool = False) -> Iterator[Stage]:
    """A progress display on standard error, on a terminal only; the callback takes (what, done, total)."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TimeElapsedColumn(),
    )
    bar = Progress(*columns, console=err, transient=True, disable=quiet or not err.is_terminal)
    with bar:
        task = bar.add_task("", total=None)

        def stage(what: str, done: int, total: int) -> None:
            # a stage of one part has nothing to show but that it runs
            bar.update(task, description=what, completed=done, total=total if total > 1 else None)

        yield stage


def table(*headings: str, right: tuple[str, ...] = ()) -> Table:
    """A plain table; the columns named in `right` hold numbers."""
    made = Table(box=None, pad_edge=False, header_style="bold", show_edge=False, padding=(0, 2, 0, 0))
    for h in headings:
        made.add_column(h, justify="right" if h in right else "left", overflow="fold")
    return made


def size(count: int) -> str:
    """Bytes for people: '1.2 MiB'."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError(count)


def duration(seconds: float) -> str:
    """Seconds for people: '3.1 ms'."""
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "µs")):
        if seconds * factor >= 1 or unit == "µs":
            return f"{seconds * factor:.3g} {unit}"
    raise AssertionError(seconds)


class Watch:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds so far."""
        return time.perf_counter() - self._start
