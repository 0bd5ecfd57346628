"""NonMaxSuppression: select the boxes with the best scores among overlapping ones."""

from __future__ import annotations

import math

import numpy as np

from farrier.ir.dim import Extent, minimum, product
from farrier.ir.graph import Node
from farrier.ir.types import DType, TensorType
from farrier.ops.builder import attributes_of
from farrier.ops.data_dim import COUNT, data_extent
from farrier.ops.heap import Heap
from farrier.ops.nest import LoopBuilder, Tensor
from farrier.ops.operator import (
    Array,
    Arrays,
    Attrs,
    Constants,
    Kind,
    Mismatch,
    Operator,
    Types,
    clash,
    fail_to_agree,
    int_attr,
    optional,
    present,
    required,
)
from farrier.ops.scalar import Scalar, both, cast, equal, guarded, maximum, number, where
from farrier.ops.scalar import minimum as least


def _most(constants: Constants, types: Types) -> Extent:
    """Return an upper bound on the number of selected boxes of a class, from constants and
    shapes."""
    boxes = required(types, 0).shape[1]
    if len(types) < 3 or types[2] is None:
        return 0
    if 2 not in constants:
        return boxes
    return minimum(boxes, max(int(constants[2].reshape(-1)[0]), 0))


def _infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    boxes, scores = required(types, 0), required(types, 1)
    if boxes.rank != 3 or scores.rank != 3 or fail_to_agree(boxes.shape[2], 4):
        raise Mismatch(f"boxes {boxes.shape} and scores {scores.shape}")
    if clash(scores.shape[::2], boxes.shape[:2]):
        raise Mismatch(f"scores {scores.shape} do not fit boxes {boxes.shape}")
    bound = product((*scores.shape[:2], _most(constants, types)))
    count = 0 if isinstance(bound, int) and bound == 0 else None
    if all(p in constants for p, kind in enumerate(types) if kind is not None):
        count = len(_reference([constants.get(p) for p in range(len(types))], attrs)[0])
    return (TensorType(DType.I64, (data_extent(attrs, bound, count), 3)), COUNT)


def _corners(boxes: Array, is_centered: bool) -> Array:
    """Return boxes as lowest and highest coordinates of both axes, [..., 4] → [..., 2, 2]."""
    if is_centered:
        center, half = boxes[..., :2], boxes[..., 2:] / 2
        return np.stack([center - half, center + half], -2)
    pairs = boxes.reshape(*boxes.shape[:-1], 2, 2)
    return np.stack([pairs.min(-2), pairs.max(-2)], -2)


def _reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    boxes, scores = present(arrays, 0), present(arrays, 1)
    most, overlap, least_score = (optional(arrays, p) for p in (2, 3, 4))
    limit = 0 if most is None else int(most.reshape(-1)[0])
    share = 0.0 if overlap is None else float(overlap.reshape(-1)[0])
    corners = _corners(boxes, bool(int_attr(attrs, "center_point_box", 0)))
    chosen = []
    for batch, kind in np.ndindex(scores.shape[:2]):
        mine: list[int] = []
        line = scores[batch, kind]
        for box in np.argsort(-line, kind="stable"):
            if least_score is not None and not line[box] > least_score.reshape(-1)[0]:
                continue
            kept = (_share(corners[batch, box], corners[batch, other]) <= share for other in mine)
            if len(mine) < limit and all(kept):
                mine.append(int(box))
        chosen += [(batch, kind, box) for box in mine]
    return (np.array(chosen, np.int64).reshape(-1, 3), np.asarray(len(chosen), np.int64))


def _share(first: Array, second: Array) -> float:
    """Return the area of the intersection of two boxes divided by the area of their union. It is 0
    if one of the boxes is empty."""
    sides = np.minimum(first[1], second[1]) - np.maximum(first[0], second[0])
    areas = np.prod(first[1] - first[0]), np.prod(second[1] - second[0])
    if min(*sides, *areas) <= 0:
        return 0.0
    common = np.prod(sides)
    return float(common / (areas[0] + areas[1] - common))


def _nest(nest: LoopBuilder, node: Node) -> None:
    """Write the loops. For each class of each image, the boxes are taken from a heap, highest score
    first. A box is selected unless it overlaps a box that is already selected. At the end, the
    results of all classes are concatenated."""
    batches, classes, count = nest.shape(1)
    scores, share = nest.input(1), _scalar(nest, 3, 0)
    limit = nest.let(cast(_scalar(nest, 2, 0), DType.I64), "limit")
    most = minimum(count, _known(nest, count))
    lines = batches * classes
    out = nest.output(0, (lines * most * 3,))
    if lines == 0 or most == 0:
        nest.output(1)[()] = 0
        return
    chosen = nest.shared("chosen", (lines, most), DType.I64)
    counts = nest.shared("found", (lines,), DType.I64)
    with nest.for_(lines, "line") as line:
        batch, kind = nest.unravel(line, (batches, classes))
        heap = _candidates(nest, scores, batch, kind)
        boxes = _Boxes(nest, node, batch, most)
        left = nest.variable(heap.length, "left")
        stayed = nest.variable(number(0, DType.I64), "stayed")
        room = nest.let(least(limit, most), "room")
        with nest.while_(both(left.value > 0, stayed.value < room)):
            box = nest.let(number(count - 1, DType.I64) - heap.places[0], "box")
            left.value = left.value - 1
            heap.sift(
                heap.values[left.value], heap.places[left.value], number(0, DType.I64), left.value
            )
            with nest.if_(boxes.stays(box, stayed.value, share)):
                chosen[line, stayed.value] = box
                stayed.value = stayed.value + 1
        counts[line] = stayed.value
    total = nest.variable(number(0, DType.I64), "total")
    with nest.for_(batches, "batch") as batch, nest.for_(classes, "kind") as kind:
        line = nest.let(batch * classes + kind)
        with nest.for_(most) as i, nest.if_(i < counts[line]):
            for position, value in enumerate((batch, kind, chosen[line, i])):
                out[total.value * 3 + position] = value
            total.value = total.value + 1
    nest.output(1)[()] = total.value


