"""The inspection report of a TFLite model (`frontends/inspection.py`)."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Iterable

from farrier.errors import FarrierError
from farrier.frontends.builder import resolve
from farrier.frontends.formats import Format
from farrier.frontends.inspection import (
    MOST_NAMES,
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
from farrier.frontends.onnx.model.file import Model
from farrier.frontends.tflite.build import unknown_name
from farrier.frontends.tflite.importer import import_model
from farrier.frontends.tflite.interface import Interface, dims_of
from farrier.frontends.tflite.reading import read_model
from farrier.frontends.tflite.schema import DTYPES, TYPE_NAMES, Operator, Subgraph, TfliteModel
from farrier.frontends.tflite.schema import Tensor as FileTensor


def inspection(model: Model) -> Inspection:
    """Return the report on a model, which contains the reason if it does not compile."""
    document = Inspection(shown(model.name), format=Format.TFLITE.value)
    try:
        read = read_model(model.message)
    except FarrierError as error:
        return failed(document, error)
    document = dataclasses.replace(
        document,
        producer=shown(read.description),
        parameters=_parameters(read),
        operators=_operators(read),
        graph=_graph(read.main),
    )
    interface = Interface(read)
    try:
        main = read.main
        document = dataclasses.replace(
            document,
            inputs=_tensors(interface.inputs, (main.tensors[index] for index in main.inputs)),
            outputs=_tensors(interface.outputs, (main.tensors[index] for index in main.outputs)),
        )
    except FarrierError as error:
        return failed(document, error)
    return with_import(
        document, lambda: resolve(interface.declared(), {}).dims, lambda: import_model(model)
    )


def _tensors(names: Iterable[str], tensors: Iterable[FileTensor]) -> tuple[Tensor, ...]:
    return tuple(
        Tensor(shown(name), _type(tensor), dims_of(tensor))
        for name, tensor in itertools.islice(zip(names, tensors, strict=True), MOST_NAMES)
    )


def _type(tensor: FileTensor) -> str:
    """Return Farrier's name of an element type, or the file's name if Farrier does not support
    it."""
    dtype = DTYPES.get(tensor.type)
    return TYPE_NAMES[tensor.type].lower() if dtype is None else str(dtype)


def _parameters(model: TfliteModel) -> Parameters:
    sizes = [
        len(tensor.data)
        for graph in model.subgraphs
        for tensor in graph.tensors
        if tensor.data is not None
    ]
    return Parameters(len(sizes), sum(sizes))


def _operators(model: TfliteModel) -> tuple[OperatorUse, ...]:
    """Return the operators of all subgraphs, the most frequent first."""
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    for graph in model.subgraphs:
        for operator in graph.operators:
            counts[operator.name, unknown_name(graph, operator)] += 1
    return tuple(
        OperatorUse(
            shown(name),
            "",
            count,
            not unknown,
            shown(f"Farrier does not read {unknown}" if unknown else ""),
        )
        for (name, unknown), count in counts.most_common(MOST_NAMES)
    )


def _graph(graph: Subgraph) -> ModelGraph:
    """Return the graph to draw: inputs, operators in the file's order, outputs; of too many, only
    the first ones."""

    def name(index: int) -> str:
        return graph.tensors[index].label

    def drawn(operator: Operator) -> DrawnNode[int]:
        outputs = [index for index in operator.outputs if index >= 0]
        title = name(outputs[0]) if outputs else ""
        return DrawnNode(operator.name, title, outputs, operator.inputs)

    return draw(
        [(index, name(index)) for index in graph.inputs],
        map(drawn, graph.operators),
        [(name(index), (index,)) for index in graph.outputs],
        len(graph.operators),
        name,
    )
