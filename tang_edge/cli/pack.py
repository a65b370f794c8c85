"""`tang-edge pack`: compile an ONNX model into a bundle."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from tang_edge.bundle.read import open_bundle
from tang_edge.cli import console, values
from tang_edge.cli.failure import needs_compiler
from tang_edge.cli.inspect import interface, show_interface
from tang_edge.cli.options import AllowNan, Dims, Model, Targets

if TYPE_CHECKING:
    from tang_edge.compiler import PackReport

EXAMPLE = """\b
Examples:
  tang-edge pack model.onnx
  tang-edge pack ocr.onnx -o ocr.tang --dim width=32..1280:32 --dim batch=1
  tang-edge pack model.onnx --target browser,laptop
  tang-edge pack model.onnx --target robot-soc --prebuild aarch64-linux-gnu
  tang-edge pack gru.onnx --state hidden_in=hidden_out"""

Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="OUT.tang",
        help="The bundle to make; if not given the model's name with .tang, in this folder.",
    ),
]
States = Annotated[
    list[str] | None,
    typer.Option(
        "--state",
        metavar="IN=OUT",
        help="An input that a session feeds from this output of the run before. Repeatable. "
        "If not given, pairs are found by name and type; 'none' for none.",
    ),
]
Prebuild = Annotated[
    list[str] | None,
    typer.Option(
        "--prebuild",
        metavar="TRIPLES",
        help="Also compile the C, so that no compiler is needed there: host, aarch64-linux-gnu, x86_64-windows-gnu, "
        "..., separated by commas. Other machines than this one need the extra 'c'.",
    ),
]
Records = Annotated[
    Path | None,
    typer.Option(
        "--records",
        metavar="FILE.json",
        help="Measured choices among the alternates, which go first where they know a kernel (docs/bundle.md).",
    ),
]
NoSelfTest = Annotated[
    bool, typer.Option("--no-self-test", help="Leave out the vectors with which a device is tested at load.")
]


def command(
    model: Model,
    output: Output = None,
    target: Targets = None,
    dim: Dims = None,
    state: States = None,
    no_self_test: NoSelfTest = False,
    prebuild: Prebuild = None,
    records: Records = None,
    allow_nan: AllowNan = False,
    as_json: console.AsJson = False,
) -> None:
    """Compile an ONNX model into a bundle.

    The bundle is written at once when all is done, or not at all.
    """
    with needs_compiler():
        from tang_edge import compiler
        from tang_edge.observe import Stages
        from tang_edge.onnx_in import DimRange
        from tang_edge.schedule.records import load as load_records
    given = {name: DimRange(*r) for name, r in values.ranges("--dim", dim or []).items()}
    path = output or Path(f"{model.stem}.tang")
    watch = console.Watch()
    with console.progress(as_json) as stage:
        report = compiler.pack(
            model,
            path,
            targets=values.commas(target or []) or compiler.DEFAULT_TARGETS,
            dims=given,
            states=_states(state),
            prebuild=values.commas(prebuild or []),
            records=load_records(records) if records is not None else (),
            golden=not no_self_test,
            allow_nan=allow_nan,
            observer=Stages(stage),
        )
    with open_bundle(path) as bundle:
        ports = interface(bundle.plan)
    if as_json:
        console.print_json({**asdict(report), **ports, "seconds": round(watch.seconds, 3)})
    else:
        _show(report, ports, watch.seconds)


def _states(given: list[str] | None) -> tuple[str, ...] | None:
    if not given:
        return None
    return () if given == ["none"] else tuple(f"{i}={o}" for i, o in values.pairs("--state", given).items())


def _show(report: PackReport, ports: dict[str, Any], seconds: float) -> None:
    out = console.out
    out.print(f"[bold]{escape(report.path)}[/]  {console.size(report.bytes)}, packed in {console.duration(seconds)}")
    show_interface(ports)
    for note in report.notes:
        out.print(f"note        {escape(note)}")
    out.print()
    rows = console.table("variant", "steps", "kernels", "prologue", "text", right=("steps", "kernels", "prologue", "text"))
    for v in report.variants:
        rows.add_row(*_row(v))
    out.print(rows)
    out.print(f"\nnext: tang-edge run {escape(report.path)}")


def _row(v: dict[str, Any]) -> tuple[str, ...]:
    return v["id"], str(v["steps"]), str(v["kernels"]), str(v["prologue"]), console.size(v["text_bytes"])