def _scalar(nest: LoopBuilder, position: int, default: int) -> Scalar:
    """Return the single element of the operand at `position`, or the number `default` if the node
    omits the operand."""
    operand = nest.optional(position, (1,))
    return number(default, DType.F32) if operand is None else operand[0]


def _known(nest: LoopBuilder, count: Extent) -> Extent:
    """Return an upper bound on the number of selected boxes of a class: input 2 if it is constant,
    else `count`, the number of boxes."""
    limit = nest.known(2)
    return count if limit is None else max(int(limit), 0)


class _Candidates(Heap):
    """A heap of the boxes of one class, with the highest score at the root. Of boxes with equal
    scores the first one in the input comes first."""

    length: Scalar


def _candidates(nest: LoopBuilder, scores: Tensor, batch: Scalar, kind: Scalar) -> _Candidates:
    count = scores.shape[2]
    heap = _Candidates(nest, count, scores.dtype, largest=False)
    threshold = nest.optional(4, (1,))
    size = nest.variable(number(0, DType.I64), "size")
    with nest.for_(count) as box:
        score = nest.let(scores[batch, kind, box])
        # A box whose score is NaN ranks last, and is dropped if there is a threshold.
        rank = where(equal(score, score), score, -math.inf)
        place = number(count - 1, DType.I64) - box
        heap.values[size.value], heap.places[size.value] = rank, place
        enters = number(True, DType.BOOL) if threshold is None else score > threshold[0]
        size.value = size.value + cast(enters, DType.I64)
    heap.length = nest.let(size.value, "length")
    with nest.for_(count // 2) as i:
        start = nest.let(number(count // 2 - 1, DType.I64) - i)
        with nest.if_(start < heap.length):
            heap.sift(heap.values[start], heap.places[start], start, heap.length)
    return heap


class _Boxes:
    """The coordinates of the selected boxes."""

    def __init__(self, nest: LoopBuilder, node: Node, batch: Scalar, most: Extent) -> None:
        self._nest, self._batch, self._boxes = nest, batch, nest.input(0)
        self._is_centered = bool(int_attr(attributes_of(node), "center_point_box", 0))
        # The lowest and highest coordinate of each axis.
        self._sides = nest.local("sides", (4, most), self._boxes.dtype)

    def stays(self, box: Scalar, stayed: Scalar, share: Scalar) -> Scalar:
        """Check whether a box has an intersection over union of at most `share` with each of the
        `stayed` selected boxes. If so, add it to them."""
        nest = self._nest
        low, high = ([nest.let(side) for side in sides] for sides in self._corners(box))
        area = nest.let((high[0] - low[0]) * (high[1] - low[1]), "area")
        stays = nest.variable(number(True, DType.BOOL), "stays")
        at = nest.variable(number(0, DType.I64), "at")
        with nest.while_(both(at.value < stayed, stays.value)):
            lows, highs = (
                [self._sides[2 * end + a, at.value] for a in range(2)] for end in range(2)
            )
            sides = [
                nest.let(least(high[a], highs[a]) - maximum(low[a], lows[a])) for a in range(2)
            ]
            theirs = nest.let((highs[0] - lows[0]) * (highs[1] - lows[1]))
            common = nest.let(sides[0] * sides[1])
            meets = both(both(sides[0] > 0, sides[1] > 0), both(area > 0, theirs > 0))
            too_much = guarded(meets, common / (area + theirs - common) > share)
            with nest.if_(too_much):
                stays.value = False
            at.value = at.value + 1
        with nest.if_(stays.value):
            for end, sides in enumerate((low, high)):
                for axis, side in enumerate(sides):
                    self._sides[2 * end + axis, stayed] = side
        return stays.value

    def _corners(self, box: Scalar) -> tuple[list[Scalar], list[Scalar]]:
        """Return the lowest and the highest coordinates of a box along both axes."""
        parts = [self._boxes[self._batch, box, i] for i in range(4)]
        if self._is_centered:
            lows = [parts[a] - parts[2 + a] / 2 for a in range(2)]
            return lows, [parts[a] + parts[2 + a] / 2 for a in range(2)]
        lows = [least(parts[a], parts[2 + a]) for a in range(2)]
        return lows, [maximum(parts[a], parts[2 + a]) for a in range(2)]


OPERATORS: tuple[Operator, ...] = (
    Operator("NonMaxSuppression", Kind.NEST, _infer, _reference, None, nest=_nest, counts=True),
)
