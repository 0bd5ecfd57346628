"""The inspection report of a `.pt2` file (`frontends/inspection.py`)."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from farrier.errors import FarrierError
from farrier.frontends.builder import resolve
from farrier.frontends.formats import Format
from farrier.frontends.inspection import (
    MOST_NAMES,
    DrawnNode,
    Inspection,
    ModelGraph,
    Parameters,
    Tensor,
    declared_inputs,
    draw,
    failed,
    shown,
    uses,
    with_import,
)
from farrier.frontends.onnx.model.file import Model
from farrier.frontends.torch.archive import Archive
from farrier.frontends.torch.build import calls_in
from farrier.frontends.torch.importer import import_model, read_program
from farrier.frontends.torch.interface import Interface
from farrier.frontends.torch.program import Call, Program, Ref
from farrier.frontends.torch.table import rule_of
from farrier.frontends.torch.weights import Weights


def inspection(model: Model) -> Inspection:
    """Return the report on a program, which contains the reason if it does not compile."""
    document = Inspection(shown(model.name), format=Format.TORCH.value)
    try:
        archive = Archive(model.message)
        program = read_program(archive)
        document = dataclasses.replace(
            document,
            producer=shown(program.producer),
            parameters=_parameters(program, Weights(archive)),
            operators=uses(((call.target, call) for call in calls_in(program.graph)), _reason),
            graph=_graph(program),
        )
        return _typed(document, model, Interface(program))
    except FarrierError as error:
        return failed(document, error)


def _typed(document: Inspection, model: Model, interface: Interface) -> Inspection:
    """Return the report with inputs, outputs and the results of an import added."""
    declared = interface.declared()
    document = dataclasses.replace(
        document,
        inputs=declared_inputs(declared),
        outputs=tuple(
            Tensor(shown(name), _type(interface, value), None)
            for name, value in itertools.islice(interface.outputs(), MOST_NAMES)
        ),
    )
    return with_import(
        document, lambda: resolve(declared, interface.shapes({})).dims, lambda: import_model(model)
    )


def _type(interface: Interface, value: Any) -> str:
    meta = interface.meta(value)
    return "i64" if meta is None else meta.type_name


def _parameters(program: Program, weights: Mapping[str, Any]) -> Parameters:
    sizes = {}
    for spec in program.inputs:
        if spec.target in weights and spec.kind != "user_input":
            array = weights[spec.target]
            sizes[array.__array_interface__["data"][0], array.size] = array.nbytes
    return Parameters(len(sizes), sum(sizes.values()))


def _reason(call: Call) -> str:
    if rule_of(call.target) is not None or call.target.startswith("higher_order."):
        return ""
    where = f"; first at {call.line}" if call.line else ""
    return f"Farrier has no operator {call.target}{where}"


def _graph(program: Program) -> ModelGraph:
    """Return the graph to draw: inputs, calls, outputs; of too many, only the first ones."""
    graph, interface = program.graph, Interface(program)
    return draw(
        list(interface.inputs.items()),
        map(_drawn, graph.calls),
        [(name, list(_refs([value]))) for name, value in interface.outputs()],
        len(graph.calls),
    )


def _drawn(call: Call) -> DrawnNode[str]:
    reads = [*_refs(call.positional), *_refs(call.keywords.values())]
    return DrawnNode(call.target, call.name, list(_names(call.outputs)), reads)


def _names(outputs: Iterable[str | tuple[str, ...]]) -> Iterator[str]:
    for output in outputs:
        yield from (output,) if isinstance(output, str) else output


def _refs(arguments: Iterable[Any]) -> Iterator[str]:
    for argument in arguments:
        if isinstance(argument, Ref):
            yield argument.name
        elif isinstance(argument, list):
            yield from _refs(argument)
