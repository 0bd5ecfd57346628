"""Operators that ONNX defines by others: the body of a node, with the node's types known."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx

from farrier.importer.raw import RawNode, schema_of, to_proto
from farrier.importer.tensors import code_of
from farrier.ir.types import TensorType


def is_function(op: str, opset: int) -> bool:
    """Whether ONNX defines the operator of that qualified name by others, in any of its forms."""
    schema = schema_of(op, opset)
    return schema is not None and bool(schema.has_function or schema.has_context_dependent_function)


def expand(
    node: RawNode, opset: int, types: Sequence[TensorType | None], fresh: Callable[[], str]
) -> tuple[list[onnx.NodeProto], int] | None:
    """The nodes of the node's definition and their opset; None where ONNX has none for it.

    `types` are of the inputs, None for omitted ones. The body's values get fresh names; what it
    leaves out of the node's inputs and outputs is "".
    """
    schema = schema_of(node.op, opset)
    body = None if schema is None else _body(schema, node, opset, types)
    if schema is None or body is None:
        return None
    versions = [entry.version for entry in body.opset_import if not entry.domain]
    attributes = {name: d.default_value for name, d in schema.attributes.items()}
    attributes |= {attribute.name: attribute for attribute in to_proto(node).attribute}
    given = dict(zip(body.input, [*node.inputs, *[""] * len(body.input)], strict=False))
    names = given | {o: n for o, n in zip(body.output, node.outputs, strict=False) if n}
    for inner in body.node:
        for output in inner.output:
            if output and output not in names:
                names[output] = fresh()
    made = [_instance(inner, names, attributes) for inner in body.node]
    for inner in made:
        inner.name = node.origin
    return made, int(versions[0]) if versions else opset


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
    """The newest definition that is no newer than the model, or the oldest."""
    return max((v for v in versions if v <= opset), default=min(versions))


def _type(kind: TensorType | None) -> bytes:
    """An open dim is a name: its formula, so that equal ones are one."""
    proto = onnx.TypeProto()
    if kind is not None:
        dims = [extent if isinstance(extent, int) else str(extent) for extent in kind.shape]
        proto = onnx.helper.make_tensor_type_proto(code_of(kind.dtype), dims)
    return bytes(proto.SerializeToString())


def _instance(
    node: onnx.NodeProto,
    names: dict[str, str],
    attributes: dict[str, onnx.AttributeProto],
) -> onnx.NodeProto:
    """A body's node under the caller's names, with the caller's attributes."""
    made = onnx.NodeProto()
    made.CopyFrom(node)
    made.input[:] = [names.get(name, name) for name in node.input]
    made.output[:] = [names.get(name, name) for name in node.output]
    del made.attribute[:]
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            value = attributes.get(attribute.ref_attr_name)
            if value is not None and value.type != onnx.AttributeProto.UNDEFINED:
                made.attribute.add().CopyFrom(value)
                made.attribute[-1].name = attribute.name
            continue
        kept = made.attribute.add()
        kept.CopyFrom(attribute)
        if attribute.HasField("g"):
            inner = [_instance(n, names, attributes) for n in attribute.g.node]
            del kept.g.node[:]
            kept.g.node.extend(inner)
            for output in kept.g.output:
                output.name = names.get(output.name, output.name)
    return made
