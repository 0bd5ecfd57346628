"""Rewrite convolutions of unusual form to the form that schedules handle best."""

from __future__ import annotations

from farrier.ir.graph import Graph
from farrier.passes.rules.points import (
    grouped_point_convolution_as_matmul,
    line_convolution_as_image,
    sink_point_reshape,
    transposed_convolution_of_few_channels,
)
from farrier.passes.rules.rule import Rule, apply_rules
from farrier.passes.rules.transposed import transposed_convolution_of_phases

_RULES: tuple[Rule, ...] = (
    transposed_convolution_of_few_channels,
    grouped_point_convolution_as_matmul,
    line_convolution_as_image,
    transposed_convolution_of_phases,
    sink_point_reshape,
)


def recast_convolutions(graph: Graph) -> Graph:
    """Rewrite convolutions of three kinds. Grouped 1×1 convolutions with few channels per group
    become matrix products. 1-D convolutions become 2-D convolutions. Transposed convolutions become
    a convolution for each phase of their output, or a single 1×1 convolution if their windows do
    not overlap. The pass must run after fold-batch-norm, which looks for convolutions.

    before:
        @graph
        def g(x: f32[1, 4, 3, 3]):
            w: f32[4, 2, 1, 1] = constant([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
            c: f32[1, 4, 3, 3] = Conv(x, w, group=2)
            y: f32[1, 4, 3, 3] = Relu(c)
            return y

    after:
        @graph
        def g(x: f32[1, 4, 3, 3]):
            w: f32[4, 2, 1, 1] = constant([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
            w_1: f32[1, 2, 2, 2] = constant([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
            c_columns_shape: i64[4] = constant([1, 2, 2, 9])
            c_shape: i64[4] = constant([1, 4, 3, 3])
            y_shape: i64[4] = constant([1, 4, 3, 3])
            c_columns: f32[1, 2, 2, 9] = Reshape(x, c_columns_shape)
            c_product: f32[1, 2, 2, 9] = MatMul(w_1, c_columns)
            c: f32[1, 4, 3, 3] = Reshape(c_product, c_shape)
            y_columns: f32[1, 2, 2, 9] = Relu(c_product)
            y: f32[1, 4, 3, 3] = Reshape(y_columns, y_shape)
            return y
    """
    return apply_rules(graph, _RULES)
