"""The pass `byte-products`, which computes products of dequantized bytes in integers."""

from __future__ import annotations

from farrier.ir.graph import Graph
from farrier.passes.quantized_products import QuantizedProducts
from farrier.passes.settings import Settings


def byte_products(graph: Graph, settings: Settings) -> Graph:
    """Compute a Conv, MatMul or Gemm in integers, as one exact integer sum that is scaled once. Its
    operands must be dequantized from bytes, its weights must be constant, and the GPU's subgroups
    must be able to multiply bytes. The padding of the product becomes the zero point of the tensor,
    and the contribution of the zero point to the sums is subtracted from the bias.

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
    if settings.target.backend.byte_factors(settings.target) is None:
        return graph
    return QuantizedProducts(graph, 1, 1, lambda weights, group: True).run()
