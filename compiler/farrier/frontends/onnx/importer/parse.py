"""Parse model bytes to a protobuf message, with the checks that need no type inference."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import NamedTuple

import onnx
from google.protobuf.message import DecodeError

from farrier.errors import InvalidModelError
from farrier.frontends.onnx.importer.formats import other_format
from farrier.frontends.onnx.importer.inlining import inline
from farrier.frontends.onnx.importer.limits import DOMAINS, NEWEST_OPSET, OLDEST_OPSET
from farrier.frontends.onnx.importer.raw import graphs_of, initialized, nodes_in, nodes_of
from farrier.frontends.onnx.importer.wire import split
from farrier.frontends.onnx.model.file import MAX_BYTES, Model, model_of


class Parsed(NamedTuple):
    """A model's message without the elements of large initializers; `elements` has their raw bytes
    by name."""

    model: onnx.ModelProto
    elements: Mapping[str, memoryview]


def parse(model: Model | bytes) -> Parsed:
    """Return the parsed model with its local functions inlined. Raises InvalidModelError."""
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
        raise _not_a_model(
            data,
            f"{len(data)} bytes are no ONNX model: truncated, or not protobuf",
            "upload the file again, and check it with onnx.checker",
        ) from error
    if not proto.HasField("graph") or not proto.graph.output:
        raise _not_a_model(data, "the model has no graph with outputs: is this an ONNX file?")
    _check_names(proto)
    opset(proto)
    for entry in _imports(proto):
        if not 0 <= entry.version < 1 << 31:
            raise InvalidModelError(f"the model uses opset {entry.version} of {entry.domain!r}")
    return Parsed(inline(proto), elements)


def _not_a_model(data: bytes | memoryview, reason: str, hint: str = "") -> InvalidModelError:
    """Return the error for bytes that are not an ONNX model. It names the bytes' format if that is
    recognized, else it has `reason` and `hint`."""
    other = other_format(data)
    if other is None:
        return InvalidModelError(reason, hint=hint)
    return InvalidModelError(f"the file is not an ONNX model but {other[0]}", hint=other[1])


def _imports(model: onnx.ModelProto) -> list[onnx.OperatorSetIdProto]:
    """Return the opset imports of the model and of its functions."""
    inner = (function.opset_import for function in model.functions)
    return [*model.opset_import, *itertools.chain.from_iterable(inner)]


def opsets(model: onnx.ModelProto) -> dict[str, int]:
    """Return the version of each operator domain that the model imports; ONNX's own domain is
    ""."""
    versions = {entry.domain: int(entry.version) for entry in model.opset_import}
    return versions | {"": opset(model)}


def opset(model: onnx.ModelProto) -> int:
    """Return the version of ONNX's own domain that the model imports, or the newest one if the
    model does not use the domain. Raises InvalidModelError."""
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
    """Raise InvalidModelError for names that are not UTF-8, which protobuf returns as bytes."""
    names: list[object] = [entry.domain for entry in _imports(model)]
    nodes = [*nodes_in(model.graph)]
    for function in model.functions:
        names += [function.name, function.domain, function.overload]
        names += [*function.input, *function.output, *function.attribute]
        names += [default.name for default in function.attribute_proto]
        nodes += nodes_of(function)
    inner = itertools.chain.from_iterable(map(graphs_of, nodes))
    for graph in (model.graph, *inner):
        names += initialized(graph)
        for info in (*graph.input, *graph.output):
            names.append(info.name)
            names += [dim.dim_param for dim in info.type.tensor_type.shape.dim]
    for node in nodes:
        names += [node.name, node.op_type, node.domain, *node.input, *node.output]
        names += [attribute.name for attribute in node.attribute]
        names += [attribute.ref_attr_name for attribute in node.attribute]
    for name in names:
        if not isinstance(name, str):
            raise InvalidModelError(f"the name {name!r} is not UTF-8")
