"""Choosing where a model runs: every candidate in order, and the reason for each one passed over."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tang_edge.bundle import format as fmt
from tang_edge.bundle import trust as local_trust
from tang_edge.bundle.read import Bundle
from tang_edge.c_fallback import compile as cc
from tang_edge.errors import BundleError, CompilerBug, DeviceError, TangError
from tang_edge.runtime.device import Engine

# the more a class presumes of a device, the earlier it is tried; others follow in the order of the plan
_WEBGPU_CLASSES = ("jetson", "mac", "laptop", "robot-soc", "browser-f16", "browser")
DEVICES = ("auto", "webgpu", "c")


@dataclass(frozen=True, slots=True)
class Trust:
    """Whether machine code and unchecked shaders of a bundle may run, and why."""

    granted: bool
    why: str


@dataclass(slots=True)
class Choice:
    """A place where the model could run: what it is in words, and how to make the engine."""

    variant: fmt.Variant
    adapter: str
    why: str
    open: Callable[[], Engine]


@dataclass(slots=True)
class Search:
    """The candidates in order, and the reasons collected while looking."""

    passed_over: list[str] = field(default_factory=list)


def judge(bundle: Bundle, trust: bool) -> Trust:
    """Whether the bundle's machine code may run here."""
    unsigned = "signed, but signatures are not verified yet" if bundle.manifest.signed else "unsigned"
    if trust:
        return Trust(True, f"{unsigned}; the caller said trust=True")
    if local_trust.packed_here(bundle.manifest_sha256):
        return Trust(True, f"{unsigned}; packed on this machine")
    return Trust(False, f"{unsigned} and not packed on this machine: no compiled C, shaders with run-time checks")


def candidates(bundle: Bundle, device: str, trust: Trust, threads: int, search: Search) -> Iterator[Choice]:
    """The places in order of preference; ``search`` collects why others are none.

    ``auto``: a GPU, then C, then an adapter of WebGPU that computes on the CPU.
    """
    if device == "c":
        yield from _c(bundle, trust, threads, search)
        return
    gpus = list(_webgpu(bundle, trust, search))
    yield from (c for c, is_cpu in gpus if not is_cpu)
    if device == "auto":
        behind = [f"webgpu: {c.adapter} computes on the CPU, where C comes first" for c, is_cpu in gpus if is_cpu]
        for choice in _c(bundle, trust, threads, search):
            search.passed_over += [reason for reason in behind if reason not in search.passed_over]
            yield choice
        search.passed_over = [reason for reason in search.passed_over if reason not in behind]
    yield from (c for c, is_cpu in gpus if is_cpu)


def _webgpu(bundle: Bundle, trust: Trust, search: Search) -> Iterator[tuple[Choice, bool]]:
    variants = sorted((v for v in bundle.plan.variants if v.backend == "webgpu"), key=_class_rank)
    if not variants:
        search.passed_over.append("webgpu: the bundle has no WebGPU variant")
        return
    from tang_edge.wgsl import gpu
    from tang_edge.wgsl.host import WebGpuEngine

    found, reason = gpu.adapters()
    if not found:
        search.passed_over.append(f"webgpu: {reason}")
    for adapter in found:
        for variant in variants:
            problem = gpu.lacks(adapter, variant)
            if problem:
                search.passed_over.append(f"webgpu: variant {variant.id} on {adapter.name}: {problem}")
                continue
            kind = "a WebGPU adapter that computes on the CPU" if adapter.is_cpu else "a GPU adapter"

            def make(v: fmt.Variant = variant, a: gpu.Adapter = adapter) -> Engine:
                return WebGpuEngine(bundle, v, a, trust.granted)

            why = f"{kind}, {adapter.name}, offers what the variant needs"
            yield Choice(variant, adapter.name, why, make), adapter.is_cpu


def _class_rank(variant: fmt.Variant) -> int:
    known = variant.device_class in _WEBGPU_CLASSES
    return _WEBGPU_CLASSES.index(variant.device_class) if known else len(_WEBGPU_CLASSES)


def _c(bundle: Bundle, trust: Trust, threads: int, search: Search) -> Iterator[Choice]:
    variants = [v for v in bundle.plan.variants if v.backend == "c"]
    if not variants:
        search.passed_over.append("c: the bundle has no C variant")
        return
    if not trust.granted:
        search.passed_over.append(f"c: {trust.why}")
        return
    runs_here = cc.cpu_classes()
    for variant in variants:
        if variant.device_class not in runs_here:
            search.passed_over.append(f"c: variant {variant.id}: this processor is not of class {variant.device_class}")
    usable = sorted((v for v in variants if v.device_class in runs_here), key=lambda v: runs_here.index(v.device_class))
    triple = cc.host_triple()
    compiler = cc.find_compiler() if any(triple not in v.prebuilt for v in usable) else None
    for variant in usable:
        if triple in variant.prebuilt:
            how = f"a library for {triple} is in the bundle"
        elif compiler is not None:
            how = f"compiled here by {compiler.version.splitlines()[0]}"
        else:
            search.passed_over.append(
                f"c: variant {variant.id}: no library for {triple} and no C compiler "
                "(install gcc or clang, or pip install tang-edge[c])"
            )
            continue

        def make(v: fmt.Variant = variant, c: cc.Compiler | None = compiler) -> Engine:
            return _make_c(bundle, v, c, threads)

        yield Choice(variant, _processor(), f"C for this processor (class {variant.device_class}), {how}", make)


def _make_c(bundle: Bundle, variant: fmt.Variant, compiler: cc.Compiler | None, threads: int) -> Engine:
    from tang_edge.c_fallback.host import CEngine

    member = variant.prebuilt.get(cc.host_triple())
    if member is not None:
        path = cc.cached_library(bundle.member(member), bundle.manifest.files[member][0])
    elif compiler is not None:
        path = cc.compile_library(bundle.text(variant.source), compiler, where=variant.source)
    else:
        raise DeviceError("there is neither a library nor a compiler", where=variant.id)
    return CEngine(bundle, variant, path, threads, _processor())


def _processor() -> str:
    return f"{platform.machine()} processor, {os.cpu_count() or 1} cores"


def nowhere(bundle: Bundle, device: str, trust: Trust, search: Search, errors: list[DeviceError | CompilerBug]) -> TangError:
    """The error to raise when no candidate is left, with all the reasons and what to do."""
    bug = next((e for e in errors if isinstance(e, CompilerBug)), None)
    if bug is not None:
        return bug
    if errors and len(search.passed_over) == 1:
        return errors[0]
    reasons, where = "; ".join(search.passed_over), str(bundle.path)
    if errors:
        return DeviceError(f"no device can run this bundle: {reasons}", where=where, remedy=errors[0].remedy)
    has_c = any(v.backend == "c" for v in bundle.plan.variants)
    if has_c and device != "webgpu" and not trust.granted:
        return BundleError(
            f"cannot run here: {reasons}",
            where=where,
            remedy="Load it with trust=True if you trust where it comes from, or use a WebGPU adapter.",
        )
    remedy = "Install a GPU driver with Vulkan (or Mesa's lavapipe) and the package wgpu"
    if device != "webgpu":
        remedy += ", or a C compiler (gcc, clang, or pip install tang-edge[c])"
    return DeviceError(f"there is no device for this bundle: {reasons}", where=where, remedy=f"{remedy}.")
