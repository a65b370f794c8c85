"""The compiler, wired: an ONNX file (or a Program) to a bundle."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tang_edge import __version__
from tang_edge.bundle import write as bundle_write
from tang_edge.c_fallback import prebuild as prebuilding
from tang_edge.c_fallback.library import Library
from tang_edge.emit.plan import PlanWriter
from tang_edge.emit.sizes import to_json
from tang_edge.emit.unit import Unit
from tang_edge.errors import TargetLimit
from tang_edge.ir import affine
from tang_edge.ir.kernel import Kernel
from tang_edge.ir.states import with_states
from tang_edge.ir.tensor import Program
from tang_edge.ir.text import structural_key
from tang_edge.observe import Observer
from tang_edge.onnx_in import DimRange, import_model
from tang_edge.rewrite.loops import explicit_carries
from tang_edge.rewrite.outputs import own_outputs
from tang_edge.rewrite.pipeline import PASSES, Pass, optimize
from tang_edge.schedule import choose, variant
from tang_edge.schedule import records as record_files
from tang_edge.schedule.limits import Limits, classes_of
from tang_edge.vectors import check_extent, golden_vectors
from tang_edge.wgsl.module import grid_of, kernel_module

DEFAULT_TARGETS = ("laptop",)
NOBODY = Observer()


@dataclass(frozen=True, slots=True)
class PackReport:
    """What `pack` made: counts for people and programs."""

    path: str
    manifest_sha256: str
    bytes: int
    dims: tuple[str, ...]
    notes: tuple[str, ...]
    variants: tuple[dict[str, Any], ...] = field(default=())


def pack(
    model: str | Path,
    out: str | Path,
    *,
    targets: Sequence[str] = DEFAULT_TARGETS,
    dims: Mapping[str, DimRange] | None = None,
    states: Sequence[str] | None = None,
    records: Sequence[choose.Record] = (),
    prebuild: Sequence[str] = (),
    golden: bool = True,
    allow_nan: bool = False,
    remember: bool = True,
    observer: Observer = NOBODY,
) -> PackReport:
    """Compile an ONNX model into a bundle at `out`.

    Args:
        targets: names of `limits.TARGETS`; the variants of their device classes go into the bundle.
        dims: ranges of named dimensions; a range of one value fixes the dimension.
        states: "input=output" pairs that a session keeps between runs; not given: the pairs that `ir.states` finds by name and
            type; (): none.
        records: measured choices among alternates (an explicit input, never the user's cache).
        prebuild: triples ("host", "aarch64-linux-musl", ...) for which compiled libraries of the C variants go along, so that
            no compiler is needed there.
        golden: compute self-test vectors with the float64 interpreter at the smallest legal sizes.
        observer: is told of stages, passes and kernels as they come.

    Raises:
        UnsupportedModel, TargetLimit, BundleError: see `tang_edge.errors`.
        InputError: `states` names no input and output of one type, or a triple of `prebuild` is not known.
        DeviceError: there is no compiler for a triple of `prebuild`.
    """
    classes_of(tuple(targets))  # wrong names are said before the work begins
    prebuilding.resolve(tuple(prebuild))
    observer.stage("import", 0, 1)
    imported = import_model(model, dim_ranges=dims, allow_nan=allow_nan)
    return pack_program(
        imported.program,
        out,
        name=Path(model).stem,
        targets=targets,
        states=states,
        records=records,
        prebuild=prebuild,
        golden=golden,
        remember=remember,
        observer=observer,
        model_sha256=imported.model_sha256,
        notes=imported.notes,
    )


def pack_program(
    source: Program,
    out: str | Path,
    *,
    name: str = "",
    targets: Sequence[str] = DEFAULT_TARGETS,
    states: Sequence[str] | None = None,
    records: Sequence[choose.Record] = (),
    prebuild: Sequence[str] = (),
    golden: bool = True,
    remember: bool = True,
    observer: Observer = NOBODY,
    model_sha256: str = "",
    notes: Sequence[str] = (),
) -> PackReport:
    """Compile a tensor program into a bundle at `out`; the arguments are those of `pack`."""
    classes, left_out = _with_libraries(classes_of(tuple(targets)))
    source, found = with_states(source, states)
    check_extent(source)
    program = _rewritten(source, observer)
    made, refused = _variants(program, classes, records, observer)
    vectors = []
    if golden:
        observer.stage("self-test vectors", 0, 1)
        vectors = [golden_vectors(source, program, partial(observer.stage, "self-test vectors"))]
    observer.stage("write", 0, 1)
    plan, members = assemble(program, made, records)
    add_libraries(made, prebuilding.resolve(tuple(prebuild)), members, observer)
    digest = bundle_write.write(
        out,
        name=name or source.name,
        plan=plan,
        members=members,
        constants=((c.name, np.asarray(c.data)) for c in program.constants),
        golden=vectors,
        created_by=f"tang-edge {__version__}",
        model_sha256=model_sha256,
        remember=remember,
    )
    summary = tuple(_summary(m) for m in made)
    dims_text = tuple(f"{d.name}: {d.lo}..{d.hi}{f' by {d.multiple}' if d.multiple > 1 else ''}" for d in program.dims)
    return PackReport(str(out), digest, Path(out).stat().st_size, dims_text, (*notes, *found, *left_out, *refused), summary)


def _with_libraries(classes: Sequence[Limits]) -> tuple[list[Limits], list[str]]:
    """The classes whose libraries can be made here, and a note for each of the others.

    Raises:
        TargetLimit: none is left.
    """
    able = [c for c in classes if not c.libraries or prebuilding.can_cross_compile()]
    if not able:
        raise TargetLimit("the WebAssembly library needs ziglang", where=classes[0].name, remedy=f"{prebuilding.GET_ZIG}.")
    notes = [f"the WebAssembly library was left out ({c.name}): {prebuilding.GET_ZIG}" for c in classes if c not in able]
    return able, notes


def _variants(
    program: Program, classes: Sequence[Limits], records: Sequence[choose.Record], observer: Observer
) -> tuple[list[Made], list[str]]:
    """The variants of the classes that can express the program, and a note for each of the others.

    Raises:
        TargetLimit: there is none; the refusal of the first class.
    """
    made: list[Made] = []
    refused: list[tuple[str, TargetLimit]] = []
    for limits in classes:
        try:
            made.append(build_variant(program, limits, records, observer))
        except TargetLimit as error:
            refused.append((limits.name, error))
    if not made and refused:
        raise refused[0][1]
    # the remedies are for who asked for that class alone
    return made, [f"the variant {name} was left out: {e.where}: {e.message}" for name, e in refused]


def _rewritten(source: Program, observer: Observer) -> Program:
    observer.imported(source)
    done = 0
    observer.stage("rewrite", done, len(PASSES))

    def passed(by: Pass, before: Program, after: Program) -> None:
        nonlocal done
        done += 1
        observer.stage("rewrite", done, len(PASSES))
        observer.rewritten(by, before, after)

    return optimize(source, observe=passed)


@dataclass(frozen=True, slots=True)
class Made:
    """A variant with its text and its entry in the plan."""

    variant: variant.Variant
    member: str
    text: str
    plan: dict[str, Any]
    origin: dict[str, list[str]]


def build_variant(program: Program, limits: Limits, records: Sequence[choose.Record] = (), observer: Observer = NOBODY) -> Made:
    """Schedule and emit an optimised program for one device class."""
    program = explicit_carries(own_outputs(program))
    types = program.types()
    keys = {b.name: structural_key(b, types) for b in program.binds()} if records else None
    told = partial(observer.stage, f"schedule {limits.name}")
    v = variant.build(program, limits, choose.Defaults(tuple(records), keys), told)
    return EMITTERS[limits.backend](v, observer)


def _emit_wgsl(v: variant.Variant, observer: Observer) -> Made:
    texts: dict[str, str] = {}
    name = f"webgpu-{v.limits.name}"

    def emit(k: Kernel, where: str, modes: Sequence[str], origin: Sequence[str], once: bool) -> tuple[str, Unit]:
        kernel, text, u = kernel_module(k, v.limits, where, modes, once)
        if kernel not in texts:
            texts[kernel] = text
            observer.kernel(name, kernel, origin, text)
        return kernel, u

    writer = PlanWriter(v, emit, grid_of)
    member = f"kernels/{name}.wgsl"
    entry = writer.variant(name, member)
    text = "".join(f"//@kernel {k}\n{texts[k]}" for k in sorted(texts))
    return Made(v, member, text, entry, writer.origin)


def _emit_c(v: variant.Variant, observer: Observer) -> Made:
    library = Library(v)
    text = library.text()
    name = f"c-{v.limits.name}"
    one = (affine.const(1),) * 3
    writer = PlanWriter(v, lambda k, where, modes, origin, once: library.kernel(k, where), lambda k: one)
    member = f"kernels/{name}.c"
    made = Made(v, member, text, writer.variant(name, member), writer.origin)
    observer.stage(f"schedule {v.limits.name}", 1, 1)
    return made


def add_libraries(
    made: Sequence[Made], triples: Sequence[str], members: dict[str, str | bytes], observer: Observer = NOBODY
) -> None:
    """Add a compiled library for each C variant and triple that go together, and those that a class always has."""
    wanted = [
        (m, t)
        for m in made
        for t in m.variant.limits.libraries or triples
        if t in m.variant.limits.libraries or (m.plan["backend"] == "c" and prebuilding.fits(t, m.plan["class"]))
    ]
    for k, (m, triple) in enumerate(wanted):
        observer.stage(f"compile for {triple}", k, len(wanted))
        name = prebuilding.member(triple, m.plan["id"])
        members[name] = prebuilding.library(m.text, triple, m.plan["class"], m.member)
        m.plan.setdefault("prebuilt", {})[triple] = name


EMITTERS: dict[str, Callable[[variant.Variant, Observer], Made]] = {"webgpu": _emit_wgsl, "c": _emit_c}


def assemble(
    program: Program, made: Sequence[Made], records: Sequence[choose.Record] = ()
) -> tuple[dict[str, Any], dict[str, str | bytes]]:
    """The plan and the text members of a bundle."""
    types = program.types()

    def port(name: str, tensor: str) -> dict[str, Any]:
        t = types[tensor]
        return {"name": name, "dtype": t.dtype.name, "shape": [to_json(e) for e in t.shape]}

    states = [_state(program, s.input, s.output) for s in program.states]
    plan = {
        "version": [1, 0],
        "dims": [{"name": d.name, "min": d.lo, "max": d.hi, "multiple": d.multiple} for d in program.dims],
        "constraints": [{"left": to_json(c.left), "right": to_json(c.right), "why": c.why} for c in program.constraints],
        "inputs": [port(i.name, i.name) for i in program.inputs],
        "outputs": [port(name, tensor) for name, tensor in program.outputs],
        "states": states,
        "variants": [m.plan for m in made],
    }
    members: dict[str, str | bytes] = {m.member: m.text for m in made}
    keys = {b.name: structural_key(b, types) for b in program.binds()}
    explained = {"kernels": {m.plan["id"]: m.origin for m in made}, "keys": keys}
    members["explain.json"] = json.dumps(explained, sort_keys=True, indent=1)
    if records:
        members["records.json"] = record_files.dump(tuple(records))
    return plan, members


def _state(program: Program, source: str, result: str) -> dict[str, Any]:
    t = program.types()[source]
    shape = [to_json(e) for e in t.shape]
    return {"input": source, "output": result, "shape": shape, "dtype": t.dtype.name, "reset": "zeros"}


def _summary(m: Made) -> dict[str, Any]:
    steps = variant.flat(m.variant.steps)
    return {
        "id": m.plan["id"],
        "class": m.variant.limits.name,
        "steps": len(steps),
        "kernels": len(m.plan["kernels"]),
        "prologue": len(m.variant.prologue),
        "text_bytes": len(m.text),
    }
