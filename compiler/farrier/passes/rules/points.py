"""Rules that rewrite convolutions to forms that schedules handle: those with 1×1 windows, those
over one spatial axis, and transposed ones whose windows do not overlap. A last rule moves the
Reshape that follows such a product behind elementwise operators."""

from __future__ import annotations

import dataclasses

import numpy as np

from farrier.ir.dim import Extent, product
from farrier.ir.graph import Node, Value, attributes
from farrier.ir.types import TensorType
from farrier.ops import Kind, Product, lookup, product_of
from farrier.ops.view import RESHAPE
from farrier.passes.rewriting import Rewriter
from farrier.passes.rules.rule import Replacement
from farrier.passes.rules.shapes import reshape

_FEW = 8  # The channels that are too few for a vector.
_WHOLE = 16  # The channels of a group must be a multiple of this to be whole vectors.
_POINTWISE = attributes(
    dilations=(1, 1), group=1, kernel_shape=(1, 1), pads=(0, 0, 0, 0), strides=(1, 1)
)


def transposed_convolution_of_few_channels(node: Node, rewriter: Rewriter) -> Replacement | None:
    """A ConvTranspose to a few channels whose windows do not overlap → a 1×1 convolution with a
    channel for each tap, followed by a node that moves these channels to their positions in the
    image."""
    is_transposed = product_of(node) is Product.TRANSPOSED_CONVOLUTION
    if not is_transposed or node.inputs[1] is None or node.attr("group", 1) != 1:
        return None
    x, w, *rest = node.inputs
    y, weights = node.outputs[0], rewriter.data(w)
    bias = rewriter.data(rest[0]) if rest and rest[0] is not None else None
    if x is None or w is None or weights is None or (rest and rest[0] is not None and bias is None):
        return None
    if x.type.rank != 4 or weights.shape[1] >= _FEW or weights.shape[2] != weights.shape[3]:
        return None
    (batch, _, *points), size = x.type.shape, weights.shape[2]
    apart = tuple(node.attr("strides", (1, 1))) == (size, size) and size > 1
    dense = tuple(node.attr("dilations", (1, 1))) == (1, 1)
    whole = y.type.shape[2:] == tuple(size * extent for extent in points)
    if not (apart and dense and whole) or any(node.attr("pads", (0,) * 4)):
        return None
    taps = np.ascontiguousarray(weights.reshape(len(weights), -1).T)[:, :, None, None]
    operands = [x, rewriter.constant(taps, w.name)]
    if bias is not None and rest[0] is not None:
        operands.append(rewriter.constant(np.repeat(bias, size * size), rest[0].name))
    type = TensorType(y.type.dtype, (batch, len(taps), *points))
    side_by_side = Value(rewriter.fresh(f"{y.name}_taps"), type)
    place = attributes(blocksize=size, mode="CRD")
    return (
        Node("Conv", tuple(operands), (side_by_side,), _POINTWISE, origin=node.origin),
        Node("DepthToSpace", (side_by_side,), (y,), place, origin=node.origin),
    )


def grouped_point_convolution_as_matmul(node: Node, rewriter: Rewriter) -> Replacement | None:
    """A 1×1 convolution whose groups have fewer channels than a vector has lanes → a matrix product
    for each group, with vectors along the spatial axes."""
    if product_of(node) is not Product.CONVOLUTION:
        return None
    x, w, *rest = node.inputs
    group, y = int(node.attr("group", 1)), node.outputs[0]
    if x is None or w is None or group == 1 or x.type.rank != 4:
        return None
    if node.attr("accumulator") is not None:
        return None  # Operands and sums have different types.
    if w.type.shape[2:] != (1, 1) or x.type.shape[2:] != y.type.shape[2:]:
        return None
    if any(node.attr("pads", (0,) * 4)):
        return None
    weights = rewriter.data(w)
    bias = rewriter.data(rest[0]) if rest and rest[0] is not None else None
    if weights is None or (rest and rest[0] is not None and bias is None):
        return None
    batch, points = y.type.shape[0], product(y.type.shape[2:])
    outputs, inputs = weights.shape[0] // group, weights.shape[1]
    if min(outputs, inputs) < 2 or (outputs % _WHOLE == 0 and inputs % _WHOLE == 0):
        return None

    def value(hint: str, *shape: Extent) -> Value:
        return Value(rewriter.fresh(f"{y.name}_{hint}"), TensorType(y.type.dtype, shape))

    columns = value("columns", batch, group, inputs, points)
    result = value("product", batch, group, outputs, points)
    matrix = rewriter.constant(weights.reshape(1, group, outputs, inputs), w.name)
    nodes = [
        reshape(x, columns, rewriter, node.origin),
        Node("MatMul", (matrix, columns), (result,), origin=node.origin),
    ]
    if bias is not None and rest[0] is not None:
        shifted = value("shifted", batch, group, outputs, points)
        offsets = rewriter.constant(bias.reshape(1, group, outputs, 1), rest[0].name)
        nodes.append(Node("Add", (result, offsets), (shifted,), origin=node.origin))
        result = shifted
    return (*nodes, reshape(result, y, rewriter, node.origin))


