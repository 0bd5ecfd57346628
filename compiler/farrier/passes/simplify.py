"""Replace nodes by cheaper equivalents."""

from __future__ import annotations

from farrier.ir.graph import Graph
from farrier.passes.rules.arithmetic import (
    drop_neutral_element,
    expand_small_power,
    merge_constant_chain,
    multiply_by_reciprocal,
    put_constant_second,
)
from farrier.passes.rules.contractions import (
    gemm_as_matmul,
    pad_in_convolution,
    point_convolution_as_matmul,
    scale_after_product,
)
from farrier.passes.rules.layer_norm import (
    merge_layer_norm_bias,
    merge_layer_norm_scale,
    recover_flax_layer_norm,
    recover_layer_norm,
)
from farrier.passes.rules.reductions import reduce_rows_first
from farrier.passes.rules.rows import merge_rows, sink_row_reshape
from farrier.passes.rules.rule import Rule, apply_rules
from farrier.passes.rules.scatters import scatter_rows
from farrier.passes.rules.shapes import (
    drop_idle,
    elementwise_before_transpose,
    merge_transposes,
    nest_concat,
    unit_axes_before_transpose,
    view_as_reshape,
)
from farrier.passes.rules.softmax import recover_softmax

_RULES: tuple[Rule, ...] = (
    drop_idle,
    nest_concat,
    view_as_reshape,
    merge_transposes,
    elementwise_before_transpose,
    unit_axes_before_transpose,
    put_constant_second,
    drop_neutral_element,
    recover_layer_norm,
    recover_flax_layer_norm,
    merge_layer_norm_scale,
    merge_layer_norm_bias,
    recover_softmax,
    multiply_by_reciprocal,
    expand_small_power,
    merge_constant_chain,
    gemm_as_matmul,
    pad_in_convolution,
    point_convolution_as_matmul,
    scale_after_product,
    reduce_rows_first,
    merge_rows,
    sink_row_reshape,
    scatter_rows,
)


def simplify(graph: Graph) -> Graph:
    """Apply the rules in `passes/rules` to each node until no rule matches.

    before:
        @graph
        def g(x: f32[2, 3]):
            half: f32[()] = constant(2.0)
            p: f32[3, 2] = Transpose(x, perm=(1, 0))
            q: f32[2, 3] = Transpose(p, perm=(1, 0))
            y: f32[2, 3] = Div(q, half)
            return y

    after:
        @graph
        def g(x: f32[2, 3]):
            half: f32[()] = constant(2.0)
            half_inverse: f32[()] = constant(0.5)
            p: f32[3, 2] = Transpose(x, perm=(1, 0))
            y: f32[2, 3] = Mul(x, half_inverse)
            return y
    """
    return apply_rules(graph, _RULES)
