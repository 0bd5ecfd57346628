"""The pass `fuse-attentions`, which fuses as the pass `fuse` does, and also the attentions that
subgroups compute on fragments."""

from __future__ import annotations

from farrier.ir.graph import Graph
from farrier.passes.attention import FLOATS
from farrier.passes.fuse import fuse
from farrier.passes.settings import Settings


def fuse_attentions(graph: Graph, settings: Settings) -> Graph:
    """Turn groups of nodes into `Fused` nodes, as the pass `fuse` does. An attention with factors
    of f16 or bf16 is a group if the device declares a fragment product whose totals become factors
    in registers.

    before:
        @graph
        def g(q: f16[8, 16], k: f16[16, 8], v: f16[8, 16]):
            s: f32[8, 8] = MatMul(q, k, accumulator='f32')
            p: f32[8, 8] = Softmax(s, axis=-1)
            h: f16[8, 8] = Cast(p, to='f16')
            y: f32[8, 16] = MatMul(h, v, accumulator='f32')
            return y

    after:
        @graph
        def g(q: f16[8, 16], k: f16[16, 8], v: f16[8, 16]):
            def matmul_softmax_cast_matmul(q: f16[8, 16], k: f16[16, 8], v: f16[8, 16]):
                s: f32[8, 8] = MatMul(q, k, accumulator='f32')
                p: f32[8, 8] = Softmax(s, axis=-1)
                h: f16[8, 8] = Cast(p, to='f16')
                y: f32[8, 16] = MatMul(h, v, accumulator='f32')
                return y
            y: f32[8, 16] = Fused[matmul_softmax_cast_matmul](q, k, v)
            return y
    """
    from farrier.targets.gpu.backend import GpuBackend

    backend = settings.target.backend
    if not isinstance(backend, GpuBackend):
        return fuse(graph)
    products = backend.products(settings.target)
    return fuse(graph, attended=FLOATS | {each.left for each in products if each.keeps_places})
