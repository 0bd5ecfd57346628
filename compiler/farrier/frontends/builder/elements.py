"""Track the elements of small integer tensors, which hold sizes and positions, through a graph."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from farrier.frontends.builder.symbolic import as_array, has_dims
from farrier.frontends.builder.values import Values
from farrier.ir.dim import Extent, number
from farrier.ir.graph import Node, Value
from farrier.ir.types import DType
from farrier.ops import Kind, Operator, lookup
from farrier.ops.conversion import CAST
from farrier.ops.operator import to_extents
from farrier.ops.traits import Trait

if TYPE_CHECKING:
    from farrier.frontends.builder.builder import Builder

_SIZES = (DType.I64, DType.I32)


@dataclasses.dataclass(frozen=True, slots=True)
class Element:
    """An element, by flat index, of a tensor that a run computes."""

    value: Value
    index: int


def elements_of(values: Values, value: Value) -> list[Extent | Element]:
    """Return the elements of an integer tensor, in flat order. An element that is known when
    compiling is an extent. Any other element is an `Element`: the computed tensor from which it
    comes unchanged, and its index there."""
    data, node = values.known.get(value.name), values.producer.get(value.name)
    if data is not None:
        return list(to_extents(data))
    if node is not None:
        parts = [part for part in node.inputs if part is not None]
        operator = lookup(node.op)
        if operator.has(Trait.JOINS) and value.type.rank == 1:
            sources = (elements_of(values, values.source(part)) for part in parts)
            return list(itertools.chain.from_iterable(sources))
        keeps = _keeps_elements(operator) or CAST.matches(node)
        if keeps and parts[0].type.dtype in _SIZES:
            return elements_of(values, parts[0])
    return [Element(value, at) for at in range(number(value.type.size))]


def _keeps_elements(operator: Operator) -> bool:
    """Check whether an operator's result has the same elements as the first input, in the same
    order."""
    return operator.kind is Kind.VIEW and operator.moves_elements


def filled(values: Values, value: Value) -> int | None:
    """Return the value that all elements of an integer tensor have, or None if they differ or are
    unknown."""
    node = values.producer.get(value.name)
    if node is not None and lookup(node.op).moves_elements:
        operands = lookup(node.op).data_operands(node)
        if len(operands) == 1 and operands[0] is not None:
            value = operands[0]
    data = values.known.get(values.source(value).name)
    if data is None or has_dims(data) or not data.size or (data != data.flat[0]).any():
        return None
    return int(data.flat[0])


def named_elements(builder: Builder, name: str) -> list[Extent | str]:
    """Return the elements of an integer tensor: extents if known when compiling, else names of i64
    scalars."""
    names: list[Extent | str] = []
    for element in elements_of(builder.values, builder.values.names[name]):
        if isinstance(element, Element):
            whole = builder.add("Cast", builder.bind("", element.value), to="i64")
            flat = builder.add("Reshape", whole, builder.constant(np.array([-1])))
            place = builder.constant(np.array(element.index))
            names.append(builder.add("Gather", flat, place, axis=0))
        else:
            names.append(element)
    return names


def scalars(builder: Builder, name: str) -> list[Any]:
    """Return the elements of a tensor as a flat list. Elements that are known when compiling are
    numbers, dims or quotients of dims; for each other element, the name of a scalar of the tensor's
    dtype is returned."""
    values = builder.values
    value = values.names[name]
    data, node = values.known.get(values.source(value).name), values.producer.get(value.name)
    if data is not None:
        return list(data.reshape(-1).tolist())
    if node is not None and value.type.rank < 2:
        operands = [builder.bind("", part) for part in node.inputs if part is not None]
        operator = lookup(node.op)
        if operator.has(Trait.JOINS):
            return [scalar for part in operands for scalar in scalars(builder, part)]
        if _keeps_elements(operator):
            return scalars(builder, operands[0])
        if operator.kind is Kind.ELEMENTWISE and operator.symbolic is not None:
            parts = [scalars(builder, part) for part in operands]
            count = max(map(len, parts))
            rows = (part * count if len(part) == 1 else part for part in parts)
            return [_scalar(builder, node, row) for row in zip(*rows, strict=True)]
    flat = builder.add("Reshape", name, builder.constant(np.array([-1])))
    places = map(np.array, range(number(value.type.size)))
    return [builder.add("Gather", flat, builder.constant(at), axis=0) for at in places]


def _scalar(builder: Builder, node: Node, operands: Sequence[Any]) -> Any:
    """Compute an element of an elementwise node's result from the corresponding elements of its
    operands."""
    names = []
    for operand, value in zip(operands, node.inputs, strict=True):
        name = operand
        if not isinstance(operand, str):
            assert value is not None
            dtype = value.type.dtype
            name = builder.constant(as_array(operand, dtype), dtype)
        names.append(name)
    result = builder.add(node.op, *names, **dict(node.attrs))
    data = builder.data(result)
    return result if data is None else data.reshape(-1).tolist()[0]
