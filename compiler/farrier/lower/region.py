"""Translate a graph region to its kernel: a tensor program, or a loop function if its operator has
a `nest` rule.
"""

from __future__ import annotations

from collections.abc import Collection

from farrier.errors import CompilerError
from farrier.ir.expr import Buffer, MemoryScope
from farrier.ir.graph import Graph
from farrier.ir.loop import Function
from farrier.ir.tensor import TensorProgram
from farrier.lower.program import to_program
from farrier.ops.nest import LoopBuilder
from farrier.ops.registry import lookup


def lower_region(
    region: Graph, name: str, constant_inputs: Collection[str]
) -> TensorProgram | Function:
    """Return the kernel `name` of a region. Raises CompilerError as `to_program` does, and for an
    operator with a `nest` rule that is not the only node of its region."""
    rules = [lookup(node.op).loops_of(node) for node in region.nodes]
    if not any(rules):
        return to_program(region, name, constant_inputs)
    (rule, *others), node = rules, region.nodes[0]
    if rule is None or others:
        raise CompilerError(f"{node.op} ({node.origin}) is fused with a loop nest")
    buffers = {}
    for value in (*region.inputs, *region.outputs):
        kind = value.type
        scope = MemoryScope.CONSTANT if value.name in constant_inputs else MemoryScope.PARAM
        buffers[value.name] = Buffer(value.name, kind.dtype, kind.shape, kind.layout, scope)
    nest = LoopBuilder(node, buffers, region.constant_data())
    rule(nest, node)
    return nest.function(name, region.given_dims)
