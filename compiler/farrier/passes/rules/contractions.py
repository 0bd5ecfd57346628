"""Rules that rewrite convolutions and matrix products to the forms that schedules handle best."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from farrier.ir.dim import number
from farrier.ir.graph import Constant, Derived, Node, Value
from farrier.ir.types import DType, Shape, TensorType
from farrier.ops import Product, product_of
from farrier.ops.broadcast import MUL
from farrier.ops.matmul import GEMM, MATMUL
from farrier.ops.pad import PAD
from farrier.ops.window import Window, window_of
from farrier.passes.rewriting import Rewriter, derived, is_value, join_origins
from farrier.passes.rules.rule import Replacement
from farrier.passes.rules.shapes import reshape


def gemm_as_matmul(node: Node, rewriter: Rewriter) -> Replacement | None:
    """`Gemm(a, B, c)` with constant B → `a @ (alpha * B') + beta * c`, B' transposed beforehand."""
    if not GEMM.matches(node) or node.attr("transA", 0) or node.inputs[1] is None:
        return None
    a, b, *rest = node.inputs
    addend = rest[0] if rest else None
    weights, offset = rewriter.constant_of(b), rewriter.data(addend)
    if b is None or weights is None or not b.type.dtype.is_float:
        return None
    alpha, beta = node.attr("alpha", 1.0), node.attr("beta", 1.0)
    if beta != 1 and addend is not None and offset is None:
        return None
    is_transposed = bool(node.attr("transB", 0))
    if alpha != 1 or is_transposed:
        b = rewriter.constant(_factor(weights, alpha, is_transposed), b.name)
    y = node.outputs[0]
    if addend is None:
        return (Node("MatMul", (a, b), (y,), origin=node.origin),)
    if offset is not None and beta != 1:
        addend = rewriter.constant(offset * offset.dtype.type(beta), addend.name)
    product = Value(rewriter.fresh(f"{y.name}_product"), y.type)
    return (
        Node("MatMul", (a, b), (product,), origin=node.origin),
        Node("Add", (product, addend), (y,), origin=node.origin),
    )


def _factor(weights: Constant, alpha: float, is_transposed: bool) -> npt.NDArray[Any] | Derived:
    """Return a constant matrix multiplied by `alpha`, and transposed if `is_transposed`."""
    kind = weights.value.type
    shape = kind.shape[::-1] if is_transposed else kind.shape

    def scaled(matrix: npt.NDArray[Any]) -> npt.NDArray[Any]:
        matrix = matrix.T if is_transposed else matrix
        return (matrix if alpha == 1 else matrix * matrix.dtype.type(alpha)).view()

    key = f"{alpha} times {'the transpose' if is_transposed else 'it'}"
    return derived(dataclasses.replace(kind, shape=shape), (weights,), scaled, key)


def scale_after_product(node: Node, rewriter: Rewriter) -> Replacement | None:
    """`MatMul(a * s, b * t)` → `MatMul(a, b) * (s * t)` for scalars s and t of f32, either of which
    may be absent. The scaling then is an epilogue of the product's kernel, where it costs next to
    nothing."""
    y = node.outputs[0]
    if not MATMUL.matches(node) or y.type.dtype is not DType.F32:
        return None
    scale = np.float32(1)
    inputs, origins = list(node.inputs), [node]
    for position, factor in enumerate(node.inputs):
        inner = rewriter.producer(factor)
        if factor is None or not MUL.matches(inner) or not rewriter.single_use(factor):
            continue
        number, x = rewriter.data(inner.inputs[1]), inner.inputs[0]
        if number is None or number.size != 1 or x is None or x.type != factor.type:
            continue
        scale *= number.reshape(-1)[0]
        inputs[position] = x
        origins.append(inner)
    if len(origins) == 1:
        return None
    product = Value(rewriter.fresh(f"{y.name}_product"), y.type)
    constant = rewriter.constant(np.array(scale, np.float32), f"{y.name}_scale")
    origin = join_origins(origins)
    return (
        dataclasses.replace(node, inputs=tuple(inputs), outputs=(product,)),
        Node("Mul", (product, constant), (y,), origin=origin),
    )


