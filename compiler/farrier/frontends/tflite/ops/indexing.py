"""Rules of gathers, one-hot encodings and positions of elements."""

from __future__ import annotations

import functools

import numpy as np

from farrier.frontends.builder import Builder, RawNode
from farrier.frontends.tflite.call import Call, Rule, as_index
from farrier.frontends.tflite.schema import DTYPES, INT64
from farrier.ops import NotSupported
from farrier.ops.operator import normal_axis


def _gather(call: Call, b: Builder) -> str:
    x = call.value(0)
    if call.option("batch_dims"):
        return _batched_gather(call, b, x)
    axis = normal_axis(int(call.option("axis")), len(b.shape(x)))
    return b.add("Gather", x, call.value(1), axis=axis)


def _batched_gather(call: Call, b: Builder, x: str) -> str:
    """Gather by indices that differ between the elements of a batch, along the axis after the batch
    axes."""
    batch, indices = int(call.option("batch_dims")), as_index(b, call.value(1))
    if int(call.option("axis")) not in (batch, batch - len(b.shape(x))):
        raise NotSupported("batch_dims with another axis than the one behind the batch")
    return b.add("GatherND", x, b.add("Unsqueeze", indices, [-1]), batch_dims=batch)


def _gather_nd(call: Call, b: Builder) -> str:
    return b.add("GatherND", call.value(0), as_index(b, call.value(1)), batch_dims=0)


def _arg(call: Call, b: Builder, *, op: str) -> str:
    x = call.value(0)
    (axis,) = call.ints(1)
    place = b.add(op, x, axis=normal_axis(axis, len(b.shape(x))), keepdims=0)
    to = DTYPES[call.option("output_type") or INT64]
    return b.add("Cast", place, to=str(to))


def _range(call: Call, b: Builder) -> str:
    return b.add("Range", *(b.add("Reshape", value, []) for value in call.values()[:3]))


def _one_hot(call: Call, b: Builder) -> str:
    """Convert ONE_HOT: an index out of range sets no element."""
    indices, depth, on, off = call.values()[:4]
    axis = int(call.option("axis"))
    levels = b.add("Cast", b.add("Range", *_bounds(b, depth)), to=str(b.dtype(indices)))
    rank = len(b.shape(indices)) + 1
    axis = normal_axis(axis, rank)
    shape = [-1 if place == axis else 1 for place in range(rank)]
    hot = b.add("Equal", b.add("Unsqueeze", indices, [axis]), b.add("Reshape", levels, shape))
    return b.add("Where", hot, on, off)


def _bounds(b: Builder, depth: str) -> tuple[str, str, str]:
    zero, step = (b.constant(np.array(value)) for value in (0, 1))
    return zero, b.add("Reshape", as_index(b, depth), []), step


def _top_k(call: Call, b: Builder) -> tuple[str, str]:
    """Convert TOPK_V2: the largest values in descending order, and their positions."""
    x = call.value(0)
    count = b.add("Reshape", as_index(b, call.value(1)), [1])
    values, places = b.fresh(), b.fresh()
    attrs = {"axis": -1, "largest": 1, "sorted": 1}
    b.emit(RawNode("TopK", [x, count], [values, places], attrs, b.at_hand.origin))
    return values, b.add("Cast", places, to=str(DTYPES[call.outputs[1].type]))


RULES: dict[str, Rule] = {
    "ARG_MAX": functools.partial(_arg, op="ArgMax"),
    "ARG_MIN": functools.partial(_arg, op="ArgMin"),
    "GATHER": _gather,
    "GATHER_ND": _gather_nd,
    "ONE_HOT": _one_hot,
    "RANGE": _range,
    "TOPK_V2": _top_k,
}
