"""Which schedule a bind gets: a record for its structure if there is one, else the written-down default of the class.

Searching by measurement goes through `Timer`: it runs a kernel on a device and says how long it took. The spine has no
search: the defaults are the only candidates, and records choose among the alternates that a default offers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tang_edge.ir.kernel import Kernel
from tang_edge.ir.scalar import Comprehension
from tang_edge.ir.tensor import Bind
from tang_edge.schedule import cpu, gpu
from tang_edge.schedule.addresses import Placed
from tang_edge.schedule.analysis import main_fold
from tang_edge.schedule.families import Scheduled, placed_with
from tang_edge.schedule.limits import Limits
from tang_edge.schedule.nest import Nest

Options = Sequence[tuple[str, Scheduled]]


class Scheduler(Protocol):
    """Gives the tagged candidates for a bind, best first, the safest last."""

    def __call__(self, bind: Bind, placed: Mapping[str, Placed], constants: Collection[str], limits: Limits) -> Options: ...


class Timer(Protocol):
    """Runs a kernel on a device with random inputs of the given sizes and returns seconds a run (a median)."""

    def __call__(self, kernel: Kernel, dims: Mapping[str, int]) -> float: ...


@dataclass(frozen=True, slots=True)
class Record:
    """A measured choice: for binds of this structural key on this class, the alternate of that tag."""

    key: str
    device_class: str
    tag: str
    source: str


@dataclass(frozen=True, slots=True)
class Defaults:
    """The default scheduler, with records moving an alternate to the front where they know the bind."""

    records: tuple[Record, ...] = ()
    key_of: Mapping[str, str] | None = None  # bind name -> structural key

    def __call__(self, bind: Bind, placed: Mapping[str, Placed], constants: Collection[str], limits: Limits) -> Options:
        """Candidates, best first."""
        if any(a.extent.constant == 0 for a in bind.axes):  # nothing to compute: no shape of a tile fits it
            return [("points", Scheduled(bind, (), (plain(bind, placed, limits),)))]
        family = FAMILIES[limits.backend]
        options = list(family(bind, placed, constants, limits))
        key = (self.key_of or {}).get(bind.name)
        for r in self.records:
            if r.key == key and r.device_class == limits.name:
                options.sort(key=lambda o: o[0] != r.tag)
        return options


def _cpu(bind: Bind, placed: Mapping[str, Placed], constants: Collection[str], limits: Limits) -> Options:
    """The default, and the plain loops behind it for the day a compiler gets the default wrong."""
    chosen = cpu.schedule(bind, placed, constants, limits)
    places = placed_with(placed, chosen.prologue)
    simple = Scheduled(chosen.bind, chosen.prologue, (cpu.plain(chosen.bind, places),))
    return [("default", chosen)] if chosen.nests == simple.nests else [("default", chosen), ("plain", simple)]


FAMILIES: dict[str, Scheduler] = {"c": _cpu, "webgpu": gpu.options}
PLAIN: dict[str, Callable[[Bind, Mapping[str, Placed]], Nest]] = {"c": cpu.plain, "webgpu": gpu.plain}


def plain(bind: Bind, placed: Mapping[str, Placed], limits: Limits) -> Nest:
    """The plain schedule of a class: one output element at a time."""
    return PLAIN[limits.backend](bind, placed)


def same_fold(n: Nest, bind: Bind) -> Comprehension | None:
    """The tiled comprehension of a nest in a bind that differs only in the names of the tensors it reads."""
    return None if n.fold is None else main_fold(bind)
