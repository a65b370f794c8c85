"""A program scheduled for one device class: kernels, steps with alternates, and the buffer plan."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from tang_edge.ir import dtype, scalar
from tang_edge.ir.affine import Dim, Expr
from tang_edge.ir.kernel import Kernel
from tang_edge.ir.tensor import Alloc, Bind, If, Item, Loop, Program
from tang_edge.ir.tensor import bind as make_bind
from tang_edge.rewrite.constants import is_prologue
from tang_edge.schedule import choose
from tang_edge.schedule.addresses import Placed, place
from tang_edge.schedule.families import Scheduled
from tang_edge.schedule.layout import assign, stored
from tang_edge.schedule.legal import check_buffers, legal
from tang_edge.schedule.limits import Limits
from tang_edge.schedule.lower import lower
from tang_edge.schedule.memory import Life, assign_slots, lifetimes
from tang_edge.schedule.pack import rename_constants
from tang_edge.schedule.split import within_turns


@dataclass(frozen=True, slots=True)
class Alternate:
    """One way to run a step: kernels in order."""

    tag: str
    kernels: tuple[Kernel, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """A bind and its interchangeable alternates; the last one is the safest."""

    bind: Bind
    alternates: tuple[Alternate, ...]


@dataclass(frozen=True, slots=True)
class Branch:
    """Structured control: the steps of one side run, by the one element of `cond`."""

    cond: str
    then: tuple[AnyStep, ...]
    orelse: tuple[AnyStep, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """Structured control: the steps run `trip` times (a size, or a tensor), as long as the one element of `cond` is true."""

    trip: Expr | str
    cond: str | None
    body: tuple[AnyStep, ...]


@dataclass(frozen=True, slots=True)
class Measure:
    """From here on a dimension has the value of the one integer in `tensor`. Only among the steps at the top."""

    dim: Dim
    tensor: str


AnyStep = Step | Branch | Repeat | Measure


@dataclass(frozen=True, slots=True)
class BufferPlan:
    """A buffer: its tensor, what it is for and its slot (None for constants)."""

    id: int
    tensor: str
    kind: str
    slot: int | None


@dataclass(frozen=True, slots=True)
class Variant:
    """Everything that an emitter and the plan need for one device class."""

    limits: Limits
    program: Program
    placed: Mapping[str, Placed]
    buffers: tuple[BufferPlan, ...]
    slots: tuple[Expr, ...]
    packed_slots: tuple[Expr, ...]
    prologue: tuple[Step, ...]
    steps: tuple[AnyStep, ...]


Told = Callable[[int, int], None]  # items done, of how many


def _untold(done: int, total: int) -> None:
    """No progress wanted."""


def build(program: Program, limits: Limits, scheduler: choose.Scheduler, told: Told = _untold) -> Variant:
    """Schedule every bind of an optimised program for a class of devices."""
    placed = dict(assign(program, limits, max(1, limits.lanes(4))))
    # an output is written by a step: the packed region is no output
    early = is_prologue(program) - {tensor for _, tensor in program.outputs}
    constants = {c.name for c in program.constants}
    work = _Work(program, limits, scheduler, placed, constants, early)
    ran = [i for i in program.items if not isinstance(i, Alloc) and _name(i) not in early]
    steps = []
    for k, item in enumerate(ran):
        told(k, len(ran))
        steps.append(work.step(item))
    first = [i for i in program.items if isinstance(i, Bind) and i.name in early]
    prologue = [s for b in (*first, *work.extra.values()) for s in work.early(b)]
    live = _needed(prologue, steps)
    prologue = [s for s in prologue if s.bind.name in live]
    return _planned(work, tuple(prologue), tuple(steps))


def _name(item: Item) -> str:
    return item.name if isinstance(item, (Bind, Alloc)) else ""


def inside(s: Branch | Repeat) -> tuple[AnyStep, ...]:
    """The steps in a branch or a loop."""
    return s.body if isinstance(s, Repeat) else (*s.then, *s.orelse)


def flat(steps: Sequence[AnyStep]) -> list[Step]:
    """Steps in order, those of branches and loops included."""
    out: list[Step] = []
    for s in steps:
        if isinstance(s, Measure):
            continue
        out.extend([s] if isinstance(s, Step) else flat(inside(s)))
    return out


def controls(steps: Sequence[AnyStep]) -> dict[str, None]:
    """Tensors that decide what runs: conditions and trip counts."""
    out: dict[str, None] = {}
    for s in steps:
        if isinstance(s, Step):
            continue
        if isinstance(s, Measure):
            out[s.tensor] = None
            continue
        names = (s.cond,) if isinstance(s, Branch) else (s.cond, s.trip if isinstance(s.trip, str) else None)
        out |= {n: None for n in names if n is not None} | controls(inside(s))
    return out


def tensors_of(step: Step) -> tuple[set[str], set[str]]:
    """Tensors that any alternate of a step reads, and those that it writes."""
    buffers = [b for a in step.alternates for k in a.kernels for b in k.buffers]
    return {b.tensor for b in buffers if not b.writable}, {b.tensor for b in buffers if b.writable}


def _needed(prologue: Sequence[Step], steps: Sequence[AnyStep]) -> set[str]:
    wanted = {t for s in flat(steps) for t in tensors_of(s)[0]} | set(controls(steps))
    for s in reversed(prologue):
        if s.bind.name in wanted:
            wanted |= tensors_of(s)[0]
    return wanted


class _Work:
    """Schedules binds one after the other and collects the prologue binds that they ask for."""

    def __init__(
        self,
        program: Program,
        limits: Limits,
        scheduler: choose.Scheduler,
        placed: dict[str, Placed],
        constants: set[str],
        early_names: frozenset[str],
    ) -> None:
        self.program, self.limits, self.scheduler, self.placed = program, limits, scheduler, placed
        self.constants, self.early_names = constants, early_names
        self.extra: dict[str, Bind] = {}
        self.types = program.types()

    def step(self, item: Item) -> AnyStep:
        """The step of a program item."""
        if isinstance(item, Loop):
            return Repeat(item.trip, item.cond, tuple(self.step(i) for i in item.body if not isinstance(i, Alloc)))
        if isinstance(item, If):
            then = tuple(self.step(i) for i in item.then if not isinstance(i, Alloc))
            return Branch(item.cond, then, tuple(self.step(i) for i in item.orelse if not isinstance(i, Alloc)))
        assert isinstance(item, Bind)
        options = self.scheduler(item, self.placed, self.constants | self.early_names, self.limits)
        made: list[tuple[str, tuple[Kernel, ...]]] = []
        for tag, s in options:
            self._place([x.bind for x in s.before])
            made.append((tag, tuple(self._kernel(x) for x in (*s.before, s))))
        return Step(item, tuple(Alternate(*option) for option in legal(made, item, self.limits)))

    def _kernel(self, s: Scheduled) -> Kernel:
        """One scheduled bind, its prologue binds noted."""
        self._adopt(s.prologue)
        bind, nests = s.bind, s.nests
        names = self._copies(bind) if self.limits.copy_constants else {}
        if names:
            bind = rename_constants(bind, names)
            nests = tuple(replace(n, bind=bind, fold=choose.same_fold(n, bind)) for n in nests)
        return lower(nests, self.placed, "", self.program.finite_math)

    def _adopt(self, binds: Sequence[Bind]) -> None:
        self.extra.update({b.name: b for b in binds if b.name not in self.extra})
        self._place(binds)

    def _copies(self, bind: Bind) -> dict[str, str]:
        """Constants that the bind reads straight from the model get a copy in the packed region (with slack behind)."""
        out: dict[str, str] = {}
        for r in sorted(scalar.reads(bind.expr), key=str):
            if r.tensor in self.constants:
                t = self.types[r.tensor]
                name = f"{r.tensor}|copy"
                body = nest_copy(name, r.tensor, t.shape, t.dtype, bind)
                self._adopt([body])
                out[r.tensor] = name
        return out

    def early(self, bind: Bind) -> list[Step]:
        """Prologue steps that make a bind: the plain schedule, since they run once."""
        before, last = within_turns(bind, self.limits.serial_turns)
        self._place(before)
        return [self._plain(b) for b in (*before, last)]

    def _plain(self, bind: Bind) -> Step:
        kernels = (lower((choose.plain(bind, self.placed, self.limits),), self.placed, "", self.program.finite_math),)
        return Step(bind, (Alternate("default", kernels),))

    def _place(self, binds: Sequence[Bind]) -> None:
        for b in binds:
            self.placed.setdefault(b.name, place(b.type, None, stored(b.type, self.limits)))


def nest_copy(name: str, tensor: str, shape: Sequence[Expr], dt: dtype.DType, like: Bind) -> Bind:
    """name[i...] = tensor[i...]."""
    return make_bind(name, shape, lambda *axes: scalar.read(tensor, axes, dt), like.origin)


def _planned(work: _Work, prologue: tuple[Step, ...], steps: tuple[AnyStep, ...]) -> Variant:
    p = work.program
    order = flat(steps)
    kept = {s.bind.name for s in prologue}
    conds = controls(steps)
    reads = [sorted(tensors_of(s)[0] - work.constants - kept) for s in order]
    writes = [sorted(tensors_of(s)[1]) for s in order]
    spans = _spans(steps)
    inputs = [i.name for i in p.inputs]
    lives = lifetimes(writes, reads, inputs, [t for _, t in p.outputs], [s.input for s in p.states])
    lives = [_stretch(x, spans, set(conds)) for x in lives]
    measured = {s.tensor for s in steps if isinstance(s, Measure)}
    lives = [replace(x, last=len(order)) if x.tensor in measured else x for x in lives]
    slot_of, sizes = assign_slots(lives, work.placed)
    packed_sizes = [work.placed[s.bind.name].bytes() for s in prologue]
    outputs = {t for _, t in p.outputs}
    buffers: list[BufferPlan] = []
    for x in lives:
        kind = "input" if x.tensor in inputs else "output" if x.tensor in outputs else "arena"
        buffers.append(BufferPlan(len(buffers), x.tensor, kind, slot_of[x.tensor]))
    for k, s in enumerate(prologue):
        buffers.append(BufferPlan(len(buffers), s.bind.name, "packed", k))
    used = ({t for s in (*prologue, *order) for t in tensors_of(s)[0]} | set(conds)) & work.constants
    for c in p.constants:
        if c.name in used:
            buffers.append(BufferPlan(len(buffers), c.name, "constant", None))
    check_buffers({b.tensor: work.placed[b.tensor] for b in buffers}, work.limits)
    parts = (tuple(buffers), tuple(sizes), tuple(packed_sizes), prologue, steps)
    return Variant(work.limits, p, work.placed, *parts)


def _spans(steps: Sequence[AnyStep], at: int = 0) -> list[tuple[int, int, bool]]:
    """First flat step index of every branch and loop, that after it, and whether it is a loop."""
    out: list[tuple[int, int, bool]] = []
    for s in steps:
        if isinstance(s, Step):
            at += 1
        elif not isinstance(s, Measure):
            n = len(flat((s,)))
            out.append((at, at + n, isinstance(s, Repeat)))
            out += _spans(inside(s), at)
            at += n
    return out


def _stretch(life: Life, spans: Sequence[tuple[int, int, bool]], conds: Collection[str]) -> Life:
    """A tensor made in a branch or read by one lives as long as the whole branch: either side may run.

    What a loop reads from outside must be there in its last turn too; what its body makes is made anew in each turn.
    """
    first, last = life.first, life.last
    for a, b, loop in spans:
        if loop and first >= a:
            continue
        if first < b and last >= a:
            first = min(first, max(first, a) if first < a else a)
            last = max(last, b - 1)
        elif life.tensor in conds and last < a:
            last = max(last, a)
    return Life(life.tensor, first, last)
