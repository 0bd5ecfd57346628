"""Derivative rules: how gradients propagate backwards from the result of a node to its operands.

Each operator declares its own rule, which adds nodes to a `Scope`: the builder of a frontend, or
another object that appends nodes to a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from farrier.ir.graph import Node
from farrier.ir.types import DType, Shape
from farrier.ops.operator import Array, DerivativeRule, as_ints, extents_array


class Scope(Protocol):
    """A graph under construction, to which derivative rules add nodes. Values are identified by
    name.
    """

    def add(self, op: str, *inputs: str, **attrs: Any) -> str:
        """Add a node and return the name of its result."""
        ...

    def constant(self, data: Array, dtype: DType | None = None) -> str:
        """Add a constant with this content to the graph, and return its name."""
        ...

    def shape(self, name: str) -> Shape:
        """Return the shape of a value."""
        ...

    def data(self, name: str) -> Array | None:
        """Return the elements of a constant, or None if they are known only at run time."""
        ...


class Adjoint:
    """The context of a derivative rule: a node, the names of its operands and result, and `by`, the
    name of the gradient of the loss by the result. Calling the object adds a node to the gradient's
    graph.
    """

    def __init__(
        self, scope: Scope, node: Node, operands: Sequence[str], result: str, by: str
    ) -> None:
        self._scope = scope
        self.node, self.operands, self.result, self.by = node, operands, result, by
        self.dtype = node.outputs[0].type.dtype
        self.kinds = [value.type for value in node.inputs if value is not None]
        self.shapes = [kind.shape for kind in self.kinds]

    def __call__(self, op: str, *operands: str | float, **attrs: object) -> str:
        """Add a node and return the name of its result. Operands are names of values, or numbers,
        which become constants of the dtype of the differentiated node's result.
        """
        names = [each if isinstance(each, str) else self._number(each) for each in operands]
        return self._scope.add(op, *names, **attrs)

    def ints(self, values: Sequence[Any]) -> str:
        """Add an i64 constant of integers (or of symbolic dims) and return its name."""
        return self._scope.constant(extents_array(values))

    def shape(self, name: str) -> Shape:
        """Return the shape of a value."""
        return self._scope.shape(name)

    def square(self, name: str) -> str:
        """Add a node that multiplies a value by itself, and return the name of the product."""
        return self("Mul", name, name)

    def reshaped(self, name: str, shape: Shape) -> str:
        """Return a value reshaped to `shape`, which has the same number of elements."""
        return self("Reshape", name, self.ints(shape)) if self.shape(name) != shape else name

    def summed_to(self, name: str, shape: Shape) -> str:
        """Sum a gradient over the axes along which an operand of shape `shape` was broadcast, and
        return the name of the sum: the gradient by that operand.
        """
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
        """Return an operand as constant integers, or None if the node omits it."""
        data = self._scope.data(self.operands[position]) if position < len(self.operands) else None
        return None if data is None else as_ints(data.reshape(-1))

    def _number(self, value: float) -> str:
        return self._scope.constant(np.array(value, self.dtype.numpy))


Slope: TypeAlias = Callable[[Adjoint, str, str], str]


def by_slope(slope: Slope) -> DerivativeRule:
    """Return the derivative rule of a function of one operand: gradient times slope. `slope(s, x,
    y)` adds the nodes that compute the slope from operand x and result y.
    """
    return lambda s: [s("Mul", s.by, slope(s, s.operands[0], s.result))]


def unchanged(s: Adjoint) -> Sequence[str]:
    """Return the gradients by the operands of a sum: the result's gradient for each operand."""
    return [s.by] * len(s.operands)


def in_shape(s: Adjoint) -> Sequence[str]:
    """Return the gradient by the operand of a reshape: the result's gradient in the operand's
    shape.
    """
    return [s.reshaped(s.by, s.shapes[0])]
