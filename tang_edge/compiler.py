"""The compiler, wired: an ONNX file (or a Program) to a bundle."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tang_edge import __version__
from tang_edge.bundle import write as bundle_write
from tang_edge.c_fallback import prebuild as prebuilding
from tang_edge.c_fallback.library import Library
from tang_edge.emit.plan import PlanWriter
from tang_edge.emit.sizes import to_json
from tang_edge.emit.unit import Unit
from tang_edge.errors import UnsupportedModel
from tang_edge.ir import affine, interp
from tang_edge.ir.dtype import Kind
from tang_edge.ir.kernel import Kernel
from tang_edge.ir.states import with_states
from tang_edge.ir.tensor import Bind, Constraint, Input, Program
from tang_edge.ir.text import structural_key
from tang_edge.onnx_in import DimRange, import_model
from tang_edge.rewrite.loops import explicit_carries
from tang_edge.rewrite.outputs import own_outputs
from tang_edge.rewrite.pipeline import optimize
from tang_edge.schedule import choose, variant
from tang_edge.schedule import records as record_files
from tang_edge.schedule.analysis import main_fold
from tang_edge.schedule.limits import Limits, classes_of
from tang_edge.wgsl.module import grid_of, kernel_module

Array = npt.NDArray[Any]
Progress = Callable[[str, int, int], None]  # stage, done, total
DEFAULT_TARGETS = ("laptop",)


@dataclass(frozen=True, slots=True)
class PackReport:
    """What `pack` made: counts for people and programs."""

    path: str
    manifest_sha256: str
    bytes: int
    dims: tuple[str, ...]
    notes: tuple[str, ...]
    variants: tuple[dict[str, Any], ...] = field(default=())


def _quiet(stage: str, done: int, total: int) -> None:
    """No progress wanted."""


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
    progress: Progress = _quiet,
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

    Raises:
        UnsupportedModel, TargetLimit, BundleError: see `tang_edge.errors`.
        InputError: `states` names no input and output of one type, or a triple of `prebuild` is not known.
        DeviceError: there is no compiler for a triple of `prebuild`.
    """
    classes_of(tuple(targets))  # wrong names are said before the work begins
    prebuilding.resolve(tuple(prebuild))
    progress("import", 0, 1)
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
        progress=progress,
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
    progress: Progress = _quiet,
    model_sha256: str = "",
    notes: Sequence[str] = (),
) -> PackReport:
    """Compile a tensor program into a bundle at `out`; the arguments are those of `pack`."""
    classes = classes_of(tuple(targets))
    source, found = with_states(source, states)
    check_extent(source)
    progress("rewrite", 0, 1)
    program = optimize(source)
    made = _variants(program, classes, records, progress)
    vectors = []
    if golden:
        progress("self-test vectors", 0, 1)
        vectors = [golden_vectors(source, program)]
    progress("write", 0, 1)
    plan, members = assemble(program, made, records)
    _prebuild(made, prebuilding.resolve(tuple(prebuild)), members, progress)
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
    return PackReport(str(out), digest, Path(out).stat().st_size, dims_text, (*notes, *found), summary)


def _variants(program: Program, classes: Sequence[Limits], records: Sequence[choose.Record], progress: Progress) -> list[Made]:
    made = []
    for k, limits in enumerate(classes):
        progress(f"schedule {limits.name}", k, len(classes))
        made.append(build_variant(program, limits, records))
    return made


@dataclass(frozen=True, slots=True)
class Made:
    """A variant with its text and its entry in the plan."""

    variant: variant.Variant
    member: str
    text: str
    plan: dict[str, Any]
    origin: dict[str, list[str]]


def build_variant(program: Program, limits: Limits, records: Sequence[choose.Record] = ()) -> Made:
    """Schedule and emit an optimised program for one device class."""
    program = explicit_carries(own_outputs(program))
    types = program.types()
    keys = {b.name: structural_key(b, types) for b in program.binds()} if records else None
    v = variant.build(program, limits, choose.Defaults(tuple(records), keys))
    return EMITTERS[limits.backend](v)


def _emit_wgsl(v: variant.Variant) -> Made:
    texts: dict[str, str] = {}

    def emit(k: Kernel, where: str, modes: Sequence[str]) -> tuple[str, Unit]:
        name, text, u = kernel_module(k, v.limits, where, modes)
        texts[name] = text
        return name, u

    name = f"webgpu-{v.limits.name}"
    writer = PlanWriter(v, emit, grid_of)
    member = f"kernels/{name}.wgsl"
    entry = writer.variant(name, member)
    text = "".join(f"//@kernel {k}\n{texts[k]}" for k in sorted(texts))
    return Made(v, member, text, entry, writer.origin)


def _emit_c(v: variant.Variant) -> Made:
    library = Library(v)
    text = library.text()
    name = f"c-{v.limits.name}"
    one = (affine.const(1),) * 3
    writer = PlanWriter(v, lambda k, where, modes: library.kernel(k, where), lambda k: one)
    member = f"kernels/{name}.c"
    return Made(v, member, text, writer.variant(name, member), writer.origin)


def _prebuild(made: Sequence[Made], triples: Sequence[str], members: dict[str, str | bytes], progress: Progress) -> None:
    """Add a compiled library for each C variant and triple that go together."""
    wanted = [(m, t) for m in made for t in triples if m.plan["backend"] == "c" and prebuilding.fits(t, m.plan["class"])]
    for k, (m, triple) in enumerate(wanted):
        progress(f"compile for {triple}", k, len(wanted))
        name = prebuilding.member(triple, m.plan["id"])
        members[name] = prebuilding.library(m.text, triple, m.plan["class"], m.member)
        m.plan.setdefault("prebuilt", {})[triple] = name


