"""The inspection report of a StableHLO module (`frontends/inspection.py`)."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

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
from farrier.frontends.stablehlo.build import name_of, operations_in, reason_of
from farrier.frontends.stablehlo.importer import import_model, module_of
from farrier.frontends.stablehlo.interface import Interface, type_name
from farrier.frontends.stablehlo.module import Dense, Module, Operation


def inspection(model: Model) -> Inspection:
    """Return the report on a module, which contains the reason if it does not compile."""
    document = Inspection(shown(model.name), format=Format.STABLEHLO.value)
    try:
        module = module_of(model)
        interface = Interface(module)
        document = dataclasses.replace(
            document,
            parameters=_parameters(module),
            operators=uses(((name_of(each), each) for each in operations_in(module)), _reason),
            graph=_graph(module, interface),
        )
        return _typed(document, model, interface)
    except FarrierError as error:
        return failed(document, error)


def _typed(document: Inspection, model: Model, interface: Interface) -> Inspection:
    """Return the report with inputs, outputs and the results of an import added."""
    declared = interface.declared()
    outputs = zip(interface.outputs, interface.results, strict=True)
    document = dataclasses.replace(
        document,
        inputs=declared_inputs(declared),
        outputs=tuple(
            Tensor(shown(name), type_name(kind), None)
            for name, kind in itertools.islice(outputs, MOST_NAMES)
        ),
    )
    return with_import(document, lambda: resolve(declared, {}).dims, lambda: import_model(model))


def _parameters(module: Module) -> Parameters:
    """Return the number and size of the module's constants of more than one element."""
    sizes = [
        value.elements.nbytes
        for operation in operations_in(module)
        for value in (operation.attrs.get("value"),)
        if isinstance(value, Dense) and value.elements.ndim
    ]
    return Parameters(len(sizes), sum(sizes))


def _reason(operation: Operation) -> str:
    reason = reason_of(operation)
    return f"{reason}; first at {operation.line}" if reason and operation.line else reason


def _graph(module: Module, interface: Interface) -> ModelGraph:
    """Return the graph to draw: inputs, operations of the main function, outputs; of too many, only
    the first ones."""
    body = module.main.body
    names = [name for name, _, _ in body.arguments]
    operations = body.operations[:-1]
    return draw(
        list(zip(names, interface.inputs, strict=True)),
        map(_drawn, operations),
        [(name, [value]) for name, value in zip(interface.outputs, body.returned, strict=True)],
        len(operations),
    )


def _drawn(operation: Operation) -> DrawnNode[str]:
    return DrawnNode(name_of(operation), operation.line, operation.results, list(_read(operation)))


def _read(operation: Operation) -> Iterator[str]:
    """Yield the names of values that an operation and the operations in its regions read."""
    yield from operation.operands
    for region in operation.regions:
        for inner in region.walk():
            yield from inner.operands