def line_convolution_as_image(node: Node, rewriter: Rewriter) -> Replacement | None:
    """A convolution along one spatial axis, transposed or not → a 2-D convolution on images of
    height one, whose channels are stored in blocks."""
    kind = product_of(node)
    if kind not in (Product.CONVOLUTION, Product.TRANSPOSED_CONVOLUTION):
        return None
    x, w, *bias = node.inputs
    if x is None or w is None or x.type.rank != 3:
        return None
    y, weights = node.outputs[0], rewriter.data(w)
    if weights is None:
        return None
    before, after = node.attr("pads", (0, 0))
    # The mode stays if the length decides the pads.
    mode = dict(node.attrs).get("auto_pad", "NOTSET")
    padding = {"pads": (0, before, 0, after)} if mode == "NOTSET" else {"auto_pad": mode}
    kept_attrs = {name: value for name, value in node.attrs if name not in ("auto_pad", "pads")}
    if kind is Product.TRANSPOSED_CONVOLUTION:
        if "output_shape" in kept_attrs:
            return None
        kept_attrs["output_padding"] = (0, *node.attr("output_padding", (0,)))
    lined = {
        "dilations": (1, *node.attr("dilations", (1,))),
        "kernel_shape": (1, weights.shape[2]),
        "strides": (1, *node.attr("strides", (1,))),
    }
    attrs = attributes(**{**kept_attrs, **lined, **padding})

    def line(of: Value, hint: str) -> Value:
        batch, channels, length = of.type.shape
        shape = (batch, channels, 1, length)
        return Value(rewriter.fresh(f"{y.name}_{hint}"), TensorType(of.type.dtype, shape))

    image, result = line(x, "image"), line(y, "line")
    taps = rewriter.constant(np.expand_dims(weights, 2), w.name)
    return (
        reshape(x, image, rewriter, node.origin),
        Node(node.op, (image, taps, *bias), (result,), attrs, origin=node.origin),
        reshape(result, y, rewriter, node.origin),
    )


def sink_point_reshape(node: Node, rewriter: Rewriter) -> Replacement | None:
    """`op(Reshape(product), …)` → `Reshape(op(product, …))` for an elementwise operator `op`, so
    that `op` stays in the kernel of the product. Another rule of this module must have created the
    product (or 1-D convolution). The other operands of `op` must be scalars or have the shape of
    the result."""
    if len(node.outputs) != 1 or lookup(node.op).kind is not Kind.ELEMENTWISE:
        return None
    y = node.outputs[0]
    products = [_product(value, y, rewriter) for value in node.inputs]
    shape = next((value.type.shape for value in products if value is not None), None)
    if shape is None:
        return None
    nodes: list[Node] = []
    inputs: list[Value | None] = []
    for value, source in zip(node.inputs, products, strict=True):
        if source is not None and source.type.shape == shape:
            inputs.append(source)
            continue
        if value is None or value.type.size == 1:
            inputs.append(value)
            continue
        if value.type.shape != y.type.shape or rewriter.constant_of(value) is not None:
            return None
        name = rewriter.fresh(f"{value.name}_columns")
        columns = Value(name, TensorType(value.type.dtype, shape))
        inputs.append(columns)
        nodes.append(reshape(value, columns, rewriter, node.origin))
    result = Value(rewriter.fresh(f"{y.name}_columns"), TensorType(y.type.dtype, shape))
    moved = dataclasses.replace(node, inputs=tuple(inputs), outputs=(result,))
    return (*nodes, moved, reshape(result, y, rewriter, node.origin))


def _product(value: Value | None, y: Value, rewriter: Rewriter) -> Value | None:
    """Return the value of which `value` is a view, if that is a batched product, a convolution of a
    line, or an elementwise function of one of these; otherwise None. `value` must have the shape of
    `y`."""
    view = rewriter.producer(value)
    if value is None or not RESHAPE.matches(view) or value.type.shape != y.type.shape:
        return None
    source = view.inputs[0]
    node = rewriter.producer(source)
    while node is not None and lookup(node.op).kind is Kind.ELEMENTWISE:
        node = rewriter.producer(node.inputs[0])
    if node is None or source is None or source.type.rank != 4:
        return None
    wanted = ((Product.MATRIX, 4), (Product.CONVOLUTION, 3))
    return source if (product_of(node), value.type.rank) in wanted else None
