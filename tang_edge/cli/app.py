"""The application: its commands in the order in which one meets them."""

from __future__ import annotations

from typing import Annotated

import typer

from tang_edge import __version__
from tang_edge.cli import bisect, demo, doctor, explain, inspect, pack, run
from tang_edge.cli.failure import Commands

app = typer.Typer(
    name="tang-edge",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Derive an ONNX model into kernels, pack them into one bundle, run it on WebGPU or generated C.",
    epilog="Exit codes: 0 done, 1 the model, bundle or input, 2 usage, 3 the device, 4 a bug of tang-edge.",
)


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"tang-edge {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Options before the command; `failure.Commands` reads --debug."""


for module in (pack, run, inspect, explain, bisect, doctor, demo):
    app.command(module.__name__.rpartition(".")[2], epilog=module.EXAMPLE)(module.command)


def main() -> None:
    """The entry point `tang-edge`."""
    app()
