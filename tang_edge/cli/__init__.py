"""The command line: one module a command. Commands that compile import the compiler when they are called."""

from __future__ import annotations

from tang_edge.cli.app import app, main

__all__ = ["app", "main"]