def pad_in_convolution(node: Node, rewriter: Rewriter) -> Replacement | None:
    """`Conv(Pad(x, p))` → `Conv(x)` with pads p, if the Pad adds a constant number of zeros along
    spatial axes."""
    x = node.inputs[0] if node.inputs else None
    inner = rewriter.producer(x)
    if x is None or not PAD.matches(inner) or product_of(node) is not Product.CONVOLUTION:
        return None
    if "auto_pad" in dict(node.attrs):
        return None
    widths, fill = rewriter.data(inner.inputs[1]), None
    has_fill = len(inner.inputs) > 2 and inner.inputs[2] is not None
    if has_fill:
        fill = rewriter.data(inner.inputs[2])
    axes_given = len(inner.inputs) > 3 and inner.inputs[3] is not None
    if widths is None or axes_given or inner.attr("mode", "constant") != "constant":
        return None
    rank = x.type.rank
    before, after = widths[:rank].tolist(), widths[rank:].tolist()
    zeros = not has_fill or is_value(fill, 0)
    if not all(isinstance(width, int) for width in (*before, *after)):
        return None
    if not zeros or min(before + after) < 0 or any(before[:2] + after[:2]):
        return None
    spatial = rank - 2
    pads = node.attr("pads", (0,) * (2 * spatial))
    total = tuple(p + q for p, q in zip(pads, before[2:] + after[2:], strict=True))
    attrs = tuple(sorted({**dict(node.attrs), "pads": total}.items()))
    origin = join_origins((inner, node))
    inputs = (inner.inputs[0], *node.inputs[1:])
    return (dataclasses.replace(node, inputs=inputs, attrs=attrs, origin=origin),)


def point_convolution_as_matmul(node: Node, rewriter: Rewriter) -> Replacement | None:
    """A convolution whose output is a single point and whose window covers the complete image, as
    in squeeze-and-excitation → a matrix product."""
    is_ungrouped = product_of(node) is Product.CONVOLUTION and node.attr("group", 1) == 1
    if not is_ungrouped or node.inputs[1] is None:
        return None
    x, w, *rest = node.inputs
    y = node.outputs[0]
    if x is None or w is None:
        return None
    if any(extent != 1 for extent in y.type.shape[2:]) or not _is_static(x.type.shape[2:]):
        return None
    image, weights = tuple(map(number, x.type.shape[2:])), rewriter.data(w)
    if weights is None:
        return None
    taps = _taps_of(image, window_of(dict(node.attrs), image, weights.shape[2:]))
    if taps is None:
        return None
    for axis, read in enumerate(taps, start=2):
        weights = weights.take(read, axis)
    matrix = np.ascontiguousarray(weights.reshape(len(weights), -1).T)
    rows_type = TensorType(x.type.dtype, (x.type.shape[0], len(matrix)))
    rows = Value(rewriter.fresh(f"{y.name}_rows"), rows_type)
    type = TensorType(y.type.dtype, y.type.shape[:2])
    product = Value(rewriter.fresh(f"{y.name}_product"), type)
    kept = tuple((name, value) for name, value in node.attrs if name == "accumulator")
    operands = (rows, rewriter.constant(matrix, w.name))
    nodes = [
        reshape(x, rows, rewriter, node.origin),
        Node("MatMul", operands, (product,), kept, origin=node.origin),
    ]
    if rest and rest[0] is not None:
        shifted = Value(rewriter.fresh(f"{y.name}_shifted"), type)
        nodes.append(Node("Add", (product, rest[0]), (shifted,), origin=node.origin))
        product = shifted
    return (*nodes, reshape(product, y, rewriter, node.origin))


def _is_static(shape: Shape) -> bool:
    return all(isinstance(extent, int) for extent in shape)


def _taps_of(image: tuple[int, ...], window: Window) -> list[npt.NDArray[Any]] | None:
    """Return, for each axis, the tap of the window that reads each position of the image, for a
    window with only one position.

    Return None if some position is not read by any tap: a matrix product would multiply it by 0, so
    NaN and infinity at that position would reach the result.
    """
    taps = []
    for axis, extent in enumerate(image):
        from_start = np.arange(extent) + number(window.before[axis])
        tap, between = np.divmod(from_start, window.dilations[axis])
        if between.any() or (tap >= window.kernel[axis]).any():
            return None
        taps.append(tap)
    return taps
