"""Errors at the command line: one clear message on standard error, and an exit code that says whose fault.

0  done                       3  the device: driver, adapter, C compiler
1  the model, the bundle,     4  a bug of tang-edge: please report it
   or what you passed
2  wrong usage of the command
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.markup import escape
from typer.core import TyperGroup

from tang_edge.cli.console import err, print_json
from tang_edge.errors import BundleError, CompilerBug, DeviceError, InputError, TangError

OK, USER, USAGE, DEVICE, BUG = range(5)
# packages of the extra `compiler`, as Python spells them in an ImportError
_COMPILER_PACKAGES = ("onnx", "google", "safetensors", "jsonschema")
_REPORT = "Please report this, with the model if you can share it and the output of 'tang-edge doctor'."


def exit_code(error: BaseException) -> int:
    """The exit code for an error."""
    if isinstance(error, CompilerBug):
        return BUG
    if isinstance(error, DeviceError):
        return DEVICE
    return USER if isinstance(error, (TangError, OSError)) else BUG


@contextmanager
def needs_compiler() -> Iterator[None]:
    """Around the import of the compiler: says which extra is missing.

    Raises:
        InputError: a package of the extra is not installed.
    """
    try:
        yield
    except ImportError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _COMPILER_PACKAGES:
            raise
        raise InputError(
            f"this command needs the compiler, and the package {missing!r} is not installed",
            remedy="Run: pip install 'tang-edge[compiler]'",
        ) from error


@contextmanager
def naming(bundle: Path) -> Iterator[None]:
    """Around work with a bundle: its errors name the file, not only the member."""
    try:
        yield
    except BundleError as error:
        if error.where.startswith(str(bundle)):
            raise
        where = f"{bundle}: {error.where}" if error.where else str(bundle)
        raise BundleError(error.message, where=where, remedy=error.remedy) from error


class Commands(TyperGroup):
    """The group of commands; turns what they raise into a message and an exit code."""

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override, unused-ignore]
        """Run the command that was called."""
        ctx.obj = {"json": False, "debug": bool(ctx.params.get("debug"))}
        try:
            return super().invoke(ctx)  # type: ignore[arg-type, unused-ignore]
        except (TangError, OSError) as error:
            raise typer.Exit(fail(error, ctx.obj)) from error
        except Exception as error:
            if _is_typers(error):
                raise
            raise typer.Exit(fail(error, ctx.obj)) from error


def _is_typers(error: Exception) -> bool:
    # usage errors, Exit and Abort: typer (or click, which older versions of it build on) handles them itself
    return type(error).__module__.partition(".")[0] in ("typer", "click")


def fail(error: Exception, context: dict[str, Any]) -> int:
    """Say what went wrong, with --json also as an object on standard output; returns the exit code."""
    code = exit_code(error)
    if context.get("debug"):
        traceback.print_exception(error, file=sys.stderr)
    if context.get("json"):
        print_json({"error": as_json(error, code)})
    err.print(f"[bold red]error:[/] {escape(message(error))}", soft_wrap=True, highlight=False)
    return code


def message(error: Exception) -> str:
    """The error in words."""
    if isinstance(error, CompilerBug):
        return f"a bug of tang-edge: {error}\n{_REPORT}"
    if isinstance(error, TangError):
        return str(error)
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error)
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{frame.filename}:{frame.lineno}"
    words = f"{type(error).__name__}: {error}"
    return f"a bug of tang-edge: {words} ({place}; 'tang-edge --debug' shows the traceback)\n{_REPORT}"


def as_json(error: Exception, code: int) -> dict[str, Any]:
    """The error for programs."""
    parts = {"where": error.where, "message": error.message, "remedy": error.remedy} if isinstance(error, TangError) else {}
    return {"kind": type(error).__name__, "message": message(error), **parts, "exit_code": code}
