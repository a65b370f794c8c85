"""The kernels of a model for `explain`: for each device class the schedule moves and the text of every bind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from tang_edge.cli import console
from tang_edge.cli.failure import needs_compiler

if TYPE_CHECKING:
    from tang_edge.compiler import Made
    from tang_edge.ir.tensor import Bind, Program
    from tang_edge.schedule.choose import Options


@dataclass(frozen=True, slots=True)
class Kernel:
    """One way to compute a bind on a device class. `moves` has a list for each nest of the kernel, in the order tried."""

    bind: str
    origin: tuple[str, ...]
    tag: str
    kernel: str
    moves: tuple[tuple[str, ...], ...]
    text: str


All = Sequence[tuple[str, Sequence[Kernel]]]


def of(program: Program, targets: Sequence[str], progress: console.Stage) -> list[tuple[str, list[Kernel]]]:
    """The kernels of an optimised program by variant.

    Raises:
        TargetLimit: a target is not known.
    """
    with needs_compiler():
        from tang_edge import compiler
        from tang_edge.schedule import limits
    classes = limits.classes_of(tuple(targets) or compiler.DEFAULT_TARGETS)
    out = []
    for k, device in enumerate(classes):
        progress(f"schedule {device.name}", k, len(classes))
        made = compiler.build_variant(program, device)
        out.append((str(made.plan["id"]), _kernels(made)))
    return out


def _kernels(made: Made) -> list[Kernel]:
    out = []
    binds = {b.name: b for b in made.variant.program.binds()}
    for step in _steps(made.plan["steps"]):
        bind = binds[step["name"]]
        options = _options(made, bind)
        for alternate, (tag, scheduled) in zip(step["alternates"], options, strict=True):
            moves = tuple(n.log for n in scheduled.nests)
            for d in alternate["dispatches"]:
                text = text_of(made.text, d["kernel"])
                out.append(Kernel(bind.name, tuple(step["origin"]), tag, d["kernel"], moves, text))
    return out


def _steps(steps: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The steps of a plan in preorder, without the control around them."""
    out: list[dict[str, Any]] = []
    for s in steps:
        control = s.get("if") or s.get("loop")
        inside = [x for part in ("then", "else", "body") for x in control.get(part, ())] if control else []
        out += _steps(inside) if control else [s]
    return out


def _options(made: Made, bind: Bind) -> Options:
    """The schedules of a bind, made again: the scheduler is a pure function of these arguments."""
    from tang_edge.rewrite.constants import is_prologue
    from tang_edge.schedule import choose

    v = made.variant
    constants = {c.name for c in v.program.constants} | is_prologue(v.program)
    return choose.Defaults()(bind, v.placed, constants, v.limits)


def text_of(library: str, kernel: str) -> str:
    """The text of one kernel in a variant's source: a WGSL section, or a C function."""
    section = library.partition(f"//@kernel {kernel}\n")[2]
    if section:
        return section.partition("//@kernel ")[0].rstrip()
    function = f"static void {kernel}("
    body = library.partition(function)[2].partition("\n}\n")[0]
    return f"{function}{body}\n}}" if body else ""


def show(made: All, bind: str | None) -> None:
    """Print the kernels, each text once: equal kernels are one."""
    for variant, found in made:
        shown: set[str] = set()
        console.out.print(f"[bold]== {escape(variant)}[/]")
        for k in found:
            if bind not in (None, k.bind):
                continue
            origin = f" from {', '.join(k.origin)}" if k.origin else ""
            console.out.print(f"[bold]{escape(k.bind)}[/] ({k.tag}): {k.kernel}{escape(origin)}")
            for n, log in enumerate(k.moves):
                console.out.print(f"  {'otherwise ' if n else ''}{escape(' '.join(log)) or 'no moves'}", style="dim")
            print(k.text if k.kernel not in shown else f"  (the text of {k.kernel} is above)")
            shown.add(k.kernel)
