"""The pass `integer-products`, which computes products of dequantized tensors in integers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from farrier.ir.graph import Graph
from farrier.passes.quantized_products import QuantizedProducts
from farrier.passes.settings import Settings
from farrier.targets.cpu.passes.channel_blocks import block_for, merging
from farrier.targets.cpu.target import as_cpu

if TYPE_CHECKING:
    import numpy.typing as npt

    Array: TypeAlias = npt.NDArray[Any]


def integer_products(graph: Graph, settings: Settings) -> Graph:
    """Compute a Conv, MatMul or Gemm in integers, as one exact integer sum that is scaled once. Its
    operands must be dequantized from bytes, its weights must be constant, and the target must have
    fitting dot products.

    The padding of the product becomes the zero point of the tensor, and the contribution of the
    zero point to the sums is subtracted from the bias. A bias that is quantized with the product's
    own scale is added as an integer. For depthwise convolutions dot products do not help; they sum
    the integers in f32, where their sums are exact. Grouped convolutions stay in floating point if
    `merge-groups` cannot fill blocks with their groups.

    A global average of dequantized bytes becomes a sum of integers, which is scaled once too.

    A quantization of such a result multiplies by the reciprocal of its scale instead of dividing.
    The result may be the neighbouring integer if the quotient is within rounding of the midpoint
    between two integers. Operators that only move elements between a DequantizeLinear and a
    QuantizeLinear with the same scale move the integers instead.

    before:
        @graph
        def g(x: u8[2, 4]):
            w: i8[4, 2] = constant([1, 2, 3, 4, 5, 6, 7, 8])
            s: f32[()] = constant(0.5)
            t: f32[()] = constant(0.25)
            a: f32[2, 4] = DequantizeLinear(x, s, to='f32')
            b: f32[4, 2] = DequantizeLinear(w, t, to='f32')
            y: f32[2, 2] = MatMul(a, b)
            return y

    after:
        @graph
        def g(x: u8[2, 4]):
            w: i8[4, 2] = constant([1, 2, 3, 4, 5, 6, 7, 8])
            s: f32[()] = constant(0.5)
            t: f32[()] = constant(0.25)
            y_factor: f32[1, 1] = constant([0.125])
            a: f32[2, 4] = DequantizeLinear(x, s, to='f32')
            b: f32[4, 2] = DequantizeLinear(w, t, to='f32')
            y_sums: i32[2, 2] = MatMul(x, w, accumulator='i32')
            y_sums_f32: f32[2, 2] = Cast(y_sums, to='f32')
            y: f32[2, 2] = Mul(y_sums_f32, y_factor)
            return y
    """
    target = as_cpu(settings.target)
    dot = target.integer_dot()
    if dot is None:
        return graph
    block = block_for(dot, target)

    def fills_blocks(weights: Array, group: int) -> bool:
        """Check whether the groups of a convolution, after merging, fill blocks of channels and
        groups of dot products."""
        inputs = weights.shape[1]
        merged = merging(group, len(weights) // group, inputs, block)
        return merged is not None and not (
            merged.count * inputs % dot.group or merged.rest * inputs % dot.group
        )

    return QuantizedProducts(graph, dot.group, block, fills_blocks).run()
