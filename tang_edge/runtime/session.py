"""Models and sessions: what a caller of the runtime holds.

A model owns the weights on a device, a session owns the memory of its runs and the state of a recurrent
model. Sessions run concurrently; calls on one session take turns.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np

from tang_edge.bundle import format as fmt
from tang_edge.bundle import layout
from tang_edge.bundle.expr import compile_expr
from tang_edge.bundle.read import Bundle
from tang_edge.errors import DeviceError, InputError
from tang_edge.runtime import host_arrays
from tang_edge.runtime.device import DeviceLost, Engine, Ready
from tang_edge.runtime.host_arrays import Array
from tang_edge.runtime.plan import DimSolver, check_array
from tang_edge.runtime.report import Report

Arrays = Mapping[str, Array]


class Session:
    """Separate memory and state for runs of a model. Thread-safe: calls on one session take turns."""

    def __init__(self, engine: Engine, solver: DimSolver) -> None:
        self._engine = engine
        self._solver = solver
        self._plan = solver.plan
        self._lock = threading.Lock()
        self._worker = engine.worker()
        self._last: Ready | None = None
        self._ports = {p.name: p for p in self._plan.inputs}
        self._states = {s.input: s for s in self._plan.states}
        self._kept: dict[str, Array] = {}  # the state, unless it is
        self._home: Ready | None = None  # in the inputs of this call, on the device
        self._current: Ready | None = None
        self._closed = False

    def run(self, inputs: Arrays) -> dict[str, Array]:
        """Run the model.

        Args:
            inputs: one array per input, with exactly the dtype and shape of the plan. Arrays need not be
                contiguous. State inputs may be left out: the session keeps them, and then their outputs are
                not returned.

        Returns:
            New arrays, one per output.

        Raises:
            InputError: an array is missing, unknown, or has the wrong type, shape or size.
            DeviceError: the device failed; a lost device was re-created once before.
        """
        with self._lock:
            ready = self._last
            # the fast path: the same sizes as the last time, no conversion to check, the state on the device
            if ready is not None and type(inputs) is dict and len(inputs) == len(ready.inputs):
                for name, dtype, shape, view in ready.inputs:
                    value = inputs.get(name)
                    if type(value) is not np.ndarray or value.dtype is not dtype or value.shape != shape:
                        break
                    view[...] = value
                else:
                    try:
                        ready.call()
                    except DeviceLost:
                        self._lost()
                    else:
                        return {name: view.copy() for name, view in ready.outputs}
            return self._run(inputs)

    def _run(self, inputs: Arrays) -> dict[str, Array]:
        values = self._checked(inputs)
        try:
            ready = self._call(values)
        except DeviceLost:
            self._lost()
            ready = self._call(values)
        result = {name: view.copy() for name, view in ready.outputs}
        result.update({name: view.astype(dtype) for name, view, dtype in ready.casts})
        hidden = {s.output for s in self._plan.states if s.input not in inputs}
        return {p.name: result[p.name] for p in self._plan.outputs if p.name in result and p.name not in hidden}

    def _call(self, values: dict[str, Array]) -> Ready:
        """Run; the state is on the device afterwards. Returns the call that was made, for its outputs."""
        self._last = self._current = None  # what was prepared may not survive a failure
        whole, ready = self._load(values)
        ready.call()
        self._current = whole
        if self._states:
            self._home, self._kept = whole, {}
        # the fast path must be exact: it knows nothing of casts and of values that need a check
        again = whole if self._states.keys() <= values.keys() else whole.resumed or whole
        self._last = None if again.casts or again.ranges else again
        return ready

    def _lost(self) -> None:
        """A new device, and the same call again: unless the state went with the old one."""
        self._last = self._current = None
        lost, self._home = self._home, None
        self._engine.revive()
        if lost is not None:
            self._kept.clear()
            raise DeviceError(
                "the device was lost, and with it the state of this session, which begins anew",
                where=self._engine.adapter,
                remedy="Restore a snapshot, or go on from the start.",
            )

    def _load(self, values: dict[str, Array], *, resume: bool = True) -> tuple[Ready, Ready]:
        """Prepare for the sizes of the values and copy them into the input views: the whole call, and that to make."""
        home, given = self._home, self._states.keys() & values.keys()
        if home is not None and home.resumed is not None and resume and not given:
            dims = self._solve(values, dict(zip(self._solver.names, home.dims, strict=True)))
            if tuple(dims.values()) == home.dims:
                self._fill(home.resumed, values)
                return home, home.resumed
        if not resume or given != self._states.keys():
            self._settle()  # other sizes, or some of the states are given: the others go with them
        self._home = None
        if resume:
            self._kept = self._kept | {n: values[n] for n in given}
        values = self._kept | values
        whole = self._worker.prepare(self._solve(values, {}))
        self._fill(whole, values)
        return whole, whole

    def _solve(self, values: Arrays, free: Mapping[str, int]) -> dict[str, int]:
        """The dimensions. Those that only states have, and no state that is kept, start at their least values."""
        absent = not self._states.keys() <= values.keys()
        least = self._solver.least() if absent else {}
        return self._solver.solve({n: v.shape for n, v in values.items()}, {**least, **free})

    def _settle(self) -> None:
        """Bring the state from the device to the host."""
        home = self._home
        if home is not None:
            self._kept = self._state_of(home)
            self._home = None

    def _state_of(self, home: Ready) -> dict[str, Array]:
        held = {b.io: b for b in self._engine.variant.buffers.values() if b.kind == "input"}
        found = {}
        for name in self._states:
            b = held[name]
            value = self._worker.read(home, fmt.Writes(b.id, b.shape, b.strides, 0))
            found[name] = value.astype(fmt.DTYPES[self._ports[name].dtype], copy=False)
        return found

    def _fill(self, ready: Ready, values: Arrays) -> None:
        """Copy the values into the views of a call; a state that there is none of yet is zero."""
        for name, low, high in ready.ranges:
            if name in values:
                host_arrays.check_values(name, values[name], low, high)
        for name, _, _, view in ready.inputs:
            view[...] = values.get(name, 0)

    def _checked(self, inputs: Arrays) -> dict[str, Array]:
        if self._closed:
            raise InputError("the session or its model was closed", remedy="Load the model again.")
        if not isinstance(inputs, Mapping):
            raise InputError(f"takes a dict of arrays by input name, not a {type(inputs).__name__}", where="run")
        unknown = set(inputs) - set(self._ports)
        missing = set(self._ports) - set(inputs) - set(self._states)
        if unknown or missing:
            raise InputError(
                "; ".join(f"{n!r} is no input" for n in sorted(unknown, key=str))
                + ("; " if unknown and missing else "")
                + "; ".join(f"{n!r} is missing" for n in sorted(missing)),
                where="inputs",
                remedy=f"The model takes {', '.join(repr(n) for n in self._ports)}.",
            )
        return {name: check_array(port, inputs[name]) for name, port in self._ports.items() if name in inputs}

    def reset(self) -> None:
        """Set the state to zeros, as in a new session."""
        with self._lock:
            self._kept.clear()
            self._home = self._last = None

    def snapshot(self) -> dict[str, Array]:
        """A copy of the state by state input name; empty before the first run."""
        with self._lock:
            if self._home is not None:
                return self._state_of(self._home)
            return {name: value.copy() for name, value in self._kept.items()}

    def restore(self, state: Arrays) -> None:
        """Go on from a snapshot.

        Raises:
            InputError: a name or an array is not of a state of this model.
        """
        with self._lock:
            unknown = set(state) - set(self._states)
            if unknown:
                raise InputError(f"no states of this model: {', '.join(sorted(map(str, unknown)))}", where="restore")
            self._kept = {n: check_array(self._ports[n], v).copy() for n, v in state.items()}
            self._home = self._last = None

    def run_steps(self, first: int, last: int, inputs: Arrays | None = None) -> None:
        """Run the steps with preorder indices in [first, last) (``last`` < 0: to the end), for tools.

        ``inputs`` are loaded before; without them the memory is as the last call left it.
        """
        with self._lock:
            if inputs is not None:
                self._current, _ = self._load(self._checked(inputs), resume=False)
                self._last = None  # the state that these steps make is not kept
                self._worker.upload(self._current)
            self._worker.run_range(self._loaded(), first, last)

    def read_step(self, index: int) -> Array:
        """What the step of this preorder index wrote, in its logical shape and its storage dtype.

        Only true as long as no later step has reused the memory: call it right after :meth:`run_steps`.
        """
        steps = fmt.flatten(self._engine.variant.steps)
        if not 0 <= index < len(steps):
            raise InputError(f"there is no step {index}, the plan has {len(steps)}", where="read_step")
        step = steps[index]
        if not isinstance(step, fmt.Step):
            what = "an 'if'" if isinstance(step, fmt.IfStep) else "a 'loop'"
            raise InputError(f"step {index} is {what}: it writes nothing itself", where="read_step")
        with self._lock:
            return self._worker.read(self._loaded(), step.writes)

    def _loaded(self) -> Ready:
        if self._current is None or self._closed:
            raise InputError("no inputs were loaded", where="run_steps", remedy="Pass the inputs.")
        return self._current

    def time(self, inputs: Arrays, repeat: int = 10) -> list[float]:
        """Seconds of each of ``repeat`` runs, after one that does not count."""
        self.run(inputs)
        seconds = []
        for _ in range(repeat):
            start = time.perf_counter()
            self.run(inputs)
            seconds.append(time.perf_counter() - start)
        return seconds

    @property
    def arena_bytes(self) -> int:
        """Bytes of memory that this session holds on the device."""
        return 0 if self._closed else self._worker.arena_bytes

    def close(self) -> None:
        """Free the memory. Later calls raise InputError."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._last = self._current = None
                self._worker.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()


