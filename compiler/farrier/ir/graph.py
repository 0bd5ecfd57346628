"""The graph grammar: operators on tensors, typed, in static single assignment.

    graph    = Graph(name, [value] inputs, [constant], [node], [value] outputs)
    node     = Node(op, [value?] inputs, [value] outputs, {attr}, [graph] regions, origin)
    constant = Constant(value, data)
    value    = name : type
    attr     = int | float | str | bool | [int] | [float] | [str]

Nodes stand in execution order. `op` is an operator of `farrier.ops`, whose names and semantics are
those of ONNX's newest opset, plus the few of Farrier's own (`Fused`: a region that becomes one
kernel; `Relayout`: the same tensor in another layout). An omitted optional input is None. `origin`
names the ONNX nodes that a node comes from; it is carried along outside equality.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from farrier.ir.dim import Symbol, with_bounds
from farrier.ir.types import TensorType

if TYPE_CHECKING:
    import numpy.typing as npt

Attribute: TypeAlias = (
    int | float | str | bool | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]
)


@dataclasses.dataclass(frozen=True, slots=True)
class Value:
    """A tensor that flows along an edge; names are identifiers, unique within a graph."""

    name: str
    type: TensorType


@dataclasses.dataclass(frozen=True)
class Constant:
    """A value known at compile time. `data` is its logical array, whatever the layout; of dtype
    object, numbers and dims, where it depends on sizes that are known only when the model runs."""

    value: Value
    data: npt.NDArray[Any]

    @functools.cached_property
    def digest(self) -> str:
        """sha256 of dtype, shape and bytes."""
        import numpy as np

        content = hashlib.sha256(f"{self.data.dtype.str}{self.data.shape}".encode())
        if self.data.dtype == object:
            content.update(str(self.data.tolist()).encode())
            return content.hexdigest()
        # A constant may repeat one element without storing it; such data is copied, others are not.
        content.update(np.ascontiguousarray(self.data).reshape(-1).view("u1").data)
        return content.hexdigest()

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Constant)
            and self.value == other.value
            and self.digest == other.digest
        )

    def __hash__(self) -> int:
        return hash((self.value, self.digest))


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    op: str
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value, ...]
    attrs: tuple[tuple[str, Attribute], ...] = ()  # sorted by name
    regions: tuple[Graph, ...] = ()
    origin: str = dataclasses.field(default="", compare=False)

    def attr(self, name: str, default: Any = None) -> Any:
        """The attribute `name`, or `default` where the node has none."""
        for key, value in self.attrs:
            if key == name:
                return value
        return default


@dataclasses.dataclass(frozen=True, slots=True)
class Graph:
    name: str
    inputs: tuple[Value, ...]
    constants: tuple[Constant, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Value, ...]

    @property
    def dims(self) -> tuple[Symbol, ...]:
        """Every symbol of the values' types, each behind those of its bounds."""
        found: dict[Symbol, None] = {}
        constants = (c.data.reshape(-1).tolist() for c in self.constants if c.data.dtype == object)
        for extents in (*(value.type.shape for value in self.values()), *constants):
            found |= dict.fromkeys(with_bounds(extents))
        for node in self.nodes:
            for region in node.regions:
                found |= dict.fromkeys(region.dims)
        return tuple(found)

    def constant_data(self) -> dict[str, npt.NDArray[Any]]:
        """The data of every constant by the name of its value."""
        return {constant.value.name: constant.data for constant in self.constants}

    def producers(self) -> dict[str, Node]:
        """The node that defines each value, by the value's name."""
        return {out.name: node for node in self.nodes for out in node.outputs}

    def consumers(self) -> dict[str, list[Node]]:
        """The nodes that read each value, by the value's name; graph outputs are not consumers."""
        readers: dict[str, list[Node]] = {}
        for node in self.nodes:
            for value in {v.name: v for v in node.inputs if v is not None}.values():
                readers.setdefault(value.name, []).append(node)
        return readers

    def values(self) -> Iterator[Value]:
        """Every value, each once, in the order of definition."""
        yield from self.inputs
        yield from (constant.value for constant in self.constants)
        for node in self.nodes:
            yield from node.outputs


def attributes(**attrs: Attribute) -> tuple[tuple[str, Attribute], ...]:
    """Attributes in the canonical order, for `Node.attrs`."""
    return tuple(sorted(attrs.items()))
