"""Writes docs/cli.md from the commands themselves: `python docs/make_cli.py`. A test compares (tests/cli/test_docs.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from tang_edge.cli import app

HEAD = """\
# The command line

<!-- Made by docs/make_cli.py from the commands' own help: change the text there, then run it again. -->

    pip install 'tang-edge[compiler]'     # everything; `pip install tang-edge` is enough for run, inspect and doctor

Results go to standard output, progress and errors to standard error. With `--json` a command prints one JSON object;
an error is then one too, `{"error": {"kind", "message", "where", "remedy", "exit_code"}}`. NaN and infinities, which
JSON has not, are strings.

| exit code | whose fault |
|---|---|
| 0 | done |
| 1 | the model, the bundle, or what you passed: the message says what to change |
| 2 | the command was used wrongly |
| 3 | the device: no adapter, no C compiler, or it failed |
| 4 | tang-edge: please report it (`bisect` also exits with 4 when a tensor departs) |
"""


def page() -> str:
    """The page as it should be."""
    group: Any = typer.main.get_command(app)
    top = "\n".join(_row(p) for p in group.params if p.name != "help")
    parts = [HEAD, f"Before the command:\n\n{_HEADING}\n{top}\n"]
    return "\n".join([*parts, *(_command(name, c) for name, c in group.commands.items())])


_HEADING = "| option | what it does |\n|---|---|"


def _command(name: str, command: Any) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and p.name != "help"]
    usage = " ".join(["tang-edge", name, *(p.metavar for p in arguments), "[options]"])
    rows = "\n".join(_row(p) for p in options)
    more = command.epilog.replace("\b\n", "").strip()
    text = "\n\n".join(" ".join(part.split()) for part in command.help.split("\n\n"))
    block = "\n".join(f"    {line}".rstrip() for line in more.splitlines())
    return f"## {name}\n\n    {usage}\n\n{text}\n\n{_HEADING}\n{rows}\n\n{block}\n"


def _row(p: Any) -> str:
    spelled = ", ".join(f"`{o}`" for o in p.opts)
    value = f" `{p.metavar}`" if p.metavar else ""
    none = p.default is None or isinstance(p.default, bool) or callable(p.default)
    default = "" if none else f" Default: {p.default}."
    words = f"{p.help}{default}".replace("|", "\\|")
    return f"| {spelled}{value} | {words} |".replace("auto|webgpu|c", "auto\\|webgpu\\|c")


if __name__ == "__main__":
    (Path(__file__).parent / "cli.md").write_text(page(), encoding="utf-8")
