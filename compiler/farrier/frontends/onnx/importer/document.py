"""The inspection report of an ONNX model (`frontends/inspection.py`)."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
from collections.abc import Iterable, Mapping

import onnx

from farrier.artifact.declaration import DeclaredValue
from farrier.errors import FarrierError, InvalidModelError
from farrier.frontends.builder.signature import resolve
from farrier.frontends.inspection import (
    MOST_NAMES,
    MOST_NUMBER,
    Dims,
    DrawnNode,
    Inspection,
    ModelGraph,
    OperatorUse,
    Parameters,
    Tensor,
    draw,
    failed,
    shown,
    with_import,
)
from farrier.frontends.onnx.importer.build import import_model
from farrier.frontends.onnx.importer.declared import declaration
from farrier.frontends.onnx.importer.inputs import declared_inputs
from farrier.frontends.onnx.importer.limits import DOMAINS
from farrier.frontends.onnx.importer.parse import opset
from farrier.frontends.onnx.importer.raw import (
    describe,
    graphs_in,
    initialized,
    names_read,
    nodes_in,
    qualified_name,
)
from farrier.frontends.onnx.importer.reading import reading_of
from farrier.frontends.onnx.importer.tensors import dtype_of
from farrier.frontends.onnx.importer.unknown import is_unknown
from farrier.frontends.onnx.model.file import Model, model_of


def inspection(data: Model | bytes) -> Inspection:
    """Return the report on a model; for bytes that are not an ONNX model, a report with that
    reason. Raises only errors that the model did not cause, such as MemoryError."""
    model = model_of(data)
    whole = Inspection(shown(model.name))
    try:
        proto = reading_of(model).model
    except FarrierError as error:
        return failed(whole, error)
    graph = proto.graph
    whole = dataclasses.replace(
        whole,
        producer=shown(f"{proto.producer_name} {proto.producer_version}".strip()),
        opset=opset(proto),
        parameters=_parameters(graph),
        operators=_operators(reading_of(model).opsets, graph),
        graph=_graph(graph),
    )
    return with_import(
        _with_interface(whole, proto),
        lambda: resolve(declared_inputs(graph), {}).dims,
        lambda: import_model(model),
    )


def _with_interface(whole: Inspection, proto: onnx.ModelProto) -> Inspection:
    """Return the report with inputs and outputs as declared, including values that are not
    tensors."""
    declared = declaration(proto)
    defaults = set(declared.defaults)
    inputs = [info for info in proto.graph.input if info.name not in defaults]
    return dataclasses.replace(
        whole,
        inputs=_declared(inputs, declared.inputs),
        outputs=_declared(proto.graph.output, declared.outputs),
    )


def _declared(
    infos: Iterable[onnx.ValueInfoProto], declared: Iterable[DeclaredValue]
) -> tuple[Tensor, ...]:
    return tuple(
        Tensor(shown(info.name), _dtype(info, value.type), _declared_dims(info))
        for info, value in itertools.islice(zip(infos, declared, strict=True), MOST_NAMES)
    )


def _dtype(info: onnx.ValueInfoProto, type_text: str) -> str:
    tensor = info.type.tensor_type
    if info.type.WhichOneof("value") != "tensor_type":
        return shown(type_text)
    if tensor.elem_type == onnx.TensorProto.STRING:
        return "string"
    try:
        return str(dtype_of(tensor.elem_type, "").value)
    except InvalidModelError:  # The import reports that it does not compile.
        return shown(type_text)


def _declared_dims(info: onnx.ValueInfoProto) -> Dims:
    tensor = info.type.tensor_type
    if info.type.WhichOneof("value") != "tensor_type" or not tensor.HasField("shape"):
        return None
    return tuple(
        min(int(dim.dim_value), MOST_NUMBER)
        if dim.WhichOneof("value") == "dim_value" and dim.dim_value >= 0
        else shown(dim.dim_param) or "?"
        for dim in itertools.islice(tensor.shape.dim, MOST_NAMES)
    )


def _parameters(graph: onnx.GraphProto) -> Parameters:
    count = total = 0
    for tensor in itertools.chain.from_iterable(
        each_graph.initializer for each_graph in graphs_in(graph)
    ):
        count += 1
        elements = math.prod(max(0, dim) for dim in itertools.islice(tensor.dims, 64))
        total = min(total + _bytes(elements, tensor.data_type), MOST_NUMBER)
    return Parameters(count, total)


def _bytes(elements: int, data_type: int) -> int:
    """Return the size in bytes of `elements` elements; 0 if the type's size is not fixed, as for
    strings."""
    try:
        return int(elements * dtype_of(data_type, "").nbytes)
    except InvalidModelError:
        return 0


def _operators(opsets: Mapping[str, int], graph: onnx.GraphProto) -> tuple[OperatorUse, ...]:
    """Return the operators of all graphs in the model, the most frequent first."""
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    first: dict[tuple[str, str], onnx.NodeProto] = {}
    for node in nodes_in(graph):
        key = ("" if node.domain in DOMAINS else node.domain, node.op_type)
        counts[key] += 1
        first.setdefault(key, node)
    operators = []
    for (domain, op), count in counts.most_common(MOST_NAMES):
        node = first[domain, op]
        reason = ""
        if is_unknown(node, opsets):
            reason = f"Farrier has no operator {qualified_name(node)}; first: {describe(node)!r}"
        operators.append(OperatorUse(shown(op), shown(domain), count, not reason, shown(reason)))
    return tuple(operators)


def _graph(graph: onnx.GraphProto) -> ModelGraph:
    """Return the graph to draw: inputs, nodes in the file's order, outputs; of too many, only the
    first ones."""
    initializers = set(initialized(graph))
    inputs = [info.name for info in graph.input if info.name not in initializers]
    return draw(
        [(name, name) for name in inputs],
        map(_drawn, graph.node),
        [(output.name, (output.name,)) for output in graph.output],
        len(graph.node),
    )


def _drawn(node: onnx.NodeProto) -> DrawnNode[str]:
    reads = filter(None, names_read([node]))  # A left-out operand has no name.
    return DrawnNode(qualified_name(node), describe(node), node.output, reads)
