"""The inputs and outputs of a TFLite model, with unique names."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping

from farrier.artifact.declaration import Declaration, DeclaredValue, tensor_type
from farrier.errors import UnsupportedOperatorError
from farrier.frontends.builder import Declared
from farrier.frontends.tflite.schema import (
    DTYPES,
    TYPE_NAMES,
    Signature,
    Subgraph,
    Tensor,
    TfliteModel,
)
from farrier.frontends.tflite.variables import Variable, started_state, variables_of
from farrier.ir.types import DType
from farrier.options.states import HeldState

_BATCH = "batch"  # The first axis is called so if it is open.


@dataclasses.dataclass(frozen=True)
class Interface:
    """The interface of a model. Names come from the file's signature of the main subgraph if there
    is one, otherwise from the tensors."""

    model: TfliteModel

    @functools.cached_property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs."""
        return self._names(self.model.main.inputs, "input")

    @functools.cached_property
    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs."""
        return self._names(self.model.main.outputs, "output")

    @functools.cached_property
    def variables(self) -> Mapping[str, Variable]:
        """The variables that a session keeps, by name."""
        return variables_of(self.model)

    @property
    def has_first_call(self) -> bool:
        """Check whether the model needs a state that marks the first call, because the initial
        value of a variable has to be computed."""
        return any(variable.initial is None for variable in self.variables.values())

    def declared(self) -> list[Declared]:
        """Return the inputs, followed by the inputs of states. Raises UnsupportedOperatorError for
        unsupported element types."""
        main = self.model.main
        inputs = [
            Declared(name, _dtype(tensor), dims_of(tensor))
            for name, tensor in zip(self.inputs, _of(main, main.inputs), strict=True)
        ]
        states = [variable.declared for variable in self.variables.values()]
        return [*inputs, *states, *([started_state()[0]] if self.has_first_call else [])]

    def states(self) -> tuple[HeldState, ...]:
        """Return the states that a session keeps between calls."""
        states = tuple(variable.state for variable in self.variables.values())
        return (*states, started_state()[1]) if self.has_first_call else states

    def declaration(self) -> Declaration:
        """Return the interface as the file declares it, without states."""
        main = self.model.main
        pairs = ((self.inputs, main.inputs), (self.outputs, main.outputs))
        inputs, outputs = (
            tuple(map(_declared_value, names, _of(main, indices))) for names, indices in pairs
        )
        return Declaration(inputs, outputs, producer=self.model.description)

    @functools.cached_property
    def _signature(self) -> Signature | None:
        return next((each for each in self.model.signatures if each.subgraph == 0), None)

    def _names(self, indices: Iterable[int], side: str) -> tuple[str, ...]:
        main, names = self.model.main, []
        named: Mapping[int, str] = {}
        if self._signature is not None:
            named = self._signature.inputs if side == "input" else self._signature.outputs
        for position, tensor in enumerate(_of(main, indices)):
            name = named.get(tensor.index) or tensor.name or f"{side}{position}"
            while name in names:
                name = f"{name}_{position}"
            names.append(name)
        return tuple(names)


def _of(graph: Subgraph, indices: Iterable[int]) -> list[Tensor]:
    return [graph.tensors[index] for index in indices]


def _declared_value(name: str, tensor: Tensor) -> DeclaredValue:
    dims = tuple(None if dim == "?" else dim for dim in dims_of(tensor))
    dtype = DTYPES.get(tensor.type)
    return DeclaredValue(name, "" if dtype is None else tensor_type(str(dtype)), dims)


def _dtype(tensor: Tensor) -> DType:
    if tensor.type not in DTYPES:
        raise UnsupportedOperatorError(
            f"the input {tensor.label!r} is {TYPE_NAMES[tensor.type]}, which no input can be",
            hint="convert a model whose inputs are numbers",
        )
    return DTYPES[tensor.type]


def dims_of(tensor: Tensor) -> tuple[int | str, ...]:
    """Return the shape of a tensor, with a name for each axis that the file leaves open."""
    if not tensor.signature:
        return tensor.shape
    return tuple(
        size if size >= 0 else _BATCH if axis == 0 else "?"
        for axis, size in enumerate(tensor.signature)
    )
