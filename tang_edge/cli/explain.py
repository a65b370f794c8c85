"""`tang-edge explain`: how a model becomes kernels, pass by pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from tang_edge.cli import console, kernels, values
from tang_edge.cli.failure import needs_compiler
from tang_edge.cli.options import AllowNan, Dims, Model, Targets
from tang_edge.errors import InputError

if TYPE_CHECKING:
    from tang_edge.ir.tensor import Program
    from tang_edge.onnx_in import Imported
    from tang_edge.rewrite.pipeline import Pass

EXAMPLE = """\b
Examples:
  tang-edge explain model.onnx
  tang-edge explain model.onnx --pass fuse
  tang-edge explain model.onnx --kernels --bind conv_3 --target cpu-x86-64-v3"""


@dataclass(frozen=True, slots=True)
class Stage:
    """A program after a pass (the first one: as imported), and its counts."""

    name: str
    doc: str
    binds: int
    comprehensions: int
    reads: int
    constants: int


def command(
    model: Model,
    pass_name: Annotated[
        str | None, typer.Option("--pass", metavar="NAME", help="Print the program before and after this pass.")
    ] = None,
    text: Annotated[bool, typer.Option("--text", help="Print the program after every pass.")] = False,
    bind: Annotated[str | None, typer.Option("--bind", metavar="NAME", help="Only this bind, in texts and kernels.")] = None,
    with_kernels: Annotated[
        bool, typer.Option("--kernels", help="Print the kernels: schedule moves and text, for each device class.")
    ] = False,
    target: Targets = None,
    dim: Dims = None,
    allow_nan: AllowNan = False,
    as_json: console.AsJson = False,
) -> None:
    """Show how a model becomes kernels: counts after each pass, and the model nodes of each kernel.

    The text form is described in ARCHITECTURE.md.
    """
    with needs_compiler():
        from tang_edge import onnx_in
    given = {name: onnx_in.DimRange(*r) for name, r in values.ranges("--dim", dim or []).items()}
    with console.progress(as_json) as stage:
        stage("import", 0, 1)
        imported = onnx_in.import_model(model, dim_ranges=given, allow_nan=allow_nan)
        history = passes(imported.program, stage)
        made = kernels.of(history[-1][1], values.commas(target or []), stage) if with_kernels else []
    _check(history, pass_name, bind)
    if as_json:
        console.print_json(_json(imported, history, made, bind))
        return
    _show_passes(imported, history)
    if text or pass_name or (bind and not with_kernels):
        _show_texts(history, pass_name, bind)
    elif not with_kernels:
        _show_binds(history[-1][1])
    kernels.show(made, bind)


History = Sequence[tuple[Stage, "Program"]]


def passes(program: Program, progress: console.Stage) -> list[tuple[Stage, Program]]:
    """The program as imported and after each pass, with counts."""
    with needs_compiler():
        from tang_edge.rewrite import pipeline
    out = [(count("import", "as read from the model", program), program)]

    def observe(p: Pass, before: Program, after: Program) -> None:
        progress(p.name, len(out), len(pipeline.PASSES))
        out.append((count(p.name, p.doc, after), after))

    pipeline.optimize(program, observe=observe)
    return out


def count(name: str, doc: str, program: Program) -> Stage:
    """The counts of a program: binds, distinct comprehensions and reads of each bind, constants."""
    from tang_edge.ir import scalar

    binds = program.binds()
    folds = sum(len(scalar.comprehensions(b.expr)) for b in binds)
    reads = sum(len(scalar.reads(b.expr)) for b in binds)
    return Stage(name, doc, len(binds), folds, reads, len(program.constants))


def _check(history: History, pass_name: str | None, bind: str | None) -> None:
    names = [s.name for s, _ in history]
    if pass_name is not None and pass_name not in names:
        raise InputError(f"there is no pass {pass_name!r}", remedy=f"The passes are: {', '.join(names)}.")
    if bind is not None and not any(b.name == bind for _, p in history for b in p.binds()):
        last = ", ".join(b.name for b in history[-1][1].binds()[:20])
        raise InputError(f"no program has a bind {bind!r}", remedy=f"The last one has: {last}, ...")


def _text(program: Program, bind: str | None) -> str:
    from tang_edge.ir.text import Printer, print_program

    if bind is None:
        return print_program(program)
    found = [b for b in program.binds() if b.name == bind]
    return "\n".join(line for b in found for line in Printer().bind(b)) or f"# no bind {bind} here"


def _json(imported: Imported, history: History, made: kernels.All, bind: str | None) -> dict[str, Any]:
    last = history[-1][1]
    return {
        "dims": {name: str(r) for name, r in imported.ranges.items()},
        "notes": list(imported.notes),
        "passes": [asdict(s) for s, _ in history],
        "binds": [
            {"name": b.name, "type": str(b.type), "origin": [str(o) for o in b.origin], "text": _text(last, b.name)}
            for b in last.binds()
            if bind in (None, b.name)
        ],
        "kernels": {name: [asdict(k) for k in found if bind in (None, k.bind)] for name, found in made},
    }


def _show_passes(imported: Imported, history: History) -> None:
    for name, r in imported.ranges.items():
        console.out.print(f"dimension  {escape(name)}: {r}")
    for note in imported.notes:
        console.out.print(f"note       {escape(note)}")
    rows = console.table(
        "pass",
        "binds",
        "comprehensions",
        "reads",
        "constants",
        "what it does",
        right=("binds", "comprehensions", "reads", "constants"),
    )
    for s, _ in history:
        rows.add_row(s.name, str(s.binds), str(s.comprehensions), str(s.reads), str(s.constants), f"[dim]{escape(s.doc)}[/]")
    console.out.print(rows)
    console.out.print()


def _show_texts(history: History, pass_name: str | None, bind: str | None) -> None:
    for k, (s, program) in enumerate(history):
        if pass_name is None or s.name == pass_name:
            if pass_name is not None and k:
                _show_text(f"before {s.name}", history[k - 1][1], bind)
            _show_text(f"after {s.name}", program, bind)


def _show_text(title: str, program: Program, bind: str | None) -> None:
    console.out.print(f"[bold]# {escape(title)}[/]")
    print(_text(program, bind))


def _show_binds(program: Program) -> None:
    """The final binds with the model nodes they came from."""
    rows = console.table("bind", "type", "model nodes")
    for b in program.binds():
        rows.add_row(escape(b.name), escape(str(b.type)), escape(nodes(b.origin)))
    console.out.print(rows)
    console.out.print("\nMore: --bind NAME, --pass NAME, --text, --kernels")


def nodes(origin: Sequence[object], most: int = 4) -> str:
    """Model nodes for a table: the first few."""
    shown = ", ".join(map(str, origin[:most]))
    return shown + (f" and {len(origin) - most} more" if len(origin) > most else "")
