"""The C device: a shared library of the frozen interface in tang_abi.h, called through ctypes."""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tang_edge.bundle import format as fmt
from tang_edge.bundle import layout
from tang_edge.bundle.read import Bundle
from tang_edge.errors import BundleError, DeviceError
from tang_edge.runtime import host_arrays
from tang_edge.runtime.device import Place, Ready, Sizes, ports, state_buffers
from tang_edge.runtime.host_arrays import Array

ABI = 1


class TangCall(ctypes.Structure):
    """``tang_call`` of tang_abi.h."""

    _fields_ = [
        ("dims", ctypes.c_void_p),
        ("arena", ctypes.c_void_p),
        ("packed", ctypes.c_void_p),
        ("constants", ctypes.c_void_p),
        ("pool", ctypes.c_void_p),
        ("choice", ctypes.c_void_p),
        ("phase", ctypes.c_int32),
        ("first", ctypes.c_int32),
        ("last", ctypes.c_int32),
    ]


class Library:
    """A loaded library with its five functions."""

    def __init__(self, path: Path) -> None:
        try:
            self._library = ctypes.CDLL(str(path))
            self.run = self._library.tang_run
            self.sizes = self._library.tang_sizes
            self.pool_new = self._library.tang_pool_new
            self.pool_free = self._library.tang_pool_free
            abi = self._library.tang_abi()
        except (OSError, AttributeError) as error:
            raise DeviceError(f"the compiled library cannot be loaded ({error})", where=path.name) from error
        if abi != ABI:
            raise BundleError(f"the library has interface {abi}, this runtime calls {ABI}", where=path.name)
        self.pool_new.restype = ctypes.c_void_p
        self.pool_free.argtypes = [ctypes.c_void_p]