EMITTERS: dict[str, Callable[[variant.Variant], Made]] = {"webgpu": _emit_wgsl, "c": _emit_c}


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


# ---------------------------------------------------------------- self-test vectors


def random_inputs(inputs: Sequence[Input], sizes: Mapping[str, int], seed: int = 0) -> dict[str, Array]:
    """Seeded inputs: standard normal floats, small non-negative integers, coin-flip bools."""
    rng = np.random.Generator(np.random.PCG64(seed))
    out: dict[str, Array] = {}
    for i in inputs:
        shape = tuple(affine.evaluate(e, sizes) for e in i.type.shape)
        if i.type.dtype.is_float:
            out[i.name] = rng.standard_normal(shape).astype(i.type.dtype.numpy)
        elif i.type.dtype.kind is Kind.BOOL:
            out[i.name] = rng.integers(0, 2, shape).astype(bool)
        else:
            out[i.name] = rng.integers(0, 4, shape).astype(i.type.dtype.numpy)
    return out


def smallest_sizes(program: Program) -> dict[str, int]:
    """The least sizes within the ranges that satisfy every constraint (searched upward, one dimension at a time)."""
    sizes = {d.name: d.lo for d in program.dims}
    for d in program.dims:
        while sizes[d.name] < d.hi and not all(_holds(c, sizes) for c in program.constraints):
            before = sum(_gap(c, sizes) for c in program.constraints)
            trial = {**sizes, d.name: sizes[d.name] + d.multiple}
            if sum(_gap(c, trial) for c in program.constraints) > before:
                break
            sizes = trial
    return sizes


MOST_ELEMENTS = 1 << 31  # of one tensor at its smallest sizes: beyond, no device class can index or hold it


def check_extent(program: Program) -> None:
    """Raises UnsupportedModel, naming the tensor, when a tensor is too large even at the smallest sizes."""
    sizes = smallest_sizes(program)
    for name, t in program.types().items():
        count = 1
        for e in t.shape:
            count *= max(0, affine.evaluate(e, sizes))
        if count > MOST_ELEMENTS:
            remedy = f"Tensors of up to {MOST_ELEMENTS:,} elements are supported; give smaller sizes"
            raise UnsupportedModel(f"has {count:,} elements at the smallest sizes", where=f"tensor '{name}'", remedy=remedy)


def _gap(c: Constraint, sizes: Mapping[str, int]) -> int:
    return abs(affine.evaluate(c.left, sizes) - affine.evaluate(c.right, sizes))


def _holds(c: Constraint, sizes: Mapping[str, int]) -> bool:
    return _gap(c, sizes) == 0


def tolerance(program: Program) -> float:
    """Relative tolerance of a whole model against float64: c · eps · f(reduction length), f = sqrt, summed over the depth.

    Higham, Accuracy and Stability of Numerical Algorithms, section 4.2: the probable error of a sum of n terms grows with
    the square root of n. Errors of successive reductions add up in quadrature at worst linearly; c = 8 leaves room for that.
    """
    total = 0.0
    for b in program.binds():
        fold = main_fold(b)
        n = 1
        for a in fold.axes if fold else ():
            n *= max(1, affine.bounds(a.extent)[0])
        total += float(n) ** 0.5
    return max(1e-5, min(2e-3, 8 * 6e-8 * total))


def rounding(source: Program, inputs: Mapping[str, Array], exact: Mapping[str, Array]) -> float:
    """How far the declared precision is from float64 on these inputs: the greatest |x - e| / (1 + |e|) over finite outputs.

    A model may be ill-conditioned at its own test vector (a normalisation of equal numbers): no device can do better there.
    """
    worst = 0.0
    for name, value in interp.run(source, inputs).items():
        x, e = np.asarray(value, np.float64), np.asarray(exact[name], np.float64)
        with np.errstate(invalid="ignore"):
            away = np.abs(x - e) / (1 + np.abs(e))
        worst = max(worst, float(np.max(away[np.isfinite(away)], initial=0.0)))
    return worst


def golden_vectors(source: Program, program: Program) -> bundle_write.GoldenVectors:
    """Inputs and float64 results of the unfused program at the smallest sizes, with samples of every step's tensor."""
    sizes = smallest_sizes(source)
    inputs = random_inputs(source.inputs, sizes)
    names = {b.name for b in program.binds()}
    values = interp.run(source, inputs, floats="f64", keep=names)
    types = program.types()
    arrays: dict[str, Array] = {f"in/{k}": v for k, v in inputs.items()}
    for name, tensor in program.outputs:
        arrays[f"out/{name}"] = np.asarray(values[name]).astype(types[tensor].dtype.numpy)
    top = {i.name for i in program.items if isinstance(i, Bind)}
    for b in program.binds():
        if b.name in values and b.name in top:
            flat = np.asarray(values[b.name], dtype=np.float64).ravel()
            arrays[f"step/{b.name}"] = flat[bundle_write.sample_indices(flat.size)]
    found = rounding(source, inputs, values)
    # a power of two, so that the last bits of a machine's float64 do not show in the plan
    rtol = max(tolerance(program), 8 * 2.0 ** math.ceil(math.log2(found)) if found else 0.0)
    return bundle_write.GoldenVectors(sizes, arrays, rtol, rtol)
