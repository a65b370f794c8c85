"""Interleaved timing of several sides on one model, and the figures that come out of it.

The sides take turns: in each round every side runs a short block (about `block` seconds of runs) on the same
feeds, and the order rotates from round to round, so that a machine that becomes slower or busier does so for
all. The first run of a block is not counted (it warms the caches that the others used in between), and a
short pause before each block lets the threads of the side before stop spinning. The figure of a side is the
median of its single runs.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.sides import Side

FLOOR = 1e-3
"""Magnitude a value under which differences count as absolute ones."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure: rounds, seconds a block, at most so many runs in it, seconds a model and side in
    all.
    """

    rounds: int = 9
    block: float = 0.02
    most: int = 64
    budget: float = 6.0
    pause: float = 0.01


QUICK = Effort(rounds=3, block=0.01, most=16, budget=1.5)


@dataclass(frozen=True, slots=True)
class Figure:
    """One side's result on one model: median, 10th and 90th percentile in seconds, counted runs."""

    side: str
    median: float
    low: float
    high: float
    runs: int


@dataclass(slots=True)
class _Turn:
    side: Side
    estimate: float
    seconds: list[float] = field(default_factory=list)
    spent: float = 0.0
    feed: int = 0


class Disagreement(Exception):
    """Two sides give different answers: their times must not be compared."""


def relative_error(got: Sequence[Any], want: Sequence[Any]) -> float:
    """The largest over the outputs of ||got - want|| / ||want||; infinite where shapes or finiteness differ.

    The divisor is at least FLOOR a value, so that a probability of 1e-6 need not be right to three digits.
    """
    if len(got) != len(want):
        return math.inf
    worst = 0.0
    for one, other in zip(got, want, strict=True):
        if np.shape(one) != np.shape(other):
            return math.inf
        a, b = np.asarray(one, np.float64), np.asarray(other, np.float64)
        if not np.array_equal(np.isfinite(a), np.isfinite(b)):
            return math.inf
        a, b = np.nan_to_num(a), np.nan_to_num(b)
        scale = max(float(np.linalg.norm(b)), FLOOR * max(1, b.size) ** 0.5)
        worst = max(worst, float(np.linalg.norm(a - b)) / scale)
    return worst


def reference(side: Side, feeds: int) -> list[list[Any]]:
    """A side's answers to each of the feeds, copied: what the others are compared with."""
    answers = []
    for feed in range(feeds):
        side.time(1, feed)
        answers.append([np.array(value) for value in side.outputs()])
    return answers


def check(side: Side, answers: Sequence[Sequence[Any]], tolerance: float) -> float:
    """Run a side on each of the feeds; its worst relative error against `answers`.

    Raises Disagreement where that is above `tolerance`.
    """
    worst = 0.0
    for feed, want in enumerate(answers):
        side.time(1, feed)
        worst = max(worst, _compare(side, want, tolerance))
    return worst


def measure(sides: Sequence[Side], answers: Sequence[Sequence[Any]], tolerance: float, effort: Effort) -> list[Figure]:
    """Time all sides in turns; one `Figure` a side, in the same order.

    The outputs of each side's last timed run are compared with `answers` (of each of the feeds) once more:
    Disagreement if they differ.
    """
    feeds = len(answers)
    turns = [_Turn(side, min(side.time(2, 0))) for side in sides]
    for round_ in range(effort.rounds):
        first = round_ % len(turns)
        for turn in turns[first:] + turns[:first]:
            if turn.spent > effort.budget and len(turn.seconds) >= 3:
                continue  # a slow model: three runs and more are in
            time.sleep(effort.pause)
            runs = max(1, min(effort.most, int(effort.block / max(turn.estimate, 1e-9))))
            turn.feed = round_ % feeds
            taken = turn.side.time(runs + 1, turn.feed)
            turn.spent += sum(taken)
            turn.seconds += taken[1:]
            turn.estimate = statistics.median(turn.seconds)
    for turn in turns:
        _compare(turn.side, answers[turn.feed], tolerance)
    return [_figure(turn) for turn in turns]


def _compare(side: Side, want: Sequence[Any], tolerance: float) -> float:
    error = relative_error(side.outputs(), want)
    if not error <= tolerance:
        raise Disagreement(f"{side.name} is {error:.2e} away from the reference (allowed {tolerance:.0e})")
    return error


def _figure(turn: _Turn) -> Figure:
    low, median, high = (float(v) for v in np.percentile(turn.seconds, [10, 50, 90]))
    return Figure(turn.side.name, median, low, high, len(turn.seconds))


def geometric_mean(values: Iterable[float]) -> float:
    """The geometric mean; NaN of nothing."""
    logs = [math.log(v) for v in values]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan
