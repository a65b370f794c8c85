"""`read_model`: an ONNX file as a tensor program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from os import PathLike

from tang_edge.ir.tensor import Builder, Constraint, Program, not_finite
from tang_edge.onnx_in.dims import DimRange, DimTable
from tang_edge.onnx_in.importer import Importer, Scope
from tang_edge.onnx_in.load import load, opsets_of
from tang_edge.onnx_in.proto import ModelProto
from tang_edge.onnx_in.prune import pruned
from tang_edge.onnx_in.refine import Refinement, refined, simplified

ROUNDS = 5  # imports at most: each round adds what the constraints of the one before imply


@dataclass(frozen=True)
class Imported:
    """A program and what the import found out.

    ranges        every named dimension's range
    notes         what the graph implies about dimensions, e.g. "x_2: multiple of 32 (implied by Add 'a')"
    model_sha256  of the model file
    """

    program: Program
    ranges: Mapping[str, DimRange]
    notes: tuple[str, ...]
    model_sha256: str


def read_model(
    source: str | PathLike[str] | bytes,
    *,
    dim_ranges: Mapping[str, DimRange] | None = None,
    allow_nan: bool = False,
    infer: bool = True,
) -> Program:
    """The tensor program of an ONNX model (a path, or the file's bytes).

    Args:
        dim_ranges: sizes of named dimensions (`dims.DEFAULT_RANGES` where none is given); lo == hi fixes one.
        allow_nan: accept weights that hold NaN; the program is then one of strict mathematics (`Program.finite_math`), as one
            with infinite weights always is.
        infer: narrow dimensions without a given range to the sizes for which the shapes fit.

    Raises UnsupportedModel, naming the node and a remedy; InputError for a range of an unknown dimension.
    """
    return import_model(source, dim_ranges=dim_ranges, allow_nan=allow_nan, infer=infer).program


def import_model(
    source: str | PathLike[str] | bytes,
    *,
    dim_ranges: Mapping[str, DimRange] | None = None,
    allow_nan: bool = False,
    infer: bool = True,
) -> Imported:
    """Like `read_model`, with the ranges of the dimensions and notes on what the graph implies about them."""
    model, folder, digest = load(source)
    given = dict(dim_ranges or {})
    known = Refinement()
    for _ in range(ROUNDS):
        importer, dims = _once(model, folder, given, known, allow_nan)
        new = tuple(importer.constraints.values())
        after = refined(known, new, importer.short, dims.ranges, dims.by_user) if infer else known
        if after == known:
            break
        known = after
    program = _finished(importer, known.kept + new)
    endless = tuple(f"{name}: holds infinities, so padding is multiplied" for name in not_finite(program.constants))
    return Imported(program, dims.ranges, known.notes + endless, digest)


def _once(
    model: ModelProto, folder: str | None, given: Mapping[str, DimRange], known: Refinement, allow_nan: bool
) -> tuple[Importer, DimTable]:
    dims = DimTable(given, known.ranges)
    builder = Builder(model.graph.name or "model")
    importer = Importer(builder, opsets_of(model), known.facts, folder, allow_nan)
    scope = Scope(importer)
    importer.inputs(model.graph, dims, scope)
    dims.check_all_used()
    importer.initialisers(model.graph, scope)
    importer.run(model.graph, scope)
    importer.outputs(model.graph, scope)
    return importer, dims


def _finished(importer: Importer, constraints: tuple[Constraint, ...]) -> Program:
    b = importer.builder
    b.items[:0] = importer.prelude
    b.dims = importer.dims()
    b.constraints = list(simplified(constraints))
    program = pruned(b.build())
    return replace(program, finite_math=not (importer.allow_nan or not_finite(program.constants)))
