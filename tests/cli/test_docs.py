"""docs/cli.md says what the commands say, and no option lacks its words."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import typer

from tang_edge.cli import app

DOCS = Path(__file__).resolve().parents[2] / "docs"


def _maker():
    spec = importlib.util.spec_from_file_location("make_cli", DOCS / "make_cli.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date():
    assert (DOCS / "cli.md").read_text(encoding="utf-8") == _maker().page(), "run: python docs/make_cli.py"


def test_every_command_has_examples_and_every_option_words():
    commands = typer.main.get_command(app).commands
    assert set(commands) == {"pack", "run", "inspect", "explain", "bisect", "doctor", "demo"}
    for name, command in commands.items():
        assert f"tang-edge {name}" in command.epilog
        assert all(p.help for p in command.params), name
        assert any("--json" in p.opts for p in command.params), name
