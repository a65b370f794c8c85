"""tang-edge: models derived into kernels, packed into portable bundles, run by a thin runtime.

``load(path)`` opens a bundle and gives a :class:`tang_edge.runtime.session.Model`. Everything heavier than
the standard library is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tang_edge.errors import (
    BundleError,
    CompilerBug,
    DeviceError,
    InputError,
    TangError,
    TargetLimit,
    UnsupportedModel,
)

if TYPE_CHECKING:
    from tang_edge.runtime import Model, load

__version__ = "0.1.0"

__all__ = [
    "BundleError",
    "CompilerBug",
    "DeviceError",
    "InputError",
    "Model",
    "TangError",
    "TargetLimit",
    "UnsupportedModel",
    "__version__",
    "load",
]


def __getattr__(name: str) -> Any:
    if name in ("load", "Model"):
        from tang_edge import runtime

        return getattr(runtime, name)
    raise AttributeError(f"module 'tang_edge' has no attribute {name!r}")
