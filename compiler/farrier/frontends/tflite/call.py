"""The arguments of a conversion rule: an operator with its operands and options."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from farrier.frontends.builder import Builder
from farrier.frontends.builder.images import ImageBuilder
from farrier.frontends.tflite.schema import COMPLEX64, DTYPES, Array, Operator, Tensor
from farrier.ir.types import DType
from farrier.ops import Mismatch, NotSupported

if TYPE_CHECKING:
    from farrier.frontends.tflite.build import Scope

# Adds the nodes of an operator and returns the names of its results.
Rule: TypeAlias = Callable[["Call", ImageBuilder], Sequence[str] | str]


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """An operator with its tensors, in the subgraph of a `scope`."""

    operator: Operator
    scope: Scope
    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor, ...]
    names: tuple[str, ...] = ()  # The operands' values if they are not those of their tensors.

    @property
    def op(self) -> str:
        """The name of the operator."""
        return self.operator.name

    def option(self, name: str) -> Any:
        """Return an option of the operator."""
        return self.operator.options[name]

    def tensor(self, position: int) -> Tensor:
        """Return the operand at a position as the file declares it. Raises Mismatch if it is
        omitted."""
        tensor = self.inputs[position] if position < len(self.inputs) else None
        if tensor is None:
            raise Mismatch(f"its operand {position} is missing")
        return tensor

    def has(self, position: int) -> bool:
        """Check whether an operand is present."""
        return position < len(self.inputs) and self.inputs[position] is not None

    def value(self, position: int) -> str:
        """Return the name of the operand's value at a position. Raises Mismatch if it is
        omitted."""
        tensor = self.tensor(position)
        return self.names[position] if self.names else self.scope.value(tensor)

    def values(self) -> list[str]:
        """Return the names of all operands' values."""
        return [self.value(position) for position in range(len(self.inputs))]

    def data(self, position: int) -> Array:
        """Return the elements of a constant operand. Raises NotSupported if it is computed at run
        time."""
        data = self.scope.b.data(self.value(position))
        if data is None or data.dtype == object:
            raise NotSupported(f"operand {position} that is computed when the model runs")
        return data

    def ints(self, position: int) -> list[int]:
        """Return the elements of a constant operand of integers. Raises NotSupported if it is
        computed at run time."""
        return [int(value) for value in self.data(position).reshape(-1)]

    def is_complex(self, position: int) -> bool:
        """Check whether an operand has complex elements, which are stored as pairs along an
        additional last axis."""
        return self.tensor(position).type == COMPLEX64

    @property
    def result_dtype(self) -> DType:
        """The element type of the first result."""
        return DTYPES[self.outputs[0].type]


def as_index(b: Builder, name: str) -> str:
    """Return an integer tensor converted to i64, the dtype of sizes and indices."""
    return name if b.dtype(name) is DType.I64 else b.add("Cast", name, to=str(DType.I64))


def is_quantized(inputs: Sequence[Tensor | None], outputs: Sequence[Tensor]) -> bool:
    """Check whether an operator's first operand or result is quantized, that is, has integers that
    represent real numbers."""
    return any(
        tensor is not None and tensor.is_quantized and DTYPES[tensor.type].bits <= 16
        for tensor in (*inputs[:1], *outputs[:1])
    )
