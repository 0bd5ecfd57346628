"""Operators that ONNX defines as functions of other operators: return a node's function body."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import onnx

from farrier.frontends.builder.node import RawNode
from farrier.frontends.onnx.importer.raw import schema_of, to_proto
from farrier.frontends.onnx.importer.tensors import code_of
from farrier.ir.types import TensorType


def is_function(op: str, opset: int) -> bool:
    """Check whether any version of the operator, given by qualified name, is defined by ONNX as a
    function of other operators."""
    schema = schema_of(op, opset)
    return schema is not None and bool(schema.has_function or schema.has_context_dependent_function)


def expand(
    node: RawNode, opset: int, types: Sequence[TensorType | None], fresh: Callable[[], str]
) -> tuple[list[onnx.NodeProto], int] | None:
    """Return the nodes by which ONNX defines a node as a function, and the opset of these nodes.
    Return None if the operator is not defined as a function."""
    schema = schema_of(node.op, opset)
    body = None if schema is None else _body(schema, node, opset, types)
    if schema is None or body is None:
        return None
    versions = [entry.version for entry in body.opset_import if not entry.domain]
    attributes = {name: d.default_value for name, d in schema.attributes.items()}
    attributes |= {attribute.name: attribute for attribute in to_proto(node).attribute}
    values = dict(zip(body.input, [*node.inputs, *[""] * len(body.input)], strict=False))
    values |= {o: n for o, n in zip(body.output, node.outputs, strict=False) if n}
    names = Renaming(values, lambda name: fresh())
    nodes = [instance(inner, names, attributes) for inner in body.node]
    for inner in nodes:
        inner.name = node.origin
    return nodes, int(versions[0]) if versions else opset


def _body(
    schema: onnx.defs.OpSchema, node: RawNode, opset: int, types: Sequence[TensorType | None]
) -> onnx.FunctionProto | None:
    if schema.has_function:
        version = _version(schema.function_opset_versions, opset)
        data = schema.get_function_with_opset_version(version)
    elif schema.has_context_dependent_function:
        version = _version(schema.context_dependent_function_opset_versions, opset)
        data = schema.get_context_dependent_function_with_opset_version(
            version, to_proto(node).SerializeToString(), [_type(kind) for kind in types]
        )
    else:
        return None
    body = onnx.FunctionProto()
    body.ParseFromString(data)
    return body if body.node else None


def _version(versions: Sequence[int], opset: int) -> int:
    """Return the newest of `versions` that is at most `opset`, or else the oldest."""
    return max((v for v in versions if v <= opset), default=min(versions))


def _type(kind: TensorType | None) -> bytes:
    """Serialize a type. A symbolic extent becomes a named dim whose name is its formula, so that
    equal extents have the same name."""
    proto = onnx.TypeProto()
    if kind is not None:
        dims = [extent if isinstance(extent, int) else str(extent) for extent in kind.shape]
        proto = onnx.helper.make_tensor_type_proto(code_of(kind.dtype), dims)
    return bytes(proto.SerializeToString())


class Renaming(dict[str, str]):
    """A map from the names in a function body to names in the calling graph. A value that is
    neither an input nor an output of the call gets a fresh name when it is first looked up."""

    def __init__(self, values: Mapping[str, str], fresh: Callable[[str], str]) -> None:
        super().__init__(values)
        self._fresh = fresh

    def __missing__(self, name: str) -> str:
        self[name] = fresh = self._fresh(name) if name else ""
        return fresh


def instance(
    node: onnx.NodeProto, names: Renaming, attributes: Mapping[str, onnx.AttributeProto]
) -> onnx.NodeProto:
    """Return a copy of a node of a function body for one call. Its values are renamed by `names`,
    and references to the function's attributes are replaced by the call's `attributes`."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.input[:] = [names[name] for name in node.input]
    copy.output[:] = [names[name] for name in node.output]
    del copy.attribute[:]
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            value = attributes.get(attribute.ref_attr_name)
            if value is not None and value.type != onnx.AttributeProto.UNDEFINED:
                copy.attribute.add().CopyFrom(value)
                copy.attribute[-1].name = attribute.name
            continue
        kept = copy.attribute.add()
        kept.CopyFrom(attribute)
        if attribute.type == onnx.AttributeProto.GRAPH:
            _rename(kept.g, names, attributes)
    return copy


def _rename(
    graph: onnx.GraphProto, names: Renaming, attributes: Mapping[str, onnx.AttributeProto]
) -> None:
    """Rename all values in a nested graph of a function body, and replace references to the
    function's attributes by the call's `attributes`. Values that the graph defines itself are also
    renamed, because the calling graph may have values with the same names."""
    nodes = [instance(node, names, attributes) for node in graph.node]
    graph.ClearField("node")
    graph.node.extend(nodes)
    sparse = (tensor.values for tensor in graph.sparse_initializer)
    for named in (*graph.input, *graph.output, *graph.initializer, *sparse):
        named.name = names[named.name]
