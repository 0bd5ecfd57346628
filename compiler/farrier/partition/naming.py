"""Build readable names of kernels."""

from __future__ import annotations

import re

from farrier.ir.graph import Graph, Node
from farrier.ir.types import Shape
from farrier.ops import Kind, lookup
from farrier.ops.traits import Product
from farrier.ops.window import window_of

_MAX_TAIL = 4  # The number of operators that are named after the main one.


def task_name(region: Graph) -> str:
    """Return a name for the computation of a kernel, an identifier: `conv3x3_s1_64x56x56_add_relu`.
    It starts with the contraction, else the reduction, else the first node, with the geometry of
    that node."""
    lead = min(region.nodes, key=lambda node: _RANK.index(lookup(node.op).kind))
    others = [node.op.lower() for node in region.nodes if node is not lead]
    if len(others) > _MAX_TAIL:
        others = [*others[:_MAX_TAIL], f"and_{len(others) - _MAX_TAIL}_more"]
    name = "_".join([_describe(lead), *others])
    return re.sub(r"[^a-z0-9_]", "_", name)


_RANK = (
    Kind.NEST,
    Kind.CONTRACTION,
    Kind.REDUCTION,
    Kind.INJECTIVE,
    Kind.ELEMENTWISE,
    Kind.VIEW,
    Kind.OPAQUE,
)


def _describe(node: Node) -> str:
    operator = lookup(node.op)
    match operator.product:
        case Product.CONVOLUTION | Product.TRANSPOSED_CONVOLUTION:
            return _convolution(node)
        case Product.FILTERING:
            tile, stride = node.attr("tile"), node.attr("strides", (1, 1))[0]
            return f"winograd{tile}_s{stride}_{_shape(node, 0)[1]}_{_output(node)}"
        case Product.MATRIX:
            return f"matmul_{_output(node)}_k{_shape(node, 0)[0 if node.attr('transA', 0) else -1]}"
        case None if operator.window is not None:
            window = operator.window(node)
            size = f"{_joined(window.kernel)}_s{_joined(window.strides, True)}"
            return f"{node.op.lower()}{size}_{_output(node)}"
        case None:
            return f"{node.op.lower()}_{_output(node)}"


def _convolution(node: Node) -> str:
    """Return kernel size, stride, input channels, then output channels and extents of a convolution
    as text."""
    x, w = _shape(node, 0), _shape(node, 1)
    window = window_of(dict(node.attrs), x[2:], w[2:])
    group = node.attr("group", 1)
    kind = "depthwise" if group == x[1] and group > 1 else node.op.lower()
    groups = f"_g{group}" if group > 1 and kind != "depthwise" else ""
    dilation = f"_d{_joined(window.dilations, True)}" if max(window.dilations) > 1 else ""
    stride = _joined(window.strides, True)
    return f"{kind}{_joined(window.kernel)}_s{stride}{dilation}{groups}_{x[1]}_{_output(node)}"


def _output(node: Node) -> str:
    """Return the extents of a node's output as text, without a batch axis of extent one."""
    shape = node.outputs[0].type.shape
    return _joined(shape[1:] if len(shape) > 1 and shape[0] == 1 else shape)


def _shape(node: Node, position: int) -> Shape:
    value = node.inputs[position]
    assert value is not None
    return value.type.shape


def _joined(numbers: Shape, short: bool = False) -> str:
    """Return numbers as text, `3x3`; if `short` and all are equal, only one of them."""
    if short and len(set(numbers)) == 1:
        return str(numbers[0])
    return "x".join(map(str, numbers)) or "scalar"
