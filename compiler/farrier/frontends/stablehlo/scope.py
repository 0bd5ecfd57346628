"""The interface of rules to the builder: nodes, constants, sizes, and tensors repeated along
axes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from farrier.frontends.builder import Number
from farrier.frontends.builder.images import ImageBuilder
from farrier.frontends.builder.rewrites.numbers import Operand
from farrier.frontends.stablehlo.module import Dense, Operation, Raw, TensorType
from farrier.ir.types import DType, Shape
from farrier.ops import NotSupported
from farrier.ops.operator import to_extents

LAST = np.iinfo(np.int64).max  # The end of a slice that goes to the end of an axis.


@dataclasses.dataclass(frozen=True, slots=True)
class Spread:
    """A broadcast tensor that is not materialized: `name` has extent 1 along the repeated axes, and
    `sizes` is the full shape. StableHLO has separate broadcast operations, whereas Farrier's
    operators broadcast their operands. It is materialized only for rules that need that."""

    name: str
    sizes: Shape


Value: TypeAlias = str | Spread


class Scope:
    """The operation for which a rule adds nodes. Tensors are names of values of the builder."""

    def __init__(self, builder: ImageBuilder, operation: Operation, origin: str) -> None:
        self.b, self.operation, self.origin = builder, operation, origin

    # Nodes ---------------------------------------------------------------------------------------

    def node(self, op: str, *operands: Operand, **attrs: Any) -> str:
        """Add a node and return the name of its output."""
        return self.nodes(op, operands, 1, **attrs)[0]

    def nodes(
        self, op: str, operands: Sequence[Operand], outputs: int, **attrs: Any
    ) -> tuple[str, ...]:
        """Add a node with several outputs and return their names."""
        return self.b.node(op, operands, attrs, origin=self.origin, outputs=outputs)

    def scalar(self, value: float, dtype: DType) -> str:
        """Add a constant of rank 0, and return its name."""
        return self.b.constant(np.array(value).astype(dtype.numpy), dtype)

    def ints(self, values: Sequence[int]) -> str:
        """Add a constant vector of i64, and return its name."""
        return self.b.constant(np.array(values, np.int64).reshape(len(values)))

    def full(self, value: Value) -> str:
        """Return the name of an ordinary tensor; a `Spread` is materialized."""
        if isinstance(value, str):
            return value
        if self.shape(value.name) == value.sizes:
            return value.name
        return self.node("Expand", value.name, self.vector(value.sizes))

    # Attributes ----------------------------------------------------------------------------------

    def attr(self, key: str, default: Any = None) -> Any:
        """Return an attribute, or its default. Raises NotSupported if it is missing and `default`
        is None."""
        value = self.operation.attrs.get(key, default)
        if value is None:
            raise NotSupported(f"{self.operation.name} without {key}")
        return value

    def ints_of(self, key: str, default: Sequence[int] | None = None) -> list[int]:
        """Return an attribute as a list of integers, from any of its forms in MLIR."""
        value = self.attr(key, default)
        return value.ints() if isinstance(value, Dense) else [int(each) for each in value]

    def word(self, key: str, default: str = "") -> str:
        """Return the value of an enumeration attribute, such as GT."""
        value = self.attr(key, Raw("", default))
        return str(value.text)

    # Types ---------------------------------------------------------------------------------------

    @property
    def result(self) -> TensorType:
        """The type of the first result. Raises NotSupported if Farrier does not have it."""
        return self.result_of(0)

    def result_of(self, place: int) -> TensorType:
        """Return the type of the result at position `place`. Raises NotSupported if Farrier does
        not have it."""
        kind = self.operation.type.results[place]
        if not isinstance(kind, TensorType) or kind.dtype is None:
            raise NotSupported(f"the type {kind}")
        return kind

    @property
    def result_dtype(self) -> DType:
        """The element type of the first result."""
        dtype = self.result.dtype
        assert dtype is not None  # `result` has checked it.
        return dtype

    def dtype(self, x: Value) -> DType:
        """Return the element type of a tensor."""
        return self.b.dtype(x if isinstance(x, str) else x.name)

    def shape(self, x: Value) -> Shape:
        """Return the shape of a tensor."""
        return self.b.shape(x) if isinstance(x, str) else x.sizes

    def rank(self, x: Value) -> int:
        """Return the number of axes of a tensor."""
        return len(self.shape(x))

    def cast(self, x: str, dtype: DType) -> str:
        """Return the tensor converted to a dtype; unchanged if it has that dtype."""
        return x if self.dtype(x) is dtype else self.node("Cast", x, to=dtype.value)

    # Shapes --------------------------------------------------------------------------------------

    def sizes_in(self, x: str) -> Shape | None:
        """Return the elements of an integer vector as a shape, or None if they are known only at
        run time."""
        data = self.b.data(x)
        return None if data is None else to_extents(data)

    def vector(self, sizes: Sequence[Number]) -> Operand:
        """Return sizes, each an extent or a name, as an operand."""
        return list(sizes) if sizes else self.ints([])

    def reshape(self, x: str, sizes: Sequence[Number]) -> str:
        """Return the tensor reshaped to `sizes`."""
        if tuple(sizes) == self.shape(x):
            return x
        return self.node("Reshape", x, self.vector(sizes), allowzero=1)

    def transpose(self, x: str, order: Sequence[int]) -> str:
        """Return the tensor with its axes permuted."""
        if list(order) == sorted(order):
            return x
        shape = self.shape(x)
        longer = [axis for axis in order if shape[axis] != 1]
        if longer == sorted(longer):  # A view: it moves axes of length 1 alone.
            return self.reshape(x, [shape[axis] for axis in order])
        return self.node("Transpose", x, perm=tuple(order))

    def expand(self, x: str, sizes: Sequence[Number]) -> str:
        """Return the tensor repeated along its axes of extent 1."""
        return x if tuple(sizes) == self.shape(x) else self.node("Expand", x, self.vector(sizes))

    def slice(self, x: str, axis: int, start: Number, end: Number, step: int = 1) -> str:
        """Return the elements from `start` to `end` along an axis."""
        return self.node("Slice", x, [start], [end], [axis], [step])

    def concat(self, parts: Sequence[str], axis: int) -> str:
        """Return tensors concatenated along an axis."""
        return parts[0] if len(parts) == 1 else self.node("Concat", *parts, axis=axis)
