"""The operator table: which function reads which operator, from which opset on.

An *operator* is a function that turns a node into binds. A *folder* computes a node's outputs while the model
is read, from inputs that are known then; it is tried first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tang_edge.onnx_in.node import Node

OperatorFn = Callable[["Node"], None]
FolderFn = Callable[..., Any]

OPERATORS: Final[dict[str, list[tuple[int, OperatorFn]]]] = {}
FOLDERS: Final[dict[str, FolderFn]] = {}
DOMAINS: Final = ("", "ai.onnx")


def operator(*names: str, since: int = 1) -> Callable[[OperatorFn], OperatorFn]:
    """Register a function as the reader of these operators for opsets >= since (until a later registration)."""

    def register(fn: OperatorFn) -> OperatorFn:
        for name in names:
            OPERATORS.setdefault(name, []).append((since, fn))
            OPERATORS[name].sort(key=lambda entry: entry[0])
        return fn

    return register


def folder(*names: str) -> Callable[[FolderFn], FolderFn]:
    """Register a function (node, *arrays) -> array(s) that computes these operators on known inputs."""

    def register(fn: FolderFn) -> FolderFn:
        FOLDERS.update(dict.fromkeys(names, fn))
        return fn

    return register


def find(name: str, domain: str, opset: int) -> OperatorFn | None:
    """The reader of an operator at an opset, or None."""
    if domain not in DOMAINS:
        return None
    fitting = [fn for since, fn in OPERATORS.get(name, ()) if since <= opset]
    return fitting[-1] if fitting else None


class NotFoldable(Exception):
    """Raised by a folder: these inputs cannot be computed while the model is read; the operator is used
    instead.
    """
