"""A helper for rewrites of com.microsoft's operators, which adds the replacing nodes to the
model."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from farrier.frontends.builder.node import RawNode
from farrier.frontends.builder.symbolic import ints
from farrier.frontends.onnx.importer.scope import ImportScope
from farrier.ir.types import DType, Shape
from farrier.ops import NotSupported

# The attributes of each activation that operators are fused with, in ONNX Runtime's order.
_ACTIVATIONS = {
    "Relu": (),
    "Sigmoid": (),
    "Tanh": (),
    "LeakyRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "Clip": ("min", "max"),
}


class Parts:
    """A builder of the nodes that replace `node`. It is called as a function: `parts("Mul", x, y)`
    adds a node and returns the name of its output."""

    def __init__(self, node: RawNode, scope: ImportScope) -> None:
        self.scope, self.node, self.attrs = scope, node, node.attrs
        self.dtype = scope.dtype(next(filter(None, node.inputs)))

    def __call__(self, op: str, *inputs: str, **attrs: Any) -> str:
        return self.scope.add(op, *inputs, **attrs)

    def ints(self, *values: Any) -> str:
        """Add a constant vector of i64."""
        return self.scope.constant(ints(list(values)))

    def whole(self, value: Any) -> str:
        """Add a constant scalar of i64."""
        return self.scope.constant(ints(value))

    def number(self, value: float) -> str:
        """Add a constant scalar of the operands' dtype."""
        return self.scope.constant(np.array(value, self.dtype.numpy))

    def single(self, value: float) -> str:
        """Add a constant scalar of f32."""
        return self.scope.constant(np.array(value, np.float32))

    def array(self, data: npt.NDArray[Any]) -> str:
        return self.scope.constant(np.asarray(data, order="C"))

    def input(self, position: int) -> str:
        return self.node.input(position)

    def shape(self, name: str) -> Shape:
        return self.scope.shape(name)

    def cast(self, name: str, to: DType) -> str:
        return name if self.scope.dtype(name) is to else self("Cast", name, to=str(to))

    def known(self, name: str, what: str) -> npt.NDArray[Any]:
        """Return the value of a constant; raise NotSupported if it is computed at run time."""
        data = self.scope.data(name)
        if data is None:
            raise NotSupported(f"{what} computed at run time")
        return data

    def reshape(self, x: str, *shape: Any) -> str:
        return self("Reshape", x, self.ints(*shape))

    def transpose(self, x: str, *perm: int) -> str:
        return self("Transpose", x, perm=perm)

    def unsqueeze(self, x: str, *axes: int) -> str:
        return self("Unsqueeze", x, self.ints(*axes))

    def cut(self, x: str, low: Any, high: Any, axis: int) -> str:
        """Return the slice of `x` from `low` to `high`, exclusive, along an axis."""
        return self("Slice", x, self.ints(low), self.ints(high), self.ints(axis))

    def pick(self, x: str, position: int, axis: int) -> str:
        """Return the slice of `x` at a position along an axis, without that axis."""
        return self("Gather", x, self.whole(position), axis=axis)

    def sum(self, *terms: str) -> str:
        """Return the sum of the terms that are not ""; "" if all of them are."""
        total = ""
        for term in filter(None, terms):
            total = self("Add", total, term) if total else term
        return total

    def is_read(self, position: int) -> bool:
        """Check whether any node reads the node's output at that position."""
        outputs = self.node.outputs
        return (
            position < len(outputs)
            and bool(outputs[position])
            and self.scope.is_read(outputs[position])
        )

    def results(self, *values: str) -> list[RawNode]:
        """Return nodes that bind `values` to the node's outputs, in order. Raise NotSupported if an
        output is read for which `values` has "" or no entry."""
        nodes = []
        for position, name in enumerate(self.node.outputs):
            value = values[position] if position < len(values) else ""
            if name and value:
                nodes.append(RawNode("Identity", [value], [name], {}, self.node.origin))
            elif self.is_read(position):
                raise NotSupported(f"the further output {name!r}")
        return nodes

    def activated(self, x: str) -> str:
        """Apply to `x` the activation that the node's attributes name."""
        name = self.attrs.get("activation", "")
        if not name:
            return x
        if name not in _ACTIVATIONS:
            raise NotSupported(f"activation {name!r}")
        keys = _ACTIVATIONS[name]
        values = self.attrs.get("activation_params")
        if values is None:
            named = (self.attrs.get(f"activation_{key}") for key in ("alpha", "beta"))
            values = [value for value in named if value is not None]
        if name == "Clip":
            return self("Clip", x, *(self.number(bound) for bound in values))
        return self(name, x, **dict(zip(keys, map(float, values), strict=False)))
