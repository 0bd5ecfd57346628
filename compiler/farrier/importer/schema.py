"""Holds nodes against ONNX's own declarations: attribute types, required attributes, arity."""

from __future__ import annotations

import onnx

from farrier.errors import InvalidModelError
from farrier.importer.limits import MICROSOFT
from farrier.importer.raw import describe, qualified_name, schema_of

# ONNX Runtime writes it in ONNX's own domain, which does not know it.
_UNDECLARED = frozenset(("SimplifiedLayerNormalization",))


def check_node(node: onnx.NodeProto, opset: int) -> None:
    """Raises InvalidModelError where the node is no legal use of its operator in `opset`.

    So the operators' rules may take attributes to be of the declared types. Of other domains ONNX
    declares nothing: what is malformed there, their rewrites find.
    """
    schema = schema_of(qualified_name(node), opset)
    if schema is None and (node.domain == MICROSOFT or node.op_type in _UNDECLARED):
        return
    where = f"node {describe(node)!r} ({node.op_type})"
    if schema is None:
        raise InvalidModelError(f"{where}: opset {opset} has no such operator")
    given = {attribute.name: attribute for attribute in node.attribute}
    for name, declared in schema.attributes.items():
        if name not in given:
            if declared.required:
                raise InvalidModelError(f"{where} lacks the attribute {name!r}")
        elif given[name].type != declared.type.value:
            kinds = onnx.AttributeProto.AttributeType
            raise InvalidModelError(
                f"{where}: attribute {name!r} is {kinds.Name(given[name].type)}, and must be "
                f"{kinds.Name(declared.type.value)}"
            )
    for what, count, low, high in (
        ("inputs", len(node.input), schema.min_input, schema.max_input),
        ("outputs", len(node.output), schema.min_output, schema.max_output),
    ):
        if not low <= count <= high:
            raise InvalidModelError(f"{where} has {count} {what}, not {low} to {high}")
