"""Convert ONNX nodes to `RawNode` (`builder.node`), which rewrites change, and back. A tensor
attribute becomes an array; a graph attribute stays a message."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import onnx

from farrier.errors import InvalidModelError
from farrier.frontends.builder.node import RawNode
from farrier.frontends.onnx.importer.limits import DOMAINS
from farrier.frontends.onnx.importer.tensors import dense_array, to_array
from farrier.frontends.onnx.model.file import Model


def reads_of(node: RawNode) -> list[str]:
    """Return the names that must be defined before a node: its operands, and names that its nested
    graphs read."""
    graphs = (a for a in node.attrs.values() if isinstance(a, onnx.GraphProto))
    inner = set().union(*map(free_names, graphs))
    return [name for name in (*node.inputs, *sorted(inner)) if name]


def graphs_of(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the graphs among a node's attributes."""
    return (a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH)


def graphs_in(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield the graph and its nested graphs, at any depth."""
    yield graph
    for node in graph.node:
        for inner in graphs_of(node):
            yield from graphs_in(inner)


def nodes_in(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a graph and of its nested graphs."""
    return (node for each in graphs_in(graph) for node in each.node)


def nodes_of(function: onnx.FunctionProto) -> list[onnx.NodeProto]:
    """Return the nodes of a function, including those in nested graphs."""
    inner = (nodes_in(graph) for node in function.node for graph in graphs_of(node))
    return [*function.node, *itertools.chain.from_iterable(inner)]


def names_read(nodes: Iterable[onnx.NodeProto]) -> Iterator[str]:
    """Yield the operands of nodes, and the operands and outputs of their nested graphs, possibly
    repeatedly."""
    for node in nodes:
        yield from node.input
        for graph in graphs_of(node):
            yield from names_read(graph.node)
            yield from (output.name for output in graph.output)


def initialized(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield the names of a graph's dense and sparse initializers."""
    yield from (tensor.name for tensor in graph.initializer)
    yield from (tensor.values.name for tensor in graph.sparse_initializer)


def free_names(graph: onnx.GraphProto) -> set[str]:
    """Return the names that a nested graph reads from the enclosing graphs."""
    own = {info.name for info in graph.input} | set(initialized(graph))
    own.update(name for node in graph.node for name in node.output)
    read = {output.name for output in graph.output}
    for node in graph.node:
        read.update(node.input)
        for inner in graphs_of(node):
            read |= free_names(inner)
    return read - own


def qualified_name(node: onnx.NodeProto) -> str:
    """Return the operator's name, prefixed with its domain unless that is ONNX's own."""
    return str(node.op_type) if node.domain in DOMAINS else f"{node.domain}:{node.op_type}"


def describe(node: onnx.NodeProto) -> str:
    """Return a node's name for messages: the node's own, or else the name of its first output."""
    return str(node.name or (node.output[0] if node.output else node.op_type))


def to_raw(node: onnx.NodeProto, files: Model | None = None) -> RawNode:
    """Convert a node; `files` has the external data of tensors. Raises InvalidModelError for an
    attribute that is not a number, string, list, tensor or graph."""
    origin = describe(node)
    attrs = {a.name: _attribute(a, f"{a.name!r} of node {origin!r}", files) for a in node.attribute}
    return RawNode(qualified_name(node), list(node.input), list(node.output), attrs, origin)


def to_proto(node: RawNode) -> onnx.NodeProto:
    """Convert a node back to a message; the inverse of `to_raw`."""
    domain, _, op = node.op.rpartition(":")
    proto = onnx.helper.make_node(op, node.inputs, node.outputs, node.origin, domain=domain)
    for name, value in node.attrs.items():
        tensor = onnx.numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
        proto.attribute.append(onnx.helper.make_attribute(name, tensor))
    return proto


@functools.cache
def schema_of(op: str, opset: int) -> onnx.defs.OpSchema | None:
    """Return ONNX's schema of the operator with that qualified name, or None."""
    domain, _, name = op.rpartition(":")
    try:
        return onnx.defs.get_schema(name, opset, domain)
    except onnx.defs.SchemaError:
        return None


def _attribute(attribute: onnx.AttributeProto, what: str, files: Model | None) -> Any:
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
                return to_array(attribute.t, what, files=files)
            case kinds.SPARSE_TENSOR:
                return dense_array(attribute.sparse_tensor, what, files)
            case kinds.GRAPH:
                return attribute.g
            case kinds.TYPE_PROTO:
                return attribute.tp
    except UnicodeDecodeError as error:
        raise InvalidModelError(f"{what} is not UTF-8") from error
    raise InvalidModelError(f"{what} has a type that Farrier does not read")
