"""Bytes → protobuf message, with the checks that need no types."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import onnx
from google.protobuf.message import DecodeError

from farrier.errors import InvalidModelError
from farrier.importer.limits import (
    DOMAINS,
    MAX_INLINED_BYTES,
    MAX_NODES,
    NEWEST_OPSET,
    OLDEST_OPSET,
)
from farrier.importer.raw import graphs_in, graphs_of, nodes_in
from farrier.importer.wire import split
from farrier.model.file import MAX_BYTES, Model, model_of


class Parsed(NamedTuple):
    """A model's message; `elements` are those of the graph's initializers that the message leaves
    out, by name, as they are stored raw."""

    model: onnx.ModelProto
    elements: Mapping[str, memoryview]


def parse(model: Model | bytes) -> Parsed:
    """The model, its local functions inlined; raises InvalidModelError."""
    data = model_of(model).message
    if not data:
        raise InvalidModelError("the model is empty: 0 bytes", hint="pass an .onnx file's bytes")
    if len(data) > MAX_BYTES:
        raise InvalidModelError(f"the model has {len(data)} bytes, and ONNX ends at 2 GiB")
    proto = onnx.ModelProto()
    message, elements = split(data)
    try:
        proto.ParseFromString(message)
    except DecodeError as error:
        raise InvalidModelError(
            f"{len(data)} bytes are no ONNX model: truncated, or not protobuf",
            hint="upload the file again, and check it with onnx.checker",
        ) from error
    if not proto.HasField("graph") or not proto.graph.output:
        raise InvalidModelError("the model has no graph with outputs: is this an ONNX file?")
    _check_names(proto)
    opset(proto)
    for entry in proto.opset_import:
        if not 0 <= entry.version < 1 << 31:
            raise InvalidModelError(f"the model uses opset {entry.version} of {entry.domain!r}")
    for graph in graphs_in(proto.graph):
        _refuse_sparse(graph)
    return Parsed(_inline(proto), elements)


def opsets(model: onnx.ModelProto) -> dict[str, int]:
    """The version of each domain's operators that the model uses; ONNX's own domain is ""."""
    versions = {entry.domain: int(entry.version) for entry in model.opset_import}
    return versions | {"": opset(model)}


def opset(model: onnx.ModelProto) -> int:
    """The version of ONNX's operators that the model uses, the newest where it uses none; raises
    InvalidModelError."""
    versions = [entry.version for entry in model.opset_import if entry.domain in DOMAINS]
    if not versions and all(node.domain not in DOMAINS for node in model.graph.node):
        return NEWEST_OPSET
    if not versions:
        raise InvalidModelError("the model does not say which opset of ai.onnx it uses")
    version = max(versions)
    if not OLDEST_OPSET <= version <= NEWEST_OPSET:
        raise InvalidModelError(
            f"the model uses opset {version}; Farrier reads {OLDEST_OPSET} to {NEWEST_OPSET}",
            hint="convert it with onnx.version_converter, or export it again with opset 17",
        )
    return int(version)


def _check_names(model: onnx.ModelProto) -> None:
    """Refuses names that are not UTF-8, which protobuf hands over as bytes."""
    names: list[object] = [entry.domain for entry in model.opset_import]
    for graph in graphs_in(model.graph):
        names += [tensor.name for tensor in graph.initializer]
        for info in (*graph.input, *graph.output):
            names.append(info.name)
            names += [dim.dim_param for dim in info.type.tensor_type.shape.dim]
        for node in graph.node:
            names += [node.name, node.op_type, node.domain, *node.input, *node.output]
            names += [attribute.name for attribute in node.attribute]
    for name in names:
        if not isinstance(name, str):
            raise InvalidModelError(f"the name {name!r} is not UTF-8")


def _refuse_sparse(graph: onnx.GraphProto) -> None:
    if graph.sparse_initializer:
        found = [tensor.values.name for tensor in graph.sparse_initializer]
        raise InvalidModelError(
            f"the model keeps {len(found)} tensors as sparse initializers "
            f"({', '.join(map(repr, found[:3]))})",
            hint="make them dense: onnx.numpy_helper, or export the model again",
        )


def _check_calls(model: onnx.ModelProto) -> None:
    """Refuses functions that call themselves, and more nodes or bytes than a model may have once
    all calls are inlined."""
    bodies: dict[tuple[str, str], list[onnx.NodeProto]] = {}
    for function in model.functions:
        inner = (nodes_in(graph) for node in function.node for graph in graphs_of(node))
        nodes = [*function.node, *itertools.chain.from_iterable(inner)]
        if bodies.setdefault((function.domain, function.name), nodes) is not nodes:
            raise InvalidModelError(f"two functions are named {function.domain}:{function.name}")
    sizes: dict[tuple[str, str], tuple[int, int]] = {}
    pending = list(bodies)
    entered: set[tuple[str, str]] = set()
    while pending:  # depth first: a function is done when what it calls is
        name = pending[-1]
        calls = [(node.domain, node.op_type) for node in bodies[name]]
        open_calls = [call for call in calls if call in bodies and call not in sizes]
        if name in sizes or not open_calls:
            pending.pop()
            sizes[name] = _size(bodies[name], sizes)
            continue
        if name in entered:
            raise InvalidModelError(f"the function {name[0]}:{name[1]} calls itself")
        entered.add(name)
        pending += open_calls
    count, nbytes = _size(list(nodes_in(model.graph)), sizes)
    if count > MAX_NODES or nbytes > model.ByteSize() + MAX_INLINED_BYTES:
        raise InvalidModelError(
            f"with its functions in place of their calls, the model has {count} nodes of {nbytes} "
            f"bytes; Farrier reads {MAX_NODES} nodes, and {MAX_INLINED_BYTES >> 20} MiB more than "
            "the model itself has"
        )


def _size(
    nodes: Sequence[onnx.NodeProto], sizes: Mapping[tuple[str, str], tuple[int, int]]
) -> tuple[int, int]:
    """Nodes and their bytes, calls counting as what they call."""
    found = [sizes.get((n.domain, n.op_type)) or (1, n.ByteSize()) for n in nodes]
    return sum(count for count, _ in found), sum(nbytes for _, nbytes in found)


def _inline(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the bodies of its own functions in place of their calls."""
    from onnx import inliner

    if not model.functions:
        return model
    _check_calls(model)
    try:
        return inliner.inline_local_functions(model)
    except Exception as error:  # the inliner is native code and raises what it likes
        raise InvalidModelError(f"its functions cannot be inlined: {error}") from error
