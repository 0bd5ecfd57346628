"""Check nodes against ONNX's schemas: attributes, numbers of inputs and outputs, element types."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import onnx

from farrier.errors import InvalidModelError
from farrier.frontends.builder.node import RawNode
from farrier.frontends.onnx.importer.limits import MICROSOFT
from farrier.frontends.onnx.importer.raw import describe, qualified_name, schema_of
from farrier.frontends.onnx.importer.rewrites import experimental
from farrier.frontends.onnx.importer.tensors import code_of
from farrier.ir.types import DType
from farrier.ops import import_of

# ONNX Runtime writes the first in ONNX's own domain, which does not declare it. The last two were
# experiments before ONNX declared them.
_UNDECLARED = frozenset(
    (
        "SimplifiedLayerNormalization",
        *experimental.RULES,
        "ThresholdedRelu",
        "MeanVarianceNormalization",
    )
)


def check_node(node: onnx.NodeProto, opset: int) -> None:
    """Raise InvalidModelError if a node is not a valid use of its operator in `opset`.

    Rewrites may therefore assume attributes of the declared types. ONNX has no schemas for other
    domains, whose rewrites check their nodes themselves.
    """
    if import_of(qualified_name(node)) is not None:
        return
    schema = schema_of(qualified_name(node), opset)
    if schema is None and (node.domain == MICROSOFT or node.op_type in _UNDECLARED):
        return
    where = f"node {describe(node)!r} ({node.op_type})"
    if schema is None:
        raise InvalidModelError(f"{where}: opset {opset} has no such operator")
    attributes = {attribute.name: attribute for attribute in node.attribute}
    for name, declared in schema.attributes.items():
        if name not in attributes:
            if declared.required:
                raise InvalidModelError(f"{where} lacks the attribute {name!r}")
        elif attributes[name].type != declared.type.value:
            kinds = onnx.AttributeProto.AttributeType
            raise InvalidModelError(
                f"{where}: attribute {name!r} is {kinds.Name(attributes[name].type)}, and must be "
                f"{kinds.Name(declared.type.value)}"
            )
    for name in attributes:
        if name not in schema.attributes:
            raise InvalidModelError(f"{where} has no attribute {name!r} in opset {opset}")
    for what, count, low, high in (
        ("inputs", len(node.input), schema.min_input, schema.max_input),
        ("outputs", len(node.output), schema.min_output, schema.max_output),
    ):
        if not low <= count <= high:
            raise InvalidModelError(f"{where} has {count} {what}, not {low} to {high}")


def check_types(node: RawNode, opset: int, dtypes: Sequence[DType | None]) -> None:
    """Raise InvalidModelError if the operator does not accept operands of these dtypes, or not
    together. `dtypes` are None for operands that are omitted, or not tensors."""
    variables: dict[str, DType] = {}
    for position, dtype in enumerate(dtypes):
        variable, allowed, is_shared = _declared(node.op, opset, position)
        if dtype is None or not allowed:
            continue
        where = f"node {node.origin!r} ({node.op}): its input {position} is {dtype}"
        if dtype not in allowed:
            raise InvalidModelError(f"{where}, and must be one of {', '.join(map(str, allowed))}")
        if is_shared and variables.setdefault(variable, dtype) is not dtype:
            raise InvalidModelError(f"{where}, and another is {variables[variable]}")


_NAMES = {
    f"tensor({onnx.TensorProto.DataType.Name(code_of(dtype)).lower()})": dtype for dtype in DType
}


@functools.cache
def _declared(op: str, opset: int, position: int) -> tuple[str, tuple[DType, ...], bool]:
    """Return three facts about an input from the operator's schema: the name of its type variable,
    the dtypes that it may have, and whether all inputs with the same variable must have one dtype.
    Without a schema, the tuple of dtypes is empty."""
    schema = schema_of(op, opset)
    if schema is None or not schema.inputs:
        return "", (), False
    declared = schema.inputs[min(position, len(schema.inputs) - 1)]
    names = declared.types
    return (
        declared.type_str,
        tuple(dtype for name, dtype in _NAMES.items() if name in names),
        declared.is_homogeneous,
    )
