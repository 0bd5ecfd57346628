"""Convert the operators of a TFLite model's subgraphs to nodes of the builder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from farrier.errors import InvalidModelError, UnsupportedOperatorError
from farrier.frontends.builder import RawNode
from farrier.frontends.builder.images import ImageBuilder
from farrier.frontends.tflite.call import Call, is_quantized
from farrier.frontends.tflite.elements import elements
from farrier.frontends.tflite.interface import Interface
from farrier.frontends.tflite.ops import rule_of
from farrier.frontends.tflite.ops.elementwise import in_channels_first
from farrier.frontends.tflite.schema import Operator, Subgraph, Tensor, TfliteModel
from farrier.frontends.tflite.variables import STARTED, Present, initial_graphs

_MOST_LEVELS = 32  # The limit on the depth of calls of subgraphs.


def check_operators(model: TfliteModel) -> None:
    """Raise UnsupportedOperatorError with all operators of the model that Farrier does not
    support."""
    unknown = unknown_operators(model)
    if unknown:
        names = ", ".join(f"{name} ({count}×)" for name, count in sorted(unknown.items()))
        raise UnsupportedOperatorError(
            f"the model has operators that Farrier does not read: {names}",
            hint="docs/tflite.md lists the operators; convert the model without select TensorFlow "
            "operators and custom ones",
        )


def unknown_operators(model: TfliteModel) -> Mapping[str, int]:
    """Return the operators that Farrier does not support, with the number of times that each
    occurs."""
    counts: dict[str, int] = {}
    for graph in model.subgraphs:
        for operator in graph.operators:
            if name := unknown_name(graph, operator):
                counts[name] = counts.get(name, 0) + 1
    return counts


def unknown_name(graph: Subgraph, operator: Operator) -> str:
    """Return an unsupported operator's name for messages, or "" for a supported operator."""
    if operator.is_custom:
        return f"the custom {operator.name!r}"
    if rule_of(operator.name, is_quantized(*_tensors(graph, operator))) is not None:
        return ""
    is_plain = rule_of(operator.name, is_quantized=False) is not None
    return f"{operator.name} of quantized tensors" if is_plain else operator.name


def build(b: ImageBuilder, model: TfliteModel, interface: Interface) -> None:
    """Add the nodes of the model, with its inputs, outputs and variables."""
    variables = interface.variables
    present = Present({name: b.input(name) for name in variables})
    if interface.has_first_call:
        _start(b, model, present)
    results = Scope(model, model.main, b, present).run([b.input(name) for name in interface.inputs])
    for name, value in zip(interface.outputs, results, strict=True):
        b.output(name, value)
    for name, variable in variables.items():
        b.output(variable.state.output, present.values[name])


def _start(b: ImageBuilder, model: TfliteModel, present: Present) -> None:
    """Add the nodes that give variables their initial values in the first call. The input `STARTED`
    is 0 in the first call and 1 later; it selects between the computed initial value of a variable
    and the value that the session has kept."""
    first = present.copy()
    for graph in initial_graphs(model):
        Scope(model, graph, b, first).run([])
    with b.at(RawNode("CALL_ONCE", [], [], {}, "CALL_ONCE")):
        started = b.add("Cast", b.input(STARTED), to="bool")
        for name, value in first.values.items():
            if value != present.values[name]:
                present.values[name] = b.add("Where", started, present.values[name], value)
        b.output(f"{STARTED}:next", b.constant(np.ones(1, np.uint8)))


def _tensors(
    graph: Subgraph, operator: Operator
) -> tuple[tuple[Tensor | None, ...], tuple[Tensor, ...]]:
    """Return the operands of an operator (None if omitted) and its results."""
    inputs = tuple(graph.tensors[index] if index >= 0 else None for index in operator.inputs)
    return inputs, tuple(graph.tensors[index] for index in operator.outputs if index >= 0)


class Scope:
    """A subgraph that is being converted. `present` has the current values of the variables; a
    subgraph that becomes a region, such as a branch, is converted with a copy."""

    def __init__(
        self, model: TfliteModel, graph: Subgraph, b: ImageBuilder, present: Present, level: int = 0
    ) -> None:
        if level > _MOST_LEVELS:
            raise InvalidModelError(
                f"the subgraph {graph.name!r} calls itself, or nests {_MOST_LEVELS} deep"
            )
        self.model, self.b, self.present = model, b, present
        self._graph, self._level = graph, level
        self._names: dict[int, str] = {}

    def run(self, inputs: Sequence[str]) -> list[str]:
        """Add the nodes of the subgraph's operators, and return the names of its outputs."""
        if len(inputs) != len(self._graph.inputs):
            raise InvalidModelError(
                f"the subgraph {self._graph.name!r} has {len(self._graph.inputs)} inputs, and is "
                f"called with {len(inputs)}"
            )
        self._names.update(zip(self._graph.inputs, inputs, strict=True))
        for operator in self._graph.operators:
            self._add(operator)
        return [self.value(self._graph.tensors[index]) for index in self._graph.outputs]

    def inner(self, index: int) -> Scope:
        """Return the scope of another subgraph, which an operator of this subgraph calls."""
        if not 0 <= index < len(self.model.subgraphs):
            raise InvalidModelError(f"an operator calls the subgraph {index}, which is not there")
        graph = self.model.subgraphs[index]
        return Scope(self.model, graph, self.b, self.present.copy(), self._level + 1)

    def value(self, tensor: Tensor) -> str:
        """Return the name of a tensor's value; a tensor with elements in the file becomes a
        constant."""
        if tensor.index not in self._names:
            if tensor.data is None and 0 not in tensor.shape:
                raise InvalidModelError(
                    f"the tensor {tensor.label!r} is read before any operator computes it",
                    hint="the file's operators are not in order: convert the model again",
                )
            self._names[tensor.index] = self.b.constant(elements(tensor))
        return self._names[tensor.index]

    def _add(self, operator: Operator) -> None:
        inputs, outputs = _tensors(self._graph, operator)
        rule = rule_of(operator.name, is_quantized(inputs, outputs))
        assert rule is not None  # `check_operators` has run.
        origin = outputs[0].label if outputs else operator.name
        with self.b.at(RawNode(operator.name, [], [], {}, origin)):
            results = in_channels_first(rule)(Call(operator, self, inputs, outputs), self.b)
            names = [results] if isinstance(results, str) else list(results)
            for tensor, name in zip(outputs, names, strict=True):
                self._names[tensor.index] = name
