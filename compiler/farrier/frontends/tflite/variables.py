"""Resource variables: the tensors that a TFLite model keeps between its calls.

They become states of the session (docs/guide/states.md): an input with the value before a call, and
an output with the one after it. A subgraph that CALL_ONCE names assigns the first values. Where
these are one number a tensor, the session starts with them; otherwise a further state says
whether a call is the first, and the first call takes them in the place of the state.
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
_NEXT = ":next"  # What follows a variable's name in the name of its output.


@dataclasses.dataclass(frozen=True, slots=True)
class Variable:
    """A variable by name, its tensor, and its first value: a number for all elements, or None if
    only the model itself can compute it."""

    name: str
    tensor: Tensor
    initial: float | None = 0.0

    @property
    def declared(self) -> Declared:
        """The input with the value before a call."""
        return Declared(self.name, DTYPES[self.tensor.type], self.tensor.shape)

    @property
    def state(self) -> HeldState:
        """The state of a session."""
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
    """Return the subgraphs that run before the first call."""
    indices = [
        int(operator.options["subgraph"])
        for operator in model.main.operators
        if operator.name == "CALL_ONCE"
    ]
    if any(not 0 < index < len(model.subgraphs) for index in indices):
        raise InvalidModelError(f"CALL_ONCE names a subgraph of {indices}, which is not there")
    return [model.subgraphs[index] for index in indices]


def assigned(model: TfliteModel, index: int, level: int = 0) -> set[str]:
    """Return the names of the variables that a subgraph and its callees assign."""
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
    """Return the name of the variable of a VAR_HANDLE."""
    name, container = operator.options["shared_name"], operator.options["container"]
    return f"{container}/{name}" if container else name


def _handles(graph: Subgraph) -> Iterator[tuple[int, str]]:
    """Yield each tensor of a subgraph that is a handle, with its variable's name."""
    for operator in graph.operators:
        if operator.name == "VAR_HANDLE":
            for index in operator.outputs:
                yield index, handle(operator)


def _held(graph: Subgraph, operator: Operator) -> Tensor | None:
    """Return the tensor that an operator reads from a variable or assigns to it."""
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
    """Return the variables that the first subgraphs assign, with their first values."""
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
    """Return the number that all elements of a constant are, or None."""
    if tensor.data is None:
        return None
    values = elements(tensor)
    first = values.reshape(-1)[:1].astype(np.float64)
    is_uniform = first.size == 1 and (values == values.reshape(-1)[0]).all()
    return float(first[0]) if is_uniform and np.isfinite(first[0]) else None


@dataclasses.dataclass(slots=True)
class Present:
    """The values of variables at one place of a model in construction, by name."""

    values: dict[str, str]

    def copy(self) -> Present:
        """Return the same values, for a region that may change them."""
        return Present(dict(self.values))

    def read(self, name: str) -> str:
        """Return the value of a variable. Raises NotSupported for one without a handle."""
        if name not in self.values:
            raise NotSupported(f"the variable {name!r}, whose handle is not in the model,")
        return self.values[name]


def started_state() -> tuple[Declared, HeldState]:
    """Return the input and the state that distinguish the first call."""
    return Declared(STARTED, DType.U8, (1,)), HeldState(STARTED, STARTED + _NEXT)
