"""The pass `constant-channels`, which simplifies channels whose result does not depend on the
input."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from farrier.ir.graph import Graph, Node
from farrier.ir.types import DType
from farrier.ops.bounds import LARGEST_BYTE
from farrier.ops.fixed_point import LARGEST_SUM, REQUANTIZE, SHIFTS, rounds_twice
from farrier.ops.registry import product_of
from farrier.ops.traits import Product
from farrier.passes.rewriting import Rewriter
from farrier.passes.settings import Settings

if TYPE_CHECKING:
    import numpy.typing as npt

_HALF = 1 << 30  # The multiplier that stands for a factor of one half.


def constant_channels(graph: Graph, settings: Settings) -> Graph:
    """Simplify the channels of a convolution whose quantized result is the same number c for all
    inputs: they get weights of 0, a bias of 4c, and a factor of 1/4. Training leaves such channels
    with a tiny scale, and thus with huge biases and shifts. Without the rewrite, these would
    prevent `bound-sums` from marking the convolution.

    before:  y = Conv(x, w, b, accumulator='i32')
             z = Requantize(y, m, r, rounding='twice', …)
    after:   y = Conv(x, w', b', accumulator='i32')
             z = Requantize(y, m', r', rounding='twice', …)
    """
    rewriter = Rewriter(graph)
    readers, returned = graph.consumers(), {value.name for value in graph.outputs}
    rewritten: dict[int, Node] = {}
    for node in graph.nodes:
        if product_of(node) is Product.CONVOLUTION:
            (result,) = node.outputs
            of_it = readers.get(result.name, [])
            if len(of_it) == 1 and rounds_twice(of_it[0]) and result.name not in returned:
                node, rewritten[id(of_it[0])] = _rewritten(node, of_it[0], rewriter)
        rewriter.emit(rewritten.get(id(node), node))
    return rewriter.finish()


def _rewritten(conv: Node, requantize: Node, rewriter: Rewriter) -> tuple[Node, Node]:
    """Return `conv` and `requantize` with new weights, biases and factors for constant channels, if
    one of these channels exceeds the bounds that `bound-sums` requires. Otherwise return both nodes
    unchanged."""
    same = conv, requantize
    x = conv.inputs[0]
    values = [*conv.inputs[1:], *requantize.inputs[1:]]
    data = [rewriter.data(value) for value in values]
    if x is None or x.type.dtype not in LARGEST_BYTE or len(data) != 4:
        return same
    weights, bias, *factor = data
    if weights is None or bias is None or weights.dtype != np.int8:
        return same
    shape = (len(bias), *(1 for _ in weights.shape[2:]))
    if any(part is None or part.shape not in ((), shape) for part in factor):
        return same
    multiplier, right = (np.broadcast_to(_known(part), shape).reshape(-1) for part in factor)
    spread = np.abs(weights.astype(np.int64)).reshape(len(bias), -1).sum(axis=1)
    spread *= LARGEST_BYTE[x.type.dtype]
    lowest, highest = bias - spread, bias + spread
    largest = np.abs(bias.astype(np.int64)) + spread
    results = [_requantized(requantize, sums, multiplier, right) for sums in (lowest, highest)]
    # A sum that exceeds 32 bits wraps around.
    is_constant = (results[0] == results[1]) & (largest <= DType.I32.limits[1])
    is_beyond = (right < SHIFTS[0]) | (right > SHIFTS[1]) | (largest > LARGEST_SUM)
    if not (is_constant & is_beyond).any():
        return same
    number = results[0] - int(str(requantize.attr("zero")))
    contents = (
        np.where(is_constant.reshape(-1, *(1 for _ in weights.shape[1:])), 0, weights),
        np.where(is_constant, 4 * number, bias),
        np.where(is_constant, _HALF, multiplier).reshape(shape),
        np.where(is_constant, 1, right).reshape(shape),
    )
    dtypes = (np.int8, np.int32, np.int32, np.int32)
    new = [
        rewriter.constant(content.astype(dtype), value.name)
        for content, dtype, value in zip(contents, dtypes, values, strict=True)
        if value is not None
    ]
    return (
        dataclasses.replace(conv, inputs=(x, *new[:2])),
        dataclasses.replace(requantize, inputs=(requantize.inputs[0], *new[2:])),
    )


def _known(content: npt.NDArray[Any] | None) -> npt.NDArray[Any]:
    assert content is not None
    return content


def _requantized(
    node: Node, sums: npt.NDArray[np.int64], multiplier: npt.NDArray[Any], right: npt.NDArray[Any]
) -> npt.NDArray[np.int64]:
    """Return the results of a Requantize for the integer sums `sums`. The results are monotonic:
    they never decrease if a sum increases."""
    [result] = REQUANTIZE.reference([sums, multiplier, right], dict(node.attrs))
    return np.asarray(result, np.int64)
