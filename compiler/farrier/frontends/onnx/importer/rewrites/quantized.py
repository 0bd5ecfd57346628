"""Rewrite quantized operators to integer products and sums, and to operators on floats between
conversions.

A product of quantized matrices is a product of integers, accumulated in i32, minus the contribution
of the zero points:

    Σ (a − a₀)(b − b₀) = Σ ab − b₀ Σ a − a₀ Σ b + k a₀ b₀

The sums over b are constant if the weights are. The formulas are those of ONNX; the operators of
com.microsoft are in `microsoft/qlinear.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from farrier.frontends.builder.node import RawNode
from farrier.frontends.builder.symbolic import ints
from farrier.frontends.onnx.importer.limits import MICROSOFT
from farrier.frontends.onnx.importer.scope import ImportScope, Upgrade
from farrier.frontends.onnx.importer.tensors import dtype_of
from farrier.ir.dim import ceildiv, number, product
from farrier.ir.types import DType
from farrier.ops import Mismatch
from farrier.ops.operator import normal_axis
from farrier.ops.window import window_of

_FLOATS = (DType.F32, DType.F16, DType.BF16)
_QUANTIZED = tuple(
    dtype
    for dtype in DType
    if (dtype.is_integer and dtype.bits <= 16) or (dtype.is_float and dtype.bits <= 8)
)


def quantize(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite QuantizeLinear so that scale and zero point broadcast against x."""
    attrs, zero = node.attrs, node.input(2)
    asked = _named(node, "output_dtype", _QUANTIZED)
    to = scope.dtype(zero) if zero else asked or DType.U8
    if asked not in (None, to):
        raise Mismatch(f"its output_dtype is {asked}, and its zero point {to}")
    scale = scope.dtype(node.inputs[1])
    precision = _named(node, "precision", _FLOATS)
    if precision is None:
        precision = scale if scale in (DType.F16, DType.BF16) else DType.F32
    form = {"to": str(to), "precision": str(precision), "saturate": attrs.get("saturate", 1)}
    return _aligned(node, scope, form)


