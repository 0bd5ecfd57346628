"""ONNX nodes as plain Python data, which the upgrades rewrite."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import onnx

from farrier.errors import InvalidModelError
from farrier.importer.limits import DOMAINS
from farrier.importer.tensors import to_array


@dataclasses.dataclass
class RawNode:
    """A node as the model has it: omitted inputs are named "", attributes are Python values.

    An attribute that is a tensor is an array, one that is a graph its message."""

    op: str
    inputs: list[str]
    outputs: list[str]
    attrs: dict[str, Any]
    origin: str

    def input(self, position: int) -> str:
        """The name of an input, "" where it is omitted."""
        return self.inputs[position] if position < len(self.inputs) else ""


def qualified_name(node: onnx.NodeProto) -> str:
    """The operator's name, with its domain where that is not ONNX's own."""
    return str(node.op_type) if node.domain in DOMAINS else f"{node.domain}:{node.op_type}"


def describe(node: onnx.NodeProto) -> str:
    """What to call the node in messages: its name, or its first output."""
    return str(node.name or (node.output[0] if node.output else node.op_type))


def to_raw(node: onnx.NodeProto) -> RawNode:
    """Raises InvalidModelError for an attribute that is neither number, string, list, tensor nor
    graph."""
    origin = describe(node)
    attrs = {a.name: _attribute(a, f"{a.name!r} of node {origin!r}") for a in node.attribute}
    return RawNode(qualified_name(node), list(node.input), list(node.output), attrs, origin)


def to_proto(node: RawNode) -> onnx.NodeProto:
    """The inverse of `to_raw`."""
    domain, _, op = node.op.rpartition(":")
    proto = onnx.helper.make_node(op, node.inputs, node.outputs, node.origin, domain=domain)
    for name, value in node.attrs.items():
        tensor = onnx.numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
        proto.attribute.append(onnx.helper.make_attribute(name, tensor))
    return proto


@functools.cache
def schema_of(op: str, opset: int) -> onnx.defs.OpSchema | None:
    """ONNX's declaration of the operator of that qualified name; None where there is none."""
    domain, _, name = op.rpartition(":")
    try:
        return onnx.defs.get_schema(name, opset, domain)
    except onnx.defs.SchemaError:
        return None


def _attribute(attribute: onnx.AttributeProto, what: str) -> Any:
    kinds = onnx.AttributeProto
    try:
        match attribute.type:
            case kinds.FLOAT:
                return attribute.f
            case kinds.INT:
                return attribute.i
            case kinds.STRING:
                return attribute.s.decode()
            case kinds.FLOATS:
                return tuple(attribute.floats)
            case kinds.INTS:
                return tuple(attribute.ints)
            case kinds.STRINGS:
                return tuple(text.decode() for text in attribute.strings)
            case kinds.TENSOR:
                return to_array(attribute.t, what)
            case kinds.GRAPH:
                return attribute.g
    except UnicodeDecodeError as error:
        raise InvalidModelError(f"{what} is not UTF-8") from error
    raise InvalidModelError(f"{what} has a type that Farrier does not read")