class Model:
    """A loaded bundle on a device: its weights, a report on how it came to be there, and a first session.

    Attributes:
        report: which device and variant were chosen, why, and what the self-test said.
        plan: the parsed plan (inputs, outputs, dimensions).
        steps: the steps of the variant in preorder.
    """

    def __init__(self, bundle: Bundle, engine: Engine, report: Report) -> None:
        self._bundle = bundle
        self._engine = engine
        self.report = report
        self.plan = bundle.plan
        self.steps: tuple[fmt.AnyStep, ...] = tuple(fmt.flatten(engine.variant.steps))
        self._solver = DimSolver(self.plan)
        self._sessions: weakref.WeakSet[Session] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._closed = False
        self._first = self.session()
        self._run = self._first.run

    def run(self, inputs: Arrays) -> dict[str, Array]:
        """Run the model in its first session; see :meth:`Session.run`."""
        return self._run(inputs)

    def session(self) -> Session:
        """A new session, with its own memory and state, over the same weights."""
        with self._lock:
            if self._closed:
                raise InputError("the model was closed", remedy="Load the model again.")
            session = Session(self._engine, self._solver)
            self._sessions.add(session)
            return session

    def run_steps(self, first: int, last: int, inputs: Arrays | None = None) -> None:
        """See :meth:`Session.run_steps`."""
        self._first.run_steps(first, last, inputs)

    def read_step(self, index: int) -> Array:
        """See :meth:`Session.read_step`."""
        return self._first.read_step(index)

    def time(self, inputs: Arrays, repeat: int = 10) -> list[float]:
        """See :meth:`Session.time`."""
        return self._first.time(inputs, repeat)

    def output_shapes(self, dims: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        """The shape of each output for dimension values."""
        return {p.name: tuple(compile_expr(e)(dims) for e in p.shape) for p in self.plan.outputs}

    @property
    def peak_bytes(self) -> int:
        """Bytes of canonical weights, packed weights and all arenas, as allocated now."""
        held = self._engine.weight_bytes + sum(s.arena_bytes for s in list(self._sessions))
        return held + (layout.constant_bytes(self.plan) if self._engine.kind == "c" else 0)

    def close(self) -> None:
        """Free all sessions, the weights and the file."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for session in list(self._sessions):
                session.close()
            self._engine.close()
            self._bundle.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def __repr__(self) -> str:
        name: Any = self._bundle.manifest.name
        return f"<tang_edge.Model {name!r} on {self.report.device} ({self.report.variant})>"