def dequantize(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite DequantizeLinear so that scale and zero point broadcast against x."""
    to = _named(node, "output_dtype", _FLOATS) or scope.dtype(node.inputs[1])
    return _aligned(node, scope, {"to": str(to)})


def _named(node: RawNode, attribute: str, allowed: tuple[DType, ...]) -> DType | None:
    """Return the dtype that an attribute names, or None without the attribute. Raises Mismatch
    unless it is in `allowed`."""
    if not node.attrs.get(attribute):
        return None
    dtype = dtype_of(node.attrs[attribute], f"its {attribute}")
    if dtype not in allowed:
        raise Mismatch(f"its {attribute} is {dtype}, and must be one of {', '.join(allowed)}")
    return dtype


def _aligned(node: RawNode, scope: ImportScope, attrs: dict[str, object]) -> list[RawNode]:
    """Return nodes that compute the node, with scale and zero point reshaped so that they broadcast
    against x. There may be one scale for the tensor, for each channel, or for each block of
    elements along an axis."""
    x, scale, *rest = node.inputs
    zero = rest[0] if rest else ""
    op = node.op.removeprefix(f"{MICROSOFT}:")
    shape, granularity = scope.shape(x), scope.shape(scale)
    block = int(node.attrs.get("block_size", 0))
    parameters = [scale, zero] if zero and not is_zero(zero, scope) else [scale]
    if (
        zero
        and scope.shape(zero) != granularity
        and product((*granularity, *scope.shape(zero))) != 1
    ):
        raise Mismatch(f"scale {granularity} and zero point {scope.shape(zero)} differ")
    if product(granularity) == 1:
        parameters = [scope.add("Reshape", name, []) for name in parameters]
        return [RawNode(op, [x, *parameters], node.outputs, attrs, node.origin)]
    axis = int(node.attrs.get("axis", 1))
    axis = 0 if len(shape) == 1 else normal_axis(axis, len(shape))
    if len(granularity) == 1 and not block:
        if granularity[0] != shape[axis]:
            raise Mismatch(f"{granularity[0]} scales for axis {axis} of {shape}")
        along = ints([granularity[0] if a == axis else 1 for a in range(len(shape))])
        parameters = [scope.add("Reshape", name, scope.constant(along)) for name in parameters]
        return [RawNode(op, [x, *parameters], node.outputs, attrs, node.origin)]
    expected = tuple(ceildiv(n, max(block, 1)) if a == axis else n for a, n in enumerate(shape))
    if block <= 0 or granularity != expected:
        raise Mismatch(f"scales {granularity} for blocks of {block} along axis {axis} of {shape}")
    missing = -shape[axis] % block
    data = scope.data(x) if missing else None
    if data is not None and op == "DequantizeLinear":  # Fill the last block, then cut it.
        fill = [(0, number(missing) if a == axis else 0) for a in range(len(shape))]
        held = np.pad(data.view(f"u{data.itemsize}"), fill).view(data.dtype)
        operands = [scope.constant(held), scale, *rest]
        full = RawNode(node.op, operands, [scope.fresh()], node.attrs, node.origin)
        (last,) = _aligned(full, scope, attrs)
        scope.emit(last)
        cut = [scope.constant(ints([bound])) for bound in (0, shape[axis], axis)]
        return [RawNode("Slice", [last.outputs[0], *cut], node.outputs, {}, node.origin)]
    if missing:  # Every element along the axis gets a scale of its own.
        blocks = scope.constant(np.arange(number(shape[axis])) // block)
        parameters = [scope.add("Gather", name, blocks, axis=axis) for name in parameters]
        return [RawNode(op, [x, *parameters], node.outputs, attrs, node.origin)]
    inner = scope.constant(ints([axis + 1]))
    parameters = [scope.add("Unsqueeze", name, inner) for name in parameters]
    split = ints([*shape[:axis], granularity[axis], block, *shape[axis + 1 :]])
    blocked = scope.add(op, scope.add("Reshape", x, scope.constant(split)), *parameters, **attrs)
    whole = scope.constant(ints(shape))
    return [RawNode("Reshape", [blocked, whole], node.outputs, {}, node.origin)]


def is_zero(name: str, scope: ImportScope) -> bool:
    """Check whether a zero point is omitted, or a constant zero."""
    data = scope.data(name) if name else np.zeros(1)
    return data is not None and not data.astype(np.float32).any()


def number_of(value: float, scope: ImportScope) -> str:
    return scope.constant(np.array(value, np.float32))


def as_integer(name: str, scope: ImportScope) -> str:
    return scope.add("Cast", name, to=str(DType.I32))


def as_float(name: str, scope: ImportScope) -> str:
    return scope.add("Cast", name, to=str(DType.F32))


def shaped(name: str, shape: tuple[int, ...], scope: ImportScope) -> str:
    """Reshape a scalar or vector to a shape that broadcasts; a tensor of higher rank is returned
    unchanged."""
    shape_of_name = scope.shape(name)
    if len(shape_of_name) > 1:
        return name
    target = () if product(shape_of_name) == 1 else shape
    return scope.add("Reshape", name, target)


def sums(name: str, axes: Iterable[int], keepdims: int, scope: ImportScope) -> str:
    """Return the sums of integers along `axes`, in i32. For constant integers, this is a
    constant."""
    along, data = ints(axes), scope.data(name)
    if data is None:
        wide = as_integer(name, scope)
        return scope.add("ReduceSum", wide, scope.constant(along), keepdims=keepdims)
    total = data.sum(axis=tuple(along.tolist()), dtype=np.int32, keepdims=bool(keepdims))
    return scope.constant(total)


def integer_product(a: str, b: str, a_zero: str, b_zero: str, scope: ImportScope) -> str:
    """Return the product of two quantized matrices in i32."""
    a_shape, b_shape = scope.shape(a), scope.shape(b)
    if not a_shape or not b_shape:
        raise Mismatch(f"factors {a_shape} and {b_shape} must not be scalars")
    matrix_a, matrix_b = a, b
    if len(a_shape) == 1:
        matrix_a = scope.add("Unsqueeze", a, [0])
    if len(b_shape) == 1:
        matrix_b = scope.add("Unsqueeze", b, [1])
    total = scope.add("MatMul", matrix_a, matrix_b, accumulator=str(DType.I32))
    inner = scope.add("Cast", a_shape[-1], to="i32")
    moved_a = "" if is_zero(a_zero, scope) else shaped(as_integer(a_zero, scope), (-1, 1), scope)
    moved_b = "" if is_zero(b_zero, scope) else shaped(as_integer(b_zero, scope), (1, -1), scope)
    if moved_b:
        rows = sums(matrix_a, [-1], 1, scope)
        total = scope.add("Sub", total, scope.add("Mul", rows, moved_b))
    if moved_a:
        columns = sums(matrix_b, [-2], 1, scope)
        if moved_b:
            columns = scope.add("Sub", columns, scope.add("Mul", moved_b, inner))
        total = scope.add("Sub", total, scope.add("Mul", columns, moved_a))
    squeezed = [axis for axis, rank in ((-2, len(a_shape)), (-1, len(b_shape))) if rank == 1]
    return scope.add("Squeeze", total, squeezed) if squeezed else total


def matmul_integer(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite MatMulInteger: the product in i32."""
    total = integer_product(node.inputs[0], node.inputs[1], node.input(2), node.input(3), scope)
    return [RawNode("Identity", [total], node.outputs, {}, node.origin)]


def requantized(
    node: RawNode, total: str, factor: str, scale: str, zero: str, like: DType, scope: ImportScope
) -> list[RawNode]:
    """Return the nodes that compute round(total · (factor / scale)) + zero, where factor / scale is
    first rounded to f32. The result has the dtype of `zero`, or `like` if `zero` is omitted."""
    to = scope.dtype(zero) if zero else like
    ratio = scope.add("Div", factor, scale)
    scaled = scope.add("Mul", as_float(total, scope), ratio)
    unit = number_of(1.0, scope)
    zeros = [] if is_zero(zero, scope) else [zero]
    attrs = {"to": str(to), "precision": str(DType.F32), "saturate": 1}
    return [RawNode("QuantizeLinear", [scaled, unit, *zeros], node.outputs, attrs, node.origin)]


def qlinear_matmul(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite QLinearMatMul: the product of quantized matrices, quantized again."""
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = node.inputs
    total = integer_product(a, b, a_zero, b_zero, scope)
    scales = [
        shaped(as_float(a_scale, scope), (-1, 1), scope),
        shaped(as_float(b_scale, scope), (1, -1), scope),
    ]
    factor = scope.add("Mul", *scales)
    scale = shaped(as_float(y_scale, scope), (-1, 1), scope)
    zero = shaped(y_zero, (-1, 1), scope) if y_zero else ""
    return requantized(node, total, factor, scale, zero, scope.dtype(a), scope)


def centred(name: str, zero: str, shape: tuple[int, ...], scope: ImportScope) -> str:
    """Return a quantized tensor minus its zero point, in i16."""
    if is_zero(zero, scope):
        return name
    wide, moved = (scope.add("Cast", n, to=str(DType.I16)) for n in (name, zero))
    return scope.add("Sub", wide, shaped(moved, shape, scope))


def _convolution(
    node: RawNode, x: str, w: str, x_zero: str, w_zero: str, scope: ImportScope, bias: str = ""
) -> str:
    """Return the convolution of quantized tensors in i32, plus a bias.

    For bytes with weights that fit in i8, it is a convolution of bytes, for which machines have
    dot-product instructions: the image is padded with its zero point, whose contribution to each
    sum is subtracted from the bias. For other tensors, zero points are subtracted first.
    """
    rank = len(scope.shape(w))
    attrs = {**node.attrs, "accumulator": str(DType.I32)}
    weights = _as_signed_bytes(w, w_zero, scope)
    if scope.dtype(x) not in (DType.I8, DType.U8) or not weights:
        channels = (-1, *(1,) * (rank - 1))
        x, weights = centred(x, x_zero, (), scope), centred(w, w_zero, channels, scope)
    elif not is_zero(x_zero, scope):
        zero = shaped(x_zero, (), scope)
        window = window_of(attrs, scope.shape(x)[2:], scope.shape(w)[2:])
        attrs.pop("auto_pad", None)
        attrs["pads"] = (0,) * 2 * window.rank
        pads = (0, 0, *window.before, 0, 0, *window.after)
        if any(pad != 0 for pad in pads):
            x = scope.add("Pad", x, pads, zero)
        totals = sums(weights, range(1, rank), 0, scope)
        added = scope.add("Mul", totals, as_integer(zero, scope))
        bias = scope.add("Sub", bias, added) if bias else scope.add("Neg", added)
    return scope.add("Conv", x, weights, *([bias] if bias else []), **attrs)


def _as_signed_bytes(w: str, zero: str, scope: ImportScope) -> str:
    """Return the weights minus their zero points as a constant or tensor of i8. Return "" if the
    differences do not fit in i8, or if the weights are not constant and need a subtraction."""
    if scope.dtype(w) is DType.I8 and is_zero(zero, scope):
        return w
    data, point = scope.data(w), scope.data(zero) if zero else np.zeros((), np.int16)
    if data is None or point is None:
        return ""
    shape = (-1, *(1,) * (data.ndim - 1)) if point.size > 1 else ()
    centred = data.astype(np.int16) - point.astype(np.int16).reshape(shape)
    low, high = DType.I8.limits
    if centred.min() < low or centred.max() > high:
        return ""
    return scope.constant(centred.astype(np.int8))


def conv_integer(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite ConvInteger: the convolution in i32."""
    x, w = node.inputs[:2]
    total = _convolution(node, x, w, node.input(2), node.input(3), scope)
    return [RawNode("Identity", [total], node.outputs, {}, node.origin)]


def qlinear_conv(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite QLinearConv: the convolution of quantized tensors, its bias in i32, quantized
    again."""
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = node.inputs[:8]
    last = node.attrs.pop("channels_last", 0)
    rank, like = len(scope.shape(x)), scope.dtype(x)
    if last:
        x = scope.add("Transpose", x, perm=(0, rank - 1, *range(1, rank - 1)))
    total = _convolution(node, x, w, x_zero, w_zero, scope, node.input(8))
    channels = (-1, *(1,) * (rank - 2))
    scales = [shaped(as_float(name, scope), channels, scope) for name in (x_scale, w_scale)]
    factor = scope.add("Mul", *scales)
    scale = shaped(as_float(y_scale, scope), channels, scope)
    zero = shaped(y_zero, channels, scope) if y_zero else ""
    if not last:
        return requantized(node, total, factor, scale, zero, like, scope)
    result = scope.fresh()
    inner = RawNode(node.op, node.inputs, [result], node.attrs, node.origin)
    back = {"perm": (0, *range(2, rank), 1)}
    return [
        *requantized(inner, total, factor, scale, zero, like, scope),
        RawNode("Transpose", [result], node.outputs, back, node.origin),
    ]


def real(x: str, scale: str, zero: str, scope: ImportScope) -> str:
    """Return a tensor that is quantized with a single scale, as floats."""
    scale = shaped(scale, (), scope)
    zeros = [] if is_zero(zero, scope) else [shaped(zero, (), scope)]
    return scope.add("DequantizeLinear", x, scale, *zeros, to=str(scope.dtype(scale)))


def dynamic_quantize(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite DynamicQuantizeLinear: map the range of x, extended to include zero, to 0 to 255."""
    x = node.inputs[0]
    quantized, scale, zero = dynamically_quantized(x, scope)
    names = (*node.outputs, "", "")
    return [
        RawNode("Identity", [value], [name], {}, node.origin)
        for value, name in zip((quantized, scale, zero), names, strict=False)
        if name
    ]


def dynamically_quantized(x: str, scope: ImportScope) -> tuple[str, str, str]:
    """Return x in u8 with its scale (f32) and zero point (u8), both scalars."""
    none, zero = ints([]), number_of(0.0, scope)
    extremes = []
    for reduction, pick in (("ReduceMin", "Min"), ("ReduceMax", "Max")):
        extreme = scope.add(reduction, x, keepdims=0)
        extremes.append(scope.add(pick, scope.add("Reshape", extreme, scope.constant(none)), zero))
    low, high = extremes
    spread = scope.add("Sub", high, low)
    scale = scope.add("Div", spread, number_of(255.0, scope))
    # If all elements are zero, the scale would be 0.
    divisor = scope.add("Where", scope.add("Equal", scale, zero), number_of(1.0, scope), scale)
    attrs = {"to": str(DType.U8), "precision": str(DType.F32), "saturate": 1}
    point = scope.add("QuantizeLinear", scope.add("Neg", low), divisor, **attrs)
    return scope.add("QuantizeLinear", x, divisor, point, **attrs), divisor, point


RULES: dict[str, Upgrade] = {
    "QuantizeLinear": quantize,
    "DequantizeLinear": dequantize,
    "DynamicQuantizeLinear": dynamic_quantize,
    "MatMulInteger": matmul_integer,
    "QLinearMatMul": qlinear_matmul,
    "ConvInteger": conv_integer,
    "QLinearConv": qlinear_conv,
}
