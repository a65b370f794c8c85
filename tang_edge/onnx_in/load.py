"""An ONNX model from a path or bytes: parsed, checked, its local functions inlined, its operators all known."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from os import PathLike
from pathlib import Path

from google.protobuf.message import DecodeError

from tang_edge.errors import UnsupportedModel
from tang_edge.onnx_in import ops as _ops
from tang_edge.onnx_in import proto as onnx
from tang_edge.onnx_in import table
from tang_edge.onnx_in.functions import has_body
from tang_edge.onnx_in.order import sorted_nodes, subgraphs
from tang_edge.onnx_in.packed import quick
from tang_edge.onnx_in.proto import GraphProto, ModelProto, NodeProto

_ = _ops  # importing it fills the operator table

# protobuf in C says DecodeError; its pure-Python form, which is the one under WebAssembly, lets what happened through
_DAMAGED = (DecodeError, ValueError, IndexError, TypeError, RecursionError, struct.error)


def load(source: str | PathLike[str] | bytes) -> tuple[ModelProto, str | None, str]:
    """The model, its folder (None for bytes) and the SHA-256 of its file.

    Raises UnsupportedModel when it is no ONNX file, when it is truncated, and when it holds unknown
    operators.
    """
    if isinstance(source, (bytes, bytearray)):
        raw, folder, where = bytes(source), None, "model"
    else:
        path = Path(source)
        where, folder = str(path), str(path.parent)
        try:
            raw = path.read_bytes()
        except OSError as e:
            raise UnsupportedModel(
                f"cannot be read: {e.strerror or e}", where=where, remedy="Give the path of an ONNX file"
            ) from e
    model = _parse(raw, where)
    _check_names(model.graph, where)
    model = _expanded(model, where)
    _check_operators(model, where)
    return model, folder, hashlib.sha256(raw).hexdigest()


def _parse(raw: bytes, where: str) -> ModelProto:
    model = ModelProto()
    try:
        model.ParseFromString(quick(raw))
    except _DAMAGED as e:
        raise UnsupportedModel(
            "is not an ONNX model, or is truncated", where=where, remedy="Download or export it again"
        ) from e
    if not model.opset_import or not model.HasField("graph") or not model.graph.output:
        raise UnsupportedModel(
            "is not an ONNX model: it has no graph with outputs",
            where=where,
            remedy="Download or export it again",
        )
    return model


def _check_names(graph: GraphProto, where: str) -> None:
    """Raise UnsupportedModel when two nodes, or two weights, of a graph make tensors of one name: either could be meant."""
    made = (o for node in graph.node for o in node.output if o)
    for what, names in (("nodes", made), ("initialisers", (i.name for i in graph.initializer))):
        seen: set[str] = set()
        for name in names:
            if name in seen:
                remedy = "The model is malformed: run onnx.checker on it"
                raise UnsupportedModel(f"two {what} make a tensor '{name}'", where=where, remedy=remedy)
            seen.add(name)
    for node in graph.node:
        for g in subgraphs(node):
            _check_names(g, where)


def opsets_of(model: ModelProto) -> dict[str, int]:
    """The opset versions of a model by domain ("" is ONNX's own)."""
    return {("" if o.domain == "ai.onnx" else o.domain): o.version for o in model.opset_import}


def _expanded(model: ModelProto, where: str) -> ModelProto:
    """The model with its own functions inlined."""
    version = opsets_of(model).get("", 1)
    newest = onnx.newest_opset()
    if version > newest:
        raise UnsupportedModel(
            f"opset {version} is newer than {newest}, the newest known here",
            where=where,
            remedy=f"Export with opset {newest} or less, or update tang-edge and onnx",
        )
    try:
        if model.functions:
            model = onnx.inlined(model)
    except (RuntimeError, ValueError, onnx.InvalidModel) as e:
        raise UnsupportedModel(f"its functions cannot be inlined: {e}", where=where, remedy="Inline them in the export") from e
    return model


def all_nodes(graph: GraphProto) -> Iterator[NodeProto]:
    """The nodes of a graph that its outputs need, those in branches included."""
    for node in sorted_nodes(graph):
        yield node
        for g in subgraphs(node):
            yield from all_nodes(g)


def _check_operators(model: ModelProto, where: str) -> None:
    """Raise UnsupportedModel naming all operators of the model that the table lacks."""
    versions = opsets_of(model)
    missing: dict[str, list[str]] = {}
    for node in all_nodes(model.graph):
        opset = versions.get("" if node.domain in table.DOMAINS else node.domain, 1)
        known = table.find(node.op_type, node.domain, opset) is not None
        if not known and not has_body(node.op_type, node.domain, opset):
            name = node.op_type if node.domain in table.DOMAINS else f"{node.domain}::{node.op_type}"
            missing.setdefault(name, []).append(node.name or node.output[0])
    if missing:
        parts = [
            f"{name} ({len(nodes)}: {', '.join(map(repr, nodes[:3]))}{', ...' if len(nodes) > 3 else ''})"
            for name, nodes in missing.items()
        ]
        raise UnsupportedModel(
            f"{len(missing)} operator{'s' if len(missing) > 1 else ''} at opset {versions.get('', 1)} not "
            f"supported: {'; '.join(parts)}",
            where=where,
            remedy="Export with other operators, or cut the model before them",
        )
