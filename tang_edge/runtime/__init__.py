"""The thin runtime: opens a bundle, chooses a device, tests it and runs. It knows no compiler."""

from __future__ import annotations

from tang_edge.runtime.load import load
from tang_edge.runtime.report import Demotion, Report, SelfTest
from tang_edge.runtime.session import Model, Session

__all__ = ["Demotion", "Model", "Report", "SelfTest", "Session", "load"]
