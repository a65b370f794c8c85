"""The compiler as a page calls it: a model and options in, a bundle out, events on the way.

Everything that crosses to JavaScript is JSON text, except the files: they lie in the interpreter's file system. Errors come
back as data, because a page shows them.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tang_edge.compiler import pack
from tang_edge.errors import CompilerBug, InputError, TangError
from tang_edge.ir.tensor import Program
from tang_edge.ir.text import excerpt, print_program
from tang_edge.observe import Observer
from tang_edge.onnx_in import DimRange
from tang_edge.rewrite.pipeline import Pass

Told = Callable[[str], None]
TEXT = 200_000  # characters of a program that go along with an event; the whole text is there when asked for
MOST_BYTES = 1 << 30  # of a model: it is there four times in 4 GiB of memory (file, message, float64 weights, bundle)


class Watcher(Observer):
    """Tells the events of a compile as JSON, and keeps the programs between passes."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self._last = ("", -1)
        self.programs: dict[str, Program] = {}

    def _tell(self, **event: Any) -> None:
        self._told(json.dumps(event))

    def stage(self, name: str, done: int, total: int) -> None:
        """Each stage and whole percent once: a message costs more than most steps."""
        percent = 100 * done // max(1, total)
        if (name, percent) != self._last:
            self._last = (name, percent)
            self._tell(type="stage", name=name, done=done, total=total)

    def imported(self, program: Program) -> None:
        """The model as read counts as the first pass."""
        self._program("import", "as read from the model", program)

    def rewritten(self, by: Pass, before: Program, after: Program) -> None:
        """The program after a pass; a pass that changed nothing says so."""
        self._program(by.name, by.doc, after, changed=after.items != before.items)

    def _program(self, name: str, doc: str, program: Program, changed: bool = True) -> None:
        self.programs[name] = program
        event = {"type": "pass", "name": name, "doc": doc, "binds": len(program.binds()), "changed": changed}
        if changed:
            event["after"], event["whole"] = excerpt(program, TEXT)
        self._tell(**event)

    def kernel(self, variant: str, name: str, origin: Sequence[str], text: str) -> None:
        """A kernel with its text: a few kilobytes."""
        self._tell(type="kernel", variant=variant, name=name, origin=list(origin), text=text)


class _Kept:
    """The programs of the latest compile, for texts on demand."""

    programs: Mapping[str, Program] = {}


def text(name: str) -> str:
    """The whole text of the program after a pass of the latest compile; empty for a pass that it did not come to."""
    return print_program(_Kept.programs[name]) if name in _Kept.programs else ""


def compile_file(path: str, out: str, options: str, told: Told) -> str:
    """Compile the model at `path` into a bundle at `out`; `{"report": ...}` or `{"error": ...}` as JSON.

    Options: name, dims ({name: [lo, hi, multiple]}), targets, states, golden, allowNaN; see `compiler.pack`.
    """
    _Kept.programs = {}
    watcher = Watcher(told)
    try:
        report = _pack(Path(path), Path(out), json.loads(options), watcher)
    except (Exception, KeyboardInterrupt) as problem:
        return json.dumps({"error": as_data(problem)})
    finally:
        _Kept.programs = watcher.programs
    return json.dumps({"report": report})


def _pack(path: Path, out: Path, options: Mapping[str, Any], observer: Observer) -> dict[str, Any]:
    size = path.stat().st_size
    if size > MOST_BYTES:
        remedy = "Compile it with the command line: tang-edge pack"
        raise InputError(f"has {size:,} bytes, more than a page can compile ({MOST_BYTES:,})", where=path.name, remedy=remedy)
    states = options.get("states")
    report = pack(
        path,
        out,
        targets=tuple(options.get("targets") or ("webgpu",)),
        dims={name: DimRange(*r) for name, r in (options.get("dims") or {}).items()},
        states=None if states is None else tuple(states),
        golden=bool(options.get("golden", True)),
        allow_nan=bool(options.get("allowNaN", False)),
        remember=False,
        observer=observer,
    )
    return asdict(report)


def as_data(problem: BaseException) -> dict[str, str]:
    """An error as a page shows it: kind, what, where, remedy; `detail` is for a report of a bug."""
    if isinstance(problem, TangError) and not isinstance(problem, CompilerBug):
        where, remedy = problem.where, problem.remedy
        return {"kind": type(problem).__name__, "message": problem.message, "where": where, "remedy": remedy, "detail": ""}
    if isinstance(problem, KeyboardInterrupt):
        return {"kind": "Cancelled", "message": "the compile was cancelled", "where": "", "remedy": "", "detail": ""}
    if isinstance(problem, MemoryError):
        remedy = "Close other pages, or compile it with the command line: tang-edge pack"
        return {"kind": "OutOfMemory", "message": "the page has no memory left", "where": "", "remedy": remedy, "detail": ""}
    detail = "".join(traceback.format_exception(problem))
    remedy = "Please report it, with the model if you may"
    return {
        "kind": "CompilerBug",
        "message": str(problem) or type(problem).__name__,
        "where": "",
        "remedy": remedy,
        "detail": detail,
    }