class CEngine:
    """A C variant with its packed weights. The thread pool is shared by all sessions: one call at a time uses
    it, a second concurrent one runs on its own thread only."""

    kind = "c"

    def __init__(self, bundle: Bundle, variant: fmt.Variant, library: Path, threads: int, adapter: str) -> None:
        self.plan = bundle.plan
        self.variant = variant
        self.adapter = adapter
        self.library = Library(library)
        self._choice = np.zeros(max(1, len(fmt.flatten(variant.steps))), np.uint8)
        self._pool = self.library.pool_new(threads) if threads > 1 else None
        if self._pool:  # a model that nobody closes must not keep its threads
            self._end_pool = weakref.finalize(self, self.library.pool_free, self._pool)
        self.pool_lock = threading.Lock()
        region = layout.region(variant.packed_slots, {}, variant.id)
        self.least = {d.name: fmt.align_up(d.min, d.multiple) for d in self.plan.dims}
        wanted = self.sizes_of(self.least)[1]
        self.packed = host_arrays.allocate(max(region.total, wanted) + fmt.SLOT_ALIGN, variant.id)
        _engines.add(self)
        self._prologue(bundle)

    def _prologue(self, bundle: Bundle) -> None:
        """Fill the packed region from the canonical weights.

        Afterwards those that are views of the file, or that a step reads, stay within reach of the library;
        copies that only the prologue needed (constants of several parts) are let go.
        """
        arrays = [_aligned(bundle.constant(c)) for c in self.plan.constants]
        pointers = (ctypes.c_void_p * max(1, len(arrays)))(*(a.ctypes.data for a in arrays))
        read = _constants_of_steps(self.variant)
        self._weights = [
            array if len(c.parts) == 1 or c.name in read else None for c, array in zip(self.plan.constants, arrays, strict=True)
        ]
        self._pointers = (ctypes.c_void_p * max(1, len(arrays)))(
            *(a.ctypes.data if a is not None else None for a in self._weights)
        )
        values = np.array(list(self.least.values()) or [0], np.int64)
        arena = host_arrays.allocate(self.arena_need(self.least), self.variant.id)
        call = self.call_struct(values, arena, self.pool)
        call.constants = ctypes.addressof(pointers)
        call.choice = None
        call.phase = 0
        self.check(self.library.run(ctypes.byref(call)), "prologue")

    def sizes_of(self, dims: Mapping[str, int]) -> tuple[int, int]:
        """Bytes of arena and packed region that the library asks for."""
        values = np.array(list(dims.values()) or [0], np.int64)
        sizes = np.zeros(2, np.int64)
        code = self.library.sizes(ctypes.c_void_p(values.ctypes.data), ctypes.c_void_p(sizes.ctypes.data))
        if code != 0:
            raise BundleError(f"the library refuses the dimensions {dict(dims)}", where=self.variant.id)
        return int(sizes[0]), int(sizes[1])

    def arena_need(self, dims: Mapping[str, int]) -> int:
        """Bytes of arena for these dimension values, by the plan and by the library."""
        region = layout.region(self.variant.slots, dims, self.variant.id)
        return max(region.total, self.sizes_of(dims)[0]) + fmt.SLOT_ALIGN

    def call_struct(self, values: npt.NDArray[np.int64], arena: npt.NDArray[np.uint8], pool: int | None) -> TangCall:
        """A call of all steps; the arrays must outlive it."""
        return TangCall(
            values.ctypes.data,
            arena.ctypes.data,
            self.packed.ctypes.data,
            ctypes.addressof(self._pointers),
            pool,
            self._choice.ctypes.data,
            1,
            0,
            -1,
        )

    @property
    def pool(self) -> int | None:
        """Handle of the thread pool, None where calls run on one thread."""
        return self._pool

    def forget_pool(self) -> None:
        """In a forked child: the threads of the pool are not there any more."""
        if self._pool:
            self._end_pool.detach()
        self._pool = None
        self.pool_lock = threading.Lock()

    def check(self, code: int, what: str) -> None:
        """Raise DeviceError where a call failed."""
        if code == 2:
            raise DeviceError(
                "the model computed a size that is out of the range of its dimension",
                where=self.variant.id,
                remedy="Pack the model with another range (--dim name=lo..hi).",
            )
        if code != 0:
            raise DeviceError(f"the compiled library failed with code {code} in {what}", where=self.variant.id)

    def worker(self) -> CWorker:
        """Memory for a new session."""
        return CWorker(self)

    def choose(self, step: int, alternate: int) -> None:
        """Use this alternate for a step (the library reads the table at every call)."""
        self._choice[step] = alternate

    def choice(self, step: int) -> int:
        """The number of the alternate that a step uses now."""
        return int(self._choice[step])

    def revive(self) -> None:
        """There is nothing to re-create."""

    @property
    def weight_bytes(self) -> int:
        """Bytes of packed weights (canonical ones stay in the mapped file)."""
        return self.packed.nbytes

    def close(self) -> None:
        """Free the thread pool."""
        with self.pool_lock:
            pool, self._pool = self._pool, None
            if pool:
                self._end_pool()


_engines: weakref.WeakSet[CEngine] = weakref.WeakSet()


def _after_fork() -> None:
    for engine in list(_engines):
        engine.forget_pool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _constants_of_steps(variant: fmt.Variant) -> set[str | None]:
    """Constants that a step reads directly, not only the prologue."""
    steps = [s for s in fmt.flatten(variant.steps) if isinstance(s, fmt.Step)]
    dispatches = [d for s in steps for a in s.alternates for d in a.dispatches]
    return {variant.buffers[arg].constant for d in dispatches for arg in d.args}


def _aligned(array: Array) -> Array:
    # a tensor written by another tool may start anywhere in the file
    if array.ctypes.data % max(1, array.dtype.itemsize):
        return array.copy()
    return array


