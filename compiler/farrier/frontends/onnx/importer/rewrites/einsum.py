"""Rewrite Einsum to Einsums of at most two operands, with explicit labels for all axes.

An ellipsis is replaced by labels, and broadcast axes of extent 1 are squeezed. More than two
operands are multiplied in pairs, in the order with the fewest multiplications, if that is cheaper
than a single loop nest over all labels.
"""

from __future__ import annotations

import itertools
import math
import string
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from farrier.frontends.builder.node import RawNode
from farrier.frontends.onnx.importer.scope import ImportScope
from farrier.ir.dim import Extent, typical
from farrier.ir.types import Shape
from farrier.ops import Mismatch
from farrier.ops.einsum import parse_equation

Operands: TypeAlias = frozenset[int]  # Positions among the node's inputs.
# Up to this number of operands every order is tried: 3^7 pairs of sets take some 10 ms.
_MOST_SEARCHED = 7
# Up to this number of operands are multiplied in pairs: the letters that can be labels.
_MOST_PAIRED = 52


def einsum(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite Einsum: replace the ellipsis by labels, squeeze broadcast axes, and split the product
    into a chain of pairs if that is cheaper."""
    shapes = [scope.shape(name) for name in node.inputs]
    operands, output = _without_ellipsis(str(node.attrs["equation"]), shapes)
    if len(operands) != len(shapes):
        raise Mismatch(f"{len(operands)} operands in the equation and {len(shapes)} inputs")
    for labels, shape in zip(operands, shapes, strict=True):
        if len(labels) != len(shape):
            raise Mismatch(f"labels {labels!r} for an operand of shape {shape}")
    extents = _extents(operands, shapes)
    inputs = list(node.inputs)
    for position, (labels, shape) in enumerate(zip(operands, shapes, strict=True)):
        single = [axis for axis, c in enumerate(labels) if shape[axis] == 1 and extents[c] != 1]
        if single:
            inputs[position] = scope.add("Squeeze", inputs[position], single)
            operands[position] = "".join(c for a, c in enumerate(labels) if a not in single)
    return [_product(node, inputs, operands, output, extents, scope)]


def _without_ellipsis(equation: str, shapes: Sequence[Shape]) -> tuple[list[str], str]:
    """Return the labels of each operand and of the output, with new labels in place of the
    ellipsis. As in numpy, the axes of ellipses are aligned at the end."""
    equation = equation.replace(" ", "")
    if "..." not in equation:
        return parse_equation(equation)
    left, arrow, right = equation.partition("->")
    if not arrow:
        once = (c for c in set(left) - set(",.") if left.count(c) == 1)
        right = "..." + "".join(sorted(once))
    operands = left.split(",")
    counts = [
        len(shape) - len(operand.replace("...", "")) if "..." in operand else 0
        for operand, shape in zip(operands, shapes, strict=False)
    ]
    free = [c for c in string.ascii_letters if c not in equation]
    most = max(counts, default=0)
    if most > len(free) or min(counts, default=0) < 0:
        raise Mismatch(f"{equation!r} for operands of {shapes}")
    labels = "".join(free[:most])
    named = [
        operand.replace("...", labels[most - count :])
        for operand, count in zip(operands, counts, strict=False)
    ]
    return named, right.replace("...", labels)


def _extents(operands: Sequence[str], shapes: Sequence[Shape]) -> dict[str, Extent]:
    """Return the extent of each label. If some operands have extent 1 along a label and are
    broadcast, it is the extent of the other operands."""
    extents: dict[str, Extent] = {}
    for labels, shape in zip(operands, shapes, strict=True):
        for label, extent in zip(labels, shape, strict=True):
            if extents.get(label, 1) == 1:
                extents[label] = extent
    return extents


class _Step(NamedTuple):
    """The cheapest way to contract a set of operands. `cost` is its number of multiplications.
    `parts` are the two disjoint subsets of operands whose products are multiplied in the last step;
    empty for a single operand."""

    cost: int
    parts: tuple[Operands, ...] = ()


def _cost(step: _Step) -> int:
    return step.cost


class _Contraction:
    """The search for the cheapest order in which to multiply all operands in pairs."""

    def __init__(self, operands: Sequence[str], output: str, extents: Mapping[str, Extent]) -> None:
        self._operands, self._output = operands, output
        self._usual = {label: max(typical(extent), 1) for label, extent in extents.items()}
        self.all = frozenset(range(len(operands)))
        self.single_nest = math.prod(self._usual.values()) * max(len(operands) - 1, 1)

    def labels(self, chosen: Operands) -> str:
        """Return the labels of the product of the operands `chosen`: those of their labels that the
        output or another operand also has. All other labels are summed."""
        if chosen == self.all:
            return self._output
        others = (labels for i, labels in enumerate(self._operands) if i not in chosen)
        outside = set(self._output).union(*others)
        inside = "".join(self._operands[i] for i in sorted(chosen))
        return "".join(dict.fromkeys(label for label in inside if label in outside))

    def cheapest(self) -> dict[Operands, _Step]:
        """Return the cheapest step for each set of operands, at least for the sets that occur in
        the cheapest contraction of all operands. Above `_MOST_SEARCHED` operands, a greedy search
        replaces the exhaustive one."""
        single = [frozenset((position,)) for position in range(len(self._operands))]
        steps = {chosen: _Step(self._own_cost(chosen)) for chosen in single}
        if len(single) > _MOST_SEARCHED:
            self._multiply_greedily(steps, single)
            return steps
        for count in range(2, len(single) + 1):
            for positions in itertools.combinations(range(len(single)), count):
                chosen = frozenset(positions)
                steps[chosen] = min(
                    (self._step(steps, left, chosen - left) for left in _halves(positions)),
                    key=_cost,
                )
        return steps

    def _own_cost(self, chosen: Operands) -> int:
        """Return the cost of summing the single operand `chosen` over the labels that neither the
        output nor another operand has: its number of elements, or 0 if it has no such label."""
        (position,) = chosen
        own, kept = self._operands[position], self.labels(chosen)
        return 0 if own == kept else math.prod(self._usual[label] for label in {*own})

    def _step(self, steps: Mapping[Operands, _Step], left: Operands, right: Operands) -> _Step:
        both = {*self.labels(left), *self.labels(right)}
        own = math.prod(self._usual[label] for label in both)
        return _Step(own + steps[left].cost + steps[right].cost, (left, right))

    def _multiply_greedily(self, steps: dict[Operands, _Step], parts: list[Operands]) -> None:
        """Repeatedly multiply the pair with the cheapest product until a single product of all
        operands remains."""
        while len(parts) > 1:
            pairs = itertools.combinations(parts, 2)
            step = min((self._step(steps, *pair) for pair in pairs), key=_cost)
            left, right = step.parts
            steps[left | right] = step
            parts = [part for part in parts if part not in step.parts] + [left | right]


def _halves(positions: tuple[int, ...]) -> Iterator[Operands]:
    """Yield one part of each partition of the positions into two non-empty parts: the part that
    contains the first position."""
    first, *others = positions
    for count in range(len(others)):
        for chosen in itertools.combinations(others, count):
            yield frozenset((first, *chosen))


def _product(
    node: RawNode,
    inputs: Sequence[str],
    operands: Sequence[str],
    output: str,
    extents: Mapping[str, Extent],
    scope: ImportScope,
) -> RawNode:
    """Return a node that computes the Einsum of these operands. If a chain of products of two
    operands is cheaper than a single loop nest, add the chain's other nodes and return its last
    node."""
    plain = {"equation": f"{','.join(operands)}->{output}"}
    contraction = _Contraction(operands, output, extents)
    steps = contraction.cheapest() if 2 <= len(operands) <= _MOST_PAIRED else {}
    if not steps or steps[contraction.all].cost >= contraction.single_nest:
        return RawNode("Einsum", list(inputs), node.outputs, plain, node.origin)

    def built(chosen: Operands) -> str:
        labels = contraction.labels(chosen)
        parts = steps[chosen].parts
        if not parts:
            (position,) = chosen
            if operands[position] == labels:
                return inputs[position]
            return scope.add("Einsum", inputs[position], equation=f"{operands[position]}->{labels}")
        return scope.add("Einsum", *map(built, parts), equation=equation(chosen))

    def equation(chosen: Operands) -> str:
        left, right = map(contraction.labels, steps[chosen].parts)
        return f"{left},{right}->{contraction.labels(chosen)}"

    last = contraction.all
    attrs = {"equation": equation(last)}
    return RawNode("Einsum", [*map(built, steps[last].parts)], node.outputs, attrs, node.origin)
