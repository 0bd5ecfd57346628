"""Resource variables: the tensors that a TFLite model keeps between its calls.

They become states of the session (docs/guide/states.md): an input with the value before a call, and
an output with the value after it. A subgraph that CALL_ONCE names assigns the initial values. If
the initial value of every variable is one number for all elements, the session starts with these.
Otherwise an additional state marks the first call, which uses the initial values instead of the
states.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np

from farrier.errors import InvalidModelError
from farrier.frontends.builder import Declared
from farrier.frontends.tflite.elements import elements
from farrier.frontends.tflite.schema import (
    DTYPES,
    TYPE_NAMES,
    Operator,
    Subgraph,
    Tensor,
    TfliteModel,
)
from farrier.ir.types import DType
from farrier.ops import NotSupported
from farrier.options.states import HeldState

STARTED = "started"  # The state that is 0 in the first call and 1 in later ones.
_NEXT = ":next"  # The suffix of a variable's name in the name of its output.


@dataclasses.dataclass(frozen=True, slots=True)
class Variable:
    """A variable: its name, its tensor, and its initial value as one number for all elements, or
    None if the model has to compute it."""

    name: str
    tensor: Tensor
    initial: float | None = 0.0

    @property
    def declared(self) -> Declared:
        """The model input that receives the variable's value before a call."""
        return Declared(self.name, DTYPES[self.tensor.type], self.tensor.shape)

    @property
    def state(self) -> HeldState:
        """The session's state that keeps the variable's value between calls."""
        return HeldState(self.name, self.name + _NEXT, initial=self.initial or 0.0)


def variables_of(model: TfliteModel) -> Mapping[str, Variable]:
    """Return the variables of a model by their names, in the order of their first use."""
    variables: dict[str, Variable] = {}
    for graph in model.subgraphs:
        names = dict(_handles(graph))
        for operator in graph.operators:
            tensor = _held(graph, operator)
            if tensor is None or operator.inputs[0] not in names:
                continue
            name = names[operator.inputs[0]]
            _check_type(name, tensor)
            first = variables.setdefault(name, Variable(name, tensor))
            if (first.tensor.type, first.tensor.shape) != (tensor.type, tensor.shape):
                raise InvalidModelError(
                    f"the variable {name!r} has the shape {first.tensor.shape} in one place and "
                    f"{tensor.shape} in another"
                )
    return {**variables, **_initialized(model, variables)}


def initial_graphs(model: TfliteModel) -> list[Subgraph]:
    """Return the subgraphs that CALL_ONCE operators run before the first call."""
    indices = [
        int(operator.options["subgraph"])
        for operator in model.main.operators
        if operator.name == "CALL_ONCE"
    ]
    if any(not 0 < index < len(model.subgraphs) for index in indices):
        raise InvalidModelError(f"CALL_ONCE names a subgraph of {indices}, which is not there")
    return [model.subgraphs[index] for index in indices]


def assigned(model: TfliteModel, index: int, level: int = 0) -> set[str]:
    """Return the names of the variables that a subgraph, or a subgraph that it calls, assigns."""
    if not 0 <= index < len(model.subgraphs) or level > len(model.subgraphs):
        return set()
    graph = model.subgraphs[index]
    handles, names = dict(_handles(graph)), set()
    for operator in graph.operators:
        if operator.name == "ASSIGN_VARIABLE" and operator.inputs[0] in handles:
            names.add(handles[operator.inputs[0]])
        for option in ("then", "else", "condition", "body"):
            if option in operator.options and operator.name in ("IF", "WHILE"):
                names |= assigned(model, int(operator.options[option]), level + 1)
    return names


def handle(operator: Operator) -> str:
    """Return the name of the variable to which a VAR_HANDLE operator refers."""
    name, container = operator.options["shared_name"], operator.options["container"]
    return f"{container}/{name}" if container else name


def _handles(graph: Subgraph) -> Iterator[tuple[int, str]]:
    """Yield each tensor of a subgraph that is a variable's handle, with the variable's name."""
    for operator in graph.operators:
        if operator.name == "VAR_HANDLE":
            for index in operator.outputs:
                yield index, handle(operator)


def _held(graph: Subgraph, operator: Operator) -> Tensor | None:
    """Return the tensor into which READ_VARIABLE reads a variable, or from which ASSIGN_VARIABLE
    assigns it. Return None for other operators."""
    if operator.name == "READ_VARIABLE" and operator.inputs and operator.outputs:
        return graph.tensors[operator.outputs[0]]
    if operator.name == "ASSIGN_VARIABLE" and len(operator.inputs) > 1:
        return graph.tensors[operator.inputs[1]]
    return None


def _check_type(name: str, tensor: Tensor) -> None:
    if tensor.type not in DTYPES:
        raise NotSupported(f"the variable {name!r} of {TYPE_NAMES[tensor.type]}")
    if tensor.signature:
        raise NotSupported(f"the variable {name!r} of the open shape {tensor.signature}")


def _initialized(model: TfliteModel, variables: Mapping[str, Variable]) -> Mapping[str, Variable]:
    """Return the variables that the subgraphs of CALL_ONCE assign, each with the single number that
    fills its initial value, or None if the value has to be computed."""
    changed: dict[str, Variable] = {}
    for graph in initial_graphs(model):
        names = dict(_handles(graph))
        for operator in graph.operators:
            tensor = _held(graph, operator)
            if operator.name == "ASSIGN_VARIABLE" and tensor is not None:
                name = names.get(operator.inputs[0], "")
                if name in variables:
                    changed[name] = dataclasses.replace(variables[name], initial=_number(tensor))
    return changed


def _number(tensor: Tensor) -> float | None:
    """Return the number that all elements of a constant equal, or None if they differ."""
    if tensor.data is None:
        return None
    values = elements(tensor)
    first = values.reshape(-1)[:1].astype(np.float64)
    is_uniform = first.size == 1 and (values == values.reshape(-1)[0]).all()
    return float(first[0]) if is_uniform and np.isfinite(first[0]) else None


@dataclasses.dataclass(slots=True)
class Present:
    """The current values of variables, by name, at a point during the conversion."""

    values: dict[str, str]

    def copy(self) -> Present:
        """Return a copy, for a region that may assign variables."""
        return Present(dict(self.values))

    def read(self, name: str) -> str:
        """Return the current value of a variable. Raises NotSupported for a variable without a
        handle in the model."""
        if name not in self.values:
            raise NotSupported(f"the variable {name!r}, whose handle is not in the model,")
        return self.values[name]


def started_state() -> tuple[Declared, HeldState]:
    """Return the declaration of the input that is 0 only in the first call, and the state of the
    session that keeps it."""
    return Declared(STARTED, DType.U8, (1,)), HeldState(STARTED, STARTED + _NEXT)
