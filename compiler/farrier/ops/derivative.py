"""The rules by which gradients go backwards from the result of a node to its operands.

An operator declares its rule with its meaning. A rule adds nodes to a `Scope`, which is the
builder of a frontend or whatever else appends nodes to a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from farrier.ir.graph import Node
from farrier.ir.types import DType, Shape
from farrier.ops.operator import Array, DerivativeRule, as_ints, extents_array


class Scope(Protocol):
    """A graph to which nodes are added. Its values go by names."""

    def add(self, op: str, *inputs: str, **attrs: Any) -> str:
        """Add a node and return the name of its result."""
        ...

    def constant(self, data: Array, dtype: DType | None = None) -> str:
        """Add a constant and return its name."""
        ...

    def shape(self, name: str) -> Shape:
        """Return the shape of a value."""
        ...

    def data(self, name: str) -> Array | None:
        """Return the elements of a constant, or None if they are known only at run time."""
        ...


class Adjoint:
    """A node, the names of its values, and the gradient `by` its result. A call adds a node."""

    def __init__(
        self, scope: Scope, node: Node, operands: Sequence[str], result: str, by: str
    ) -> None:
        self._scope = scope
        self.node, self.operands, self.result, self.by = node, operands, result, by
        self.dtype = node.outputs[0].type.dtype
        self.kinds = [value.type for value in node.inputs if value is not None]
        self.shapes = [kind.shape for kind in self.kinds]

    def __call__(self, op: str, *operands: str | float, **attrs: object) -> str:
        """Add a node and return the name of its result. Numbers are constants of the type of the
        result of the node at hand."""
        names = [each if isinstance(each, str) else self._number(each) for each in operands]
        return self._scope.add(op, *names, **attrs)

    def ints(self, values: Sequence[Any]) -> str:
        """Return the name of a constant of integers and dims."""
        return self._scope.constant(extents_array(values))

    def shape(self, name: str) -> Shape:
        """Return the shape of a value."""
        return self._scope.shape(name)

    def square(self, name: str) -> str:
        """Return a value times itself."""
        return self("Mul", name, name)

    def reshaped(self, name: str, shape: Shape) -> str:
        """Return a value in a shape of the same size."""
        return self("Reshape", name, self.ints(shape)) if self.shape(name) != shape else name

    def summed_to(self, name: str, shape: Shape) -> str:
        """Return the gradient by a value that was broadcast from `shape`."""
        own = self.shape(name)
        extra = len(own) - len(shape)
        axes = [
            axis
            for axis, extent in enumerate(own)
            if axis < extra or (shape[axis - extra] == 1 and extent != 1)
        ]
        if axes:
            name = self("ReduceSum", name, self.ints(axes), keepdims=1)
        return self.reshaped(name, shape)

    def static(self, position: int) -> tuple[int, ...] | None:
        """Return an operand of integers that is known, or None if it is omitted."""
        data = self._scope.data(self.operands[position]) if position < len(self.operands) else None
        return None if data is None else as_ints(data.reshape(-1))

    def _number(self, value: float) -> str:
        return self._scope.constant(np.array(value, self.dtype.numpy))


Slope: TypeAlias = Callable[[Adjoint, str, str], str]


def by_slope(slope: Slope) -> DerivativeRule:
    """Return the rule of a function of one operand from its slope, which `slope(s, x, y)` adds for
    the operand x and the result y."""
    return lambda s: [s("Mul", s.by, slope(s, s.operands[0], s.result))]


def unchanged(s: Adjoint) -> Sequence[str]:
    """Return the gradients of operands that a result is the sum of."""
    return [s.by] * len(s.operands)


def in_shape(s: Adjoint) -> Sequence[str]:
    """Return the gradient of an operand whose elements the result has in another shape."""
    return [s.reshaped(s.by, s.shapes[0])]
