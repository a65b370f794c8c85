"""Operators that ONNX defines as functions of other operators: read by reading the function's body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tang_edge.onnx_in import proto as onnx
from tang_edge.onnx_in.node import Node
from tang_edge.onnx_in.proto import FunctionProto, NodeProto, OpSchema, TypeProto
from tang_edge.onnx_in.values import ONNX_DTYPES, Value


def has_body(op: str, domain: str, opset: int) -> bool:
    """True when ONNX defines the operator as a function at this opset."""
    return _version(op, domain, opset) is not None


def _version(op: str, domain: str, opset: int) -> tuple[OpSchema, int] | None:
    schema = onnx.schema(op, domain, opset)
    if schema is None:
        return None
    versions = [*_versions(schema), *_versions(schema, "context_dependent_")]
    fitting = [v for v in versions if v <= opset]
    return (schema, max(fitting)) if fitting else None


def _versions(schema: OpSchema, kind: str = "") -> list[int]:
    return list(getattr(schema, f"{kind}function_opset_versions"))


def _call(schema: OpSchema, method: str, *args: Any) -> bytes:
    """A method that onnx has but does not declare to type checkers."""
    return bytes(getattr(schema, method)(*args))


def body_of(node: Node) -> FunctionProto | None:
    """The function that defines a node's operator for the types of its inputs, or None."""
    found = _version(node.op, node.proto.domain, node.opset)
    if found is None:
        return None
    schema, version = found
    if version in _versions(schema):
        raw = _call(schema, "get_function_with_opset_version", version)
    else:
        types = [_type_of(v).SerializeToString() for v in node.inputs]
        request = node.proto.SerializeToString()
        raw = _call(schema, "get_context_dependent_function_with_opset_version", version, request, types)
    body = FunctionProto()
    body.ParseFromString(raw)
    return body if body.node else None


def _type_of(v: Value | None) -> TypeProto:
    t = TypeProto()
    if v is not None:
        elem = next(k for k, d in ONNX_DTYPES.items() if d is v.dtype)
        t.tensor_type.elem_type = elem
        t.tensor_type.shape.SetInParent()
        for e in v.shape:
            d = t.tensor_type.shape.dim.add()
            if e.constant is not None:
                d.dim_value = e.constant
    return t


def expand(node: Node, body: FunctionProto) -> None:
    """Read a node through a function's body: parameters stand for its inputs, its results for its outputs."""
    from tang_edge.onnx_in.importer import Scope

    importer = node.importer
    scope = Scope(importer)
    for k, name in enumerate(body.input):
        v = node.opt(k)
        if v is not None:
            scope.values[name] = v
    for name, out in zip(body.output, node.proto.output, strict=False):
        if out:
            scope.renamed[name] = node.scope.ir_name(out)
    attributes = {a.name: a for a in body.attribute_proto} | {a.name: a for a in node.proto.attribute}
    outside = importer.opsets
    importer.opsets = {**outside, **{o.domain: o.version for o in body.opset_import}}
    try:
        for proto in body.node:
            inner = _bound(proto, attributes, node, set(body.input) - set(scope.values))
            for name in inner.output:
                scope.renamed.setdefault(name, importer.unique(f"{node.title}/{name}"))
            importer.run_node(inner, scope)
    finally:
        importer.opsets = outside
    for k, (name, out) in enumerate(zip(body.output, node.proto.output, strict=False)):
        result = scope.find(name)
        if out and result is not None:
            node.alias(result, k)


def _bound(proto: NodeProto, attributes: Mapping[str, onnx.AttributeProto], outer: Node, absent: set[str]) -> NodeProto:
    """A node of a body with its references to the function's attributes resolved."""
    inner = NodeProto()
    inner.CopyFrom(proto)
    inner.name = f"{outer.title}/{proto.name or proto.op_type}"
    for k, name in enumerate(inner.input):
        if name in absent:
            inner.input[k] = ""
    del inner.attribute[:]
    for a in proto.attribute:
        if not a.ref_attr_name:
            inner.attribute.add().CopyFrom(a)
        elif a.ref_attr_name in attributes:
            bound = inner.attribute.add()
            bound.CopyFrom(attributes[a.ref_attr_name])
            bound.name = a.name
    return inner
