"""Translate a graph region to a tensor program: the computation of one kernel.

before:  def region(x: f32[2, 3], w: f32[3, 4]): h = MatMul(x, w); y = Relu(h); return y
after:   matmul[m, n] = sum(x[m, k] * w[k, n] for k in axes(3))
         relu[i0, i1] = max(matmul[i0, i1], 0.0)
"""

from __future__ import annotations

from collections.abc import Collection

from farrier.errors import CompilerError
from farrier.ir.expr import Buffer, MemoryScope
from farrier.ir.graph import Graph
from farrier.ir.tensor import TensorProgram
from farrier.ops.builder import Builder
from farrier.ops.registry import lookup


def to_program(region: Graph, name: str, constant_inputs: Collection[str] = ()) -> TensorProgram:
    """Return the stages that compute `region`, in order, from the `compute` rule of each operator.

    `constant_inputs` names the inputs whose content is known at compile time: a schedule may choose
    their layout. The region's own constants become literals or static operands, and have no buffer.
    Raises CompilerError for an operator without a `compute` rule (Shape, Constant), which should
    have been folded.
    """
    buffers: dict[str, Buffer] = {}
    for value in region.inputs:
        scope = MemoryScope.CONSTANT if value.name in constant_inputs else MemoryScope.PARAM
        kind = value.type
        buffers[value.name] = Buffer(value.name, kind.dtype, kind.shape, kind.layout, scope)
    builder = Builder(
        region.constant_data(), [value.name for value in region.outputs], tuple(buffers)
    )
    for node in region.nodes:
        compute = lookup(node.op).compute
        if compute is None:
            raise CompilerError(
                f"{node.op} ({node.origin}) reached lowering, and is never computed"
            )
        inputs = [None if v is None else buffers.get(v.name) for v in node.inputs]
        outputs = compute(builder, node, inputs)
        for value, buffer in zip(node.outputs, outputs, strict=True):
            buffers[value.name] = buffer
    return TensorProgram(
        name,
        tuple(buffers[value.name] for value in region.inputs),
        tuple(builder.stages),
        tuple(buffers[value.name] for value in region.outputs),
        region.dims,
    )