class CWorker:
    """The arena of one session on the C device."""

    def __init__(self, engine: CEngine) -> None:
        self._engine = engine
        self._arena = host_arrays.allocate(0, engine.variant.id)
        self._sizes = Sizes()

    def prepare(self, dims: Mapping[str, int]) -> Ready:
        """The prepared call; an arena too large to be reserved grows where these sizes need more than any before."""
        key = tuple(dims.values())
        found = self._sizes.get(key)
        if found is not None:
            return found
        engine = self._engine
        need = engine.arena_need(dims)
        if need > self._arena.nbytes:
            whole = layout.reserved(engine.plan, engine.variant)
            need = max(need, whole.total + fmt.SLOT_ALIGN if whole is not None else 0)
            self._sizes.clear()
            self._arena = host_arrays.allocate(need, engine.variant.id)
        region = layout.region(engine.variant.slots, dims, engine.variant.id)
        packed = layout.region(engine.variant.packed_slots, {}, engine.variant.id)
        layout.check_slots(engine.variant, dims, region, packed)

        def place(buffer: fmt.Buffer, size: layout.Extent) -> Array:
            return host_arrays.view(self._arena, region.offsets[buffer.slot or 0], size)

        call = self._caller(key)
        if engine.plan.states:
            call = self._stateful(call, dims, place)
        ready = ports(engine.plan, engine.variant, dims, place, call, call)
        self._sizes.put(ready)
        return ready

    def _stateful(self, call: Callable[[], None], dims: Mapping[str, int], place: Place) -> Callable[[], None]:
        """The call, after which each state goes from its output to its input; that slot is shared with nothing."""
        found = state_buffers(self._engine.plan, self._engine.variant, dims)
        pairs = [(place(source, size), place(target, size)) for source, target, size in found]

        def call_and_keep() -> None:
            call()
            for source, target in pairs:
                np.copyto(target, source)

        return call_and_keep

    def _caller(self, dims: tuple[int, ...]) -> Callable[[], None]:
        """The call of all steps, with nothing left to prepare; it keeps alive what the struct points to."""
        engine, arena = self._engine, self._arena
        values = np.array(dims or (0,), np.int64)
        alone = ctypes.byref(engine.call_struct(values, arena, None))
        run = engine.library.run

        def call(keep: tuple[Any, ...] = (values, arena, engine)) -> None:
            code = run(alone)
            if code:
                engine.check(code, "run")

        if engine.pool is None:
            return call
        shared = engine.call_struct(values, arena, engine.pool)
        pooled = ctypes.byref(shared)

        def call_pooled() -> None:
            # the pool serves one call at a time; who comes second does its work alone instead of waiting
            lock = engine.pool_lock
            if not lock.acquire(blocking=False):
                return call()
            try:
                code = run(pooled if engine.pool is not None else alone)
            finally:
                lock.release()
            if code:
                engine.check(code, "run")

        return call_pooled

    def upload(self, ready: Ready) -> None:
        """Inputs were written into the arena already."""

    def run_range(self, ready: Ready, first: int, last: int) -> None:
        """Run the steps with preorder indices in [first, last), on the calling thread."""
        values = np.array(ready.dims or (0,), np.int64)
        call = self._engine.call_struct(values, self._arena, None)
        call.first, call.last = first, last
        self._engine.check(self._engine.library.run(ctypes.byref(call)), f"steps {first}..{last}")

    def read(self, ready: Ready, writes: fmt.Writes) -> Array:
        """A copy of what a step wrote."""
        engine = self._engine
        dims = dict(zip((d.name for d in engine.plan.dims), ready.dims, strict=True))
        buffer = engine.variant.buffers[writes.buffer]
        size = layout.extent(buffer, dims, writes)
        if buffer.kind == "packed":
            packed = layout.region(engine.variant.packed_slots, {}, engine.variant.id)
            return host_arrays.view(engine.packed, packed.offsets[buffer.slot or 0], size).copy()
        region = layout.region(engine.variant.slots, dims, engine.variant.id)
        return host_arrays.view(self._arena, region.offsets[buffer.slot or 0], size).copy()

    @property
    def arena_bytes(self) -> int:
        """Bytes of the arena."""
        return self._arena.nbytes

    def close(self) -> None:
        """Free the arena."""
        self._sizes.clear()
        self._arena = host_arrays.allocate(0, self._engine.variant.id)
