"""CumSum and CumProd along an axis computed at run time → a branch for each possible axis."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
from onnx import helper, numpy_helper

from farrier.frontends.builder.node import RawNode
from farrier.frontends.builder.rewrites.slices import along
from farrier.frontends.builder.symbolic import ints
from farrier.frontends.onnx.importer.rewrites.branches import rewrite_if
from farrier.frontends.onnx.importer.scope import ImportScope
from farrier.ir.dim import number, product
from farrier.ir.sizes import Demand


def running(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    x, axis = node.inputs
    rank = len(scope.shape(x))
    if scope.data(axis) is not None or rank < 1:
        return [node]
    count = number(product(scope.shape(axis)))
    for demands, limit in ((Demand.LEAST, -rank), (Demand.MOST, rank - 1)):
        scope.require(axis, [limit] * count, demands, f"it is an axis of {rank}")
    front = along(axis, rank, scope)
    is_axis = [scope.add("Equal", front, scope.constant(ints(each))) for each in range(rank - 1)]
    graphs = [_graph(_along(node, each), "sums") for each in range(rank)]
    while len(graphs) > 2:
        then, otherwise = graphs[-2:]
        graphs[-2:] = [_graph(_chosen(is_axis[len(graphs) - 2], then, otherwise), "chosen")]
    if len(graphs) == 1:
        scope.bind(node.outputs[0], scope.inline(graphs[0], {}, opset)[0])
        return []
    attrs = {"then_branch": graphs[0], "else_branch": graphs[1]}
    return rewrite_if(RawNode("If", is_axis[:1], node.outputs, attrs, node.origin), opset, scope)


def _along(node: RawNode, axis: int) -> Sequence[onnx.NodeProto]:
    """Return the node with a constant axis."""
    value = numpy_helper.from_array(ints(axis))
    return (
        helper.make_node("Constant", [], ["axis"], value=value),
        helper.make_node(node.op, [node.inputs[0], "axis"], ["sums"], **node.attrs),
    )


def _chosen(
    condition: str, then: onnx.GraphProto, otherwise: onnx.GraphProto
) -> Sequence[onnx.NodeProto]:
    branches = {"then_branch": then, "else_branch": otherwise}
    return (helper.make_node("If", [condition], ["chosen"], **branches),)


def _graph(nodes: Sequence[onnx.NodeProto], output: str) -> onnx.GraphProto:
    info = helper.make_empty_tensor_value_info(output)
    return helper.make_graph(nodes, output, [], [info])
