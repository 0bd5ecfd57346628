"""Quantized operators → integer products and sums, and conversions around floating-point ones.

A product of quantized matrices is one of integers, accumulated in i32, less what the zero points
add:

    Σ (a − a₀)(b − b₀) = Σ ab − b₀ Σ a − a₀ Σ b + k a₀ b₀

where the sums over b are constant if the weights are. Formulas are those of ONNX, and for
`com.microsoft` those of ONNX Runtime's ContribOperators.md.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from farrier.importer.limits import MICROSOFT
from farrier.importer.raw import RawNode
from farrier.importer.rewrites import microsoft, recurrence
from farrier.importer.scope import ImportScope, Regions, Upgrade, ints
from farrier.importer.tensors import dtype_of
from farrier.ir.dim import ceildiv, number, product
from farrier.ir.types import DType, Shape
from farrier.ops import Mismatch, NotSupported
from farrier.ops.operator import normal_axis
from farrier.ops.window import window_of

_FLOATS = (DType.F32, DType.F16, DType.BF16)
_QUANTIZED = tuple(
    dtype
    for dtype in DType
    if (dtype.is_integer and dtype.bits <= 16) or (dtype.is_float and dtype.bits <= 8)
)


def quantize(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """QuantizeLinear with scale and zero point that broadcast against x."""
    attrs, zero = node.attrs, node.input(2)
    asked = _named(node, "output_dtype", _QUANTIZED)
    to = scope.dtype(zero) if zero else asked or DType.U8
    if asked not in (None, to):
        raise Mismatch(f"its output_dtype is {asked}, and its zero point {to}")
    scale = scope.dtype(node.inputs[1])
    precision = _named(node, "precision", _FLOATS)
    if precision is None:
        precision = scale if scale in (DType.F16, DType.BF16) else DType.F32
    made = {"to": str(to), "precision": str(precision), "saturate": attrs.get("saturate", 1)}
    return _aligned(node, scope, made)


def dequantize(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """DequantizeLinear with scale and zero point that broadcast against x."""
    to = _named(node, "output_dtype", _FLOATS) or scope.dtype(node.inputs[1])
    return _aligned(node, scope, {"to": str(to)})


def _named(node: RawNode, attribute: str, allowed: tuple[DType, ...]) -> DType | None:
    """The element type that an attribute names; None where there is none."""
    if not node.attrs.get(attribute):
        return None
    found = dtype_of(node.attrs[attribute], f"its {attribute}")
    if found not in allowed:
        raise Mismatch(f"its {attribute} is {found}, and must be one of {', '.join(allowed)}")
    return found


def _aligned(node: RawNode, scope: ImportScope, attrs: dict[str, object]) -> list[RawNode]:
    """The node with its granularity in the shapes: one scale, one a channel, or one a block."""
    x, scale, *rest = node.inputs
    zero = rest[0] if rest else ""
    op = node.op.removeprefix(f"{MICROSOFT}:")
    shape, given = scope.shape(x), scope.shape(scale)
    block = int(node.attrs.get("block_size", 0))
    parameters = [scale, zero] if zero and not _is_zero(zero, scope) else [scale]
    if zero and scope.shape(zero) != given and product((*given, *scope.shape(zero))) != 1:
        raise Mismatch(f"scale {given} and zero point {scope.shape(zero)} differ")
    if product(given) == 1:
        parameters = [scope.add("Reshape", name, scope.constant(ints([]))) for name in parameters]
        return [RawNode(op, [x, *parameters], node.outputs, attrs, node.origin)]
    axis = int(node.attrs.get("axis", 1))
    axis = 0 if len(shape) == 1 else normal_axis(axis, len(shape))
    if len(given) == 1 and not block:
        if given[0] != shape[axis]:
            raise Mismatch(f"{given[0]} scales for axis {axis} of {shape}")
        along = ints([given[0] if a == axis else 1 for a in range(len(shape))])
        parameters = [scope.add("Reshape", name, scope.constant(along)) for name in parameters]
        return [RawNode(op, [x, *parameters], node.outputs, attrs, node.origin)]
    expected = tuple(ceildiv(n, max(block, 1)) if a == axis else n for a, n in enumerate(shape))
    if block <= 0 or given != expected:
        raise Mismatch(f"scales {given} for blocks of {block} along axis {axis} of {shape}")
    if shape[axis] % block:  # every element along the axis gets a scale of its own
        blocks = scope.constant(np.arange(number(shape[axis])) // block)
        parameters = [scope.add("Gather", name, blocks, axis=axis) for name in parameters]
        return [RawNode(op, [x, *parameters], node.outputs, attrs, node.origin)]
    inner = scope.constant(ints([axis + 1]))
    parameters = [scope.add("Unsqueeze", name, inner) for name in parameters]
    split = ints([*shape[:axis], given[axis], block, *shape[axis + 1 :]])
    blocked = scope.add(op, scope.add("Reshape", x, scope.constant(split)), *parameters, **attrs)
    whole = scope.constant(ints(shape))
    return [RawNode("Reshape", [blocked, whole], node.outputs, {}, node.origin)]


def _is_zero(name: str, scope: ImportScope) -> bool:
    """Whether a zero point is left out, or known to be zero."""
    data = scope.data(name) if name else np.zeros(1)
    return data is not None and not data.astype(np.float32).any()


def _number(value: float, scope: ImportScope) -> str:
    return scope.constant(np.array(value, np.float32))


def _integer(name: str, scope: ImportScope) -> str:
    return scope.add("Cast", name, to=str(DType.I32))


def _float(name: str, scope: ImportScope) -> str:
    return scope.add("Cast", name, to=str(DType.F32))


def _shaped(name: str, shape: tuple[int, ...], scope: ImportScope) -> str:
    """A scalar or vector under a shape that broadcasts; what has a rank above one stays."""
    given = scope.shape(name)
    if len(given) > 1:
        return name
    target = () if product(given) == 1 else shape
    return scope.add("Reshape", name, scope.constant(ints(target)))


def _sums(name: str, axes: Iterable[int], keepdims: int, scope: ImportScope) -> str:
    """Sums of integers in i32, known where the integers are."""
    along, data = ints(axes), scope.data(name)
    if data is None:
        wide = _integer(name, scope)
        return scope.add("ReduceSum", wide, scope.constant(along), keepdims=keepdims)
    sums = data.sum(axis=tuple(along.tolist()), dtype=np.int32, keepdims=bool(keepdims))
    return scope.constant(sums)


def _product(a: str, b: str, a_zero: str, b_zero: str, scope: ImportScope) -> str:
    """The product of two quantized matrices in i32."""
    a_shape, b_shape = scope.shape(a), scope.shape(b)
    if not a_shape or not b_shape:
        raise Mismatch(f"factors {a_shape} and {b_shape} must not be scalars")
    matrix_a, matrix_b = a, b
    if len(a_shape) == 1:
        matrix_a = scope.add("Unsqueeze", a, scope.constant(ints([0])))
    if len(b_shape) == 1:
        matrix_b = scope.add("Unsqueeze", b, scope.constant(ints([1])))
    total = scope.add("MatMul", matrix_a, matrix_b, accumulator=str(DType.I32))
    inner = scope.add("Cast", scope.constant(ints(a_shape[-1])), to="i32")
    moved_a = "" if _is_zero(a_zero, scope) else _shaped(_integer(a_zero, scope), (-1, 1), scope)
    moved_b = "" if _is_zero(b_zero, scope) else _shaped(_integer(b_zero, scope), (1, -1), scope)
    if moved_b:
        rows = _sums(matrix_a, [-1], 1, scope)
        total = scope.add("Sub", total, scope.add("Mul", rows, moved_b))
    if moved_a:
        columns = _sums(matrix_b, [-2], 1, scope)
        if moved_b:
            columns = scope.add("Sub", columns, scope.add("Mul", moved_b, inner))
        total = scope.add("Sub", total, scope.add("Mul", columns, moved_a))
    squeezed = [axis for axis, rank in ((-2, len(a_shape)), (-1, len(b_shape))) if rank == 1]
    return scope.add("Squeeze", total, scope.constant(ints(squeezed))) if squeezed else total


def matmul_integer(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """The product in i32."""
    total = _product(node.inputs[0], node.inputs[1], node.input(2), node.input(3), scope)
    return [RawNode("Identity", [total], node.outputs, {}, node.origin)]


def _requantized(
    node: RawNode, total: str, factor: str, scale: str, zero: str, like: DType, scope: ImportScope
) -> list[RawNode]:
    """round(total · factor / scale) + zero, with one rounded factor, in the dtype of `zero`."""
    to = scope.dtype(zero) if zero else like
    ratio = scope.add("Div", factor, scale)
    scaled = scope.add("Mul", _float(total, scope), ratio)
    one = _number(1.0, scope)
    zeros = [] if _is_zero(zero, scope) else [zero]
    attrs = {"to": str(to), "precision": str(DType.F32), "saturate": 1}
    return [RawNode("QuantizeLinear", [scaled, one, *zeros], node.outputs, attrs, node.origin)]


def qlinear_matmul(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """The product of quantized matrices, quantized again."""
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = node.inputs
    total = _product(a, b, a_zero, b_zero, scope)
    scales = [
        _shaped(_float(a_scale, scope), (-1, 1), scope),
        _shaped(_float(b_scale, scope), (1, -1), scope),
    ]
    factor = scope.add("Mul", *scales)
    scale = _shaped(_float(y_scale, scope), (-1, 1), scope)
    zero = _shaped(y_zero, (-1, 1), scope) if y_zero else ""
    return _requantized(node, total, factor, scale, zero, scope.dtype(a), scope)


def _centred(name: str, zero: str, shape: tuple[int, ...], scope: ImportScope) -> str:
    """A quantized tensor less its zero point, in i16."""
    if _is_zero(zero, scope):
        return name
    wide, moved = (scope.add("Cast", n, to=str(DType.I16)) for n in (name, zero))
    return scope.add("Sub", wide, _shaped(moved, shape, scope))


def _convolution(
    node: RawNode, x: str, w: str, x_zero: str, w_zero: str, scope: ImportScope, bias: str = ""
) -> str:
    """The convolution in i32, plus a bias.

    Of bytes and weights that fit in i8 it is one of bytes, which machines have dot products for:
    the zero point of x pads it, and what it adds to each sum is taken off the bias. Other tensors
    lose their zero points first.
    """
    rank = len(scope.shape(w))
    attrs = {**node.attrs, "accumulator": str(DType.I32)}
    weights = _as_signed_bytes(w, w_zero, scope)
    if scope.dtype(x) not in (DType.I8, DType.U8) or not weights:
        channels = (-1, *(1,) * (rank - 1))
        x, weights = _centred(x, x_zero, (), scope), _centred(w, w_zero, channels, scope)
    elif not _is_zero(x_zero, scope):
        zero = _shaped(x_zero, (), scope)
        window = window_of(attrs, scope.shape(x)[2:], scope.shape(w)[2:])
        attrs.pop("auto_pad", None)
        attrs["pads"] = (0,) * 2 * window.rank
        pads = (0, 0, *window.before, 0, 0, *window.after)
        if any(pad != 0 for pad in pads):
            x = scope.add("Pad", x, scope.constant(ints(pads)), zero)
        sums = _sums(weights, range(1, rank), 0, scope)
        added = scope.add("Mul", sums, _integer(zero, scope))
        bias = scope.add("Sub", bias, added) if bias else scope.add("Neg", added)
    return scope.add("Conv", x, weights, *([bias] if bias else []), **attrs)


def _as_signed_bytes(w: str, zero: str, scope: ImportScope) -> str:
    """Weights less their zero points in i8, "" where they are not known to fit."""
    if scope.dtype(w) is DType.I8 and _is_zero(zero, scope):
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
    """The convolution in i32."""
    x, w = node.inputs[:2]
    total = _convolution(node, x, w, node.input(2), node.input(3), scope)
    return [RawNode("Identity", [total], node.outputs, {}, node.origin)]


def qlinear_conv(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """The convolution of quantized tensors, its bias in i32, quantized again."""
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = node.inputs[:8]
    last = node.attrs.pop("channels_last", 0)
    rank, like = len(scope.shape(x)), scope.dtype(x)
    if last:
        x = scope.add("Transpose", x, perm=(0, rank - 1, *range(1, rank - 1)))
    total = _convolution(node, x, w, x_zero, w_zero, scope, node.input(8))
    channels = (-1, *(1,) * (rank - 2))
    scales = [_shaped(_float(name, scope), channels, scope) for name in (x_scale, w_scale)]
    factor = scope.add("Mul", *scales)
    scale = _shaped(_float(y_scale, scope), channels, scope)
    zero = _shaped(y_zero, channels, scope) if y_zero else ""
    if not last:
        return _requantized(node, total, factor, scale, zero, like, scope)
    result = scope.fresh()
    inner = RawNode(node.op, node.inputs, [result], node.attrs, node.origin)
    back = {"perm": (0, *range(2, rank), 1)}
    return [
        *_requantized(inner, total, factor, scale, zero, like, scope),
        RawNode("Transpose", [result], node.outputs, back, node.origin),
    ]


def _real(x: str, scale: str, zero: str, scope: ImportScope) -> str:
    """A tensor quantized with one scale, as floats."""
    scale = _shaped(scale, (), scope)
    zeros = [] if _is_zero(zero, scope) else [_shaped(zero, (), scope)]
    return scope.add("DequantizeLinear", x, scale, *zeros, to=str(scope.dtype(scale)))


def _quantized(
    node: RawNode, value: str, scale: str, zero: str, like: DType, scope: ImportScope
) -> RawNode:
    """The node that quantizes a value with one scale, in the dtype of the operands."""
    to = scope.dtype(zero) if zero else like
    if to is not like:
        raise Mismatch(f"an operand is {like}, and the zero point of the result {to}")
    zeros = [] if _is_zero(zero, scope) else [_shaped(zero, (), scope)]
    attrs = {"to": str(to), "precision": str(DType.F32), "saturate": 1}
    inputs = [value, _shaped(scale, (), scope), *zeros]
    return RawNode("QuantizeLinear", inputs, node.outputs, attrs, node.origin)


def _qlinear_binary(op: str) -> Upgrade:
    """Two operands dequantized, the operator, the result quantized."""

    def rule(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
        a, a_scale, a_zero, b, b_scale, b_zero, y_scale = node.inputs[:7]
        operands = (_real(a, a_scale, a_zero, scope), _real(b, b_scale, b_zero, scope))
        value = scope.add(op, *operands)
        return [_quantized(node, value, y_scale, node.input(7), scope.dtype(a), scope)]

    return rule


def _qlinear_unary(op: str) -> Upgrade:
    """One operand dequantized, the operator, the result quantized."""

    def rule(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
        x, x_scale, x_zero, y_scale = node.inputs[:4]
        attrs, shape = dict(node.attrs), scope.shape(x)
        last = attrs.pop("channels_last", 0)
        if op == "Softmax":
            _since_thirteen(attrs, shape)
        value = _real(x, x_scale, x_zero, scope)
        if last:
            value = scope.add(
                "Transpose", value, perm=(0, len(shape) - 1, *range(1, len(shape) - 1))
            )
        value = scope.add(op, value, **attrs)
        if last:
            value = scope.add("Transpose", value, perm=(0, *range(2, len(shape)), 1))
        return [_quantized(node, value, y_scale, node.input(4), scope.dtype(x), scope)]

    return rule


def _since_thirteen(attrs: dict[str, object], shape: Shape) -> None:
    """Refuses what Softmax meant before opset 13, where that differs: whole rows of a matrix."""
    version = attrs.pop("opset", 13)
    axis = normal_axis(int(str(attrs.get("axis", -1))), len(shape))
    if int(str(version)) < 13 and any(n != 1 for n in shape[axis + 1 :]):
        raise NotSupported("softmax of opset 12 over several axes")


def qlinear_where(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Both branches dequantized, the chosen one quantized."""
    condition, x, x_scale, x_zero, y, y_scale, y_zero, scale, zero = node.inputs
    branches = (_real(x, x_scale, x_zero, scope), _real(y, y_scale, y_zero, scope))
    value = scope.add("Where", condition, *branches)
    return [_quantized(node, value, scale, zero, scope.dtype(x), scope)]


def qlinear_concat(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Each part quantized anew, and joined."""
    scale, zero, *rest = node.inputs
    parts = []
    for x, x_scale, x_zero in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        value = _real(x, x_scale, x_zero, scope)
        made = _quantized(node, value, scale, zero, scope.dtype(x), scope)
        parts.append(scope.add(made.op, *made.inputs, **made.attrs))
    return [RawNode("Concat", parts, node.outputs, node.attrs, node.origin)]


def qgemm(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """α (A − a₀)(B − b₀) + C, with C in i32 of scale α a b; quantized again, or as floats."""
    a, a_scale, a_zero, b, b_scale, b_zero = node.inputs[:6]
    if node.attrs.get("transA", 0):
        a = scope.add("Transpose", a, perm=(1, 0))
    if node.attrs.get("transB", 0):
        b = scope.add("Transpose", b, perm=(1, 0))
    total = _product(a, b, a_zero, b_zero, scope)
    if node.input(6):
        total = scope.add("Add", total, node.input(6))
    alpha = _number(node.attrs.get("alpha", 1.0), scope)
    factor = scope.add("Mul", _shaped(a_scale, (), scope), alpha)
    factor = scope.add("Mul", factor, _shaped(b_scale, (1, -1), scope))
    if node.input(7):
        scale, zero = _shaped(node.input(7), (), scope), node.input(8)
        zero = _shaped(zero, (), scope) if zero else ""
        return _requantized(node, total, factor, scale, zero, scope.dtype(a), scope)
    return [RawNode("Mul", [_float(total, scope), factor], node.outputs, {}, node.origin)]


def _channels_last(op: str, images: tuple[int, ...]) -> Upgrade:
    """The operator `op` on images whose channels come last: those inputs, and its output."""

    def rule(node: RawNode, opset: int, scope: Regions) -> list[RawNode]:
        rank, inputs = len(scope.shape(node.inputs[0])), list(node.inputs)
        for position in images:
            if node.input(position):
                forth = (0, rank - 1, *range(1, rank - 1))
                inputs[position] = scope.add("Transpose", inputs[position], perm=forth)
        inner = RawNode(op, inputs, [scope.fresh()], node.attrs, node.origin)
        rewrite = microsoft.RULES.get(op)
        back = {"perm": (0, *range(2, rank), 1)}
        return [
            *(rewrite(inner, opset, scope) if rewrite else [inner]),
            RawNode("Transpose", inner.outputs, node.outputs, back, node.origin),
        ]

    return rule


def qlinear_reduce_mean(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """The mean over axes of a dequantized tensor, quantized."""
    x, x_scale, x_zero, y_scale = node.inputs[:4]
    axes = scope.constant(ints(node.attrs.get("axes", ())))
    value = _real(x, x_scale, x_zero, scope)
    mean = scope.add("ReduceMean", value, axes, keepdims=node.attrs.get("keepdims", 1))
    return [_quantized(node, mean, y_scale, node.input(4), scope.dtype(x), scope)]


def dynamic_quantize_lstm(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """An LSTM of quantized weights, whose axes are the other way round, in floats: what ONNX
    Runtime quantizes on the way stays exact."""
    inputs = [*node.inputs, *[""] * (12 - len(node.inputs))]
    for position, scale, zero in ((1, 8, 9), (2, 10, 11)):
        directions = number(scope.shape(inputs[position])[0])
        shape = scope.constant(ints([directions, 1, -1]))
        parameters = [scope.add("Reshape", inputs[scale], shape)]
        if not _is_zero(inputs[zero], scope):
            parameters.append(scope.add("Reshape", inputs[zero], shape))
        real = scope.add("DequantizeLinear", inputs[position], *parameters, to=str(DType.F32))
        inputs[position] = scope.add("Transpose", real, perm=(0, 2, 1))
    made = RawNode("LSTM", inputs[:8], node.outputs, node.attrs, node.origin)
    return recurrence.expand(made, opset, scope)


def matmul_integer_to_float(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """The product of quantized matrices as floats, plus a bias."""
    a, b, a_scale, b_scale = node.inputs[:4]
    total = _product(a, b, node.input(4), node.input(5), scope)
    return _scaled(node, total, a_scale, b_scale, node.input(6), scope)


def _scaled(
    node: RawNode, total: str, a_scale: str, b_scale: str, bias: str, scope: ImportScope
) -> list[RawNode]:
    """total · a · b + bias."""
    scales = [_shaped(a_scale, (-1, 1), scope), _shaped(b_scale, (1, -1), scope)]
    factor = scope.add("Mul", *scales)
    if not bias:
        return [RawNode("Mul", [_float(total, scope), factor], node.outputs, {}, node.origin)]
    product = scope.add("Mul", _float(total, scope), factor)
    return [RawNode("Add", [product, bias], node.outputs, {}, node.origin)]


def dynamic_quantize(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """DynamicQuantizeLinear: the range of x, zero included, on 0 to 255."""
    x = node.inputs[0]
    quantized, scale, zero = dynamically_quantized(x, scope)
    made = (*node.outputs, "", "")
    return [
        RawNode("Identity", [value], [name], {}, node.origin)
        for value, name in zip((quantized, scale, zero), made, strict=False)
        if name
    ]


def dynamically_quantized(x: str, scope: ImportScope) -> tuple[str, str, str]:
    """x in u8 with its scale (f32) and zero point (u8), both scalars."""
    none, zero = ints([]), _number(0.0, scope)
    extremes = []
    for reduction, pick in (("ReduceMin", "Min"), ("ReduceMax", "Max")):
        extreme = scope.add(reduction, x, keepdims=0)
        extremes.append(scope.add(pick, scope.add("Reshape", extreme, scope.constant(none)), zero))
    low, high = extremes
    spread = scope.add("Sub", high, low)
    scale = scope.add("Div", spread, _number(255.0, scope))
    # Of zeros alone the scale would be 0.
    divisor = scope.add("Where", scope.add("Equal", scale, zero), _number(1.0, scope), scale)
    attrs = {"to": str(DType.U8), "precision": str(DType.F32), "saturate": 1}
    point = scope.add("QuantizeLinear", scope.add("Neg", low), divisor, **attrs)
    return scope.add("QuantizeLinear", x, divisor, point, **attrs), divisor, point


def dynamic_quantize_matmul(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """The product of a matrix quantized on the way and a quantized one, as floats, plus a bias."""
    a, b, b_scale = node.inputs[:3]
    quantized, scale, zero = dynamically_quantized(a, scope)
    total = _product(quantized, b, zero, node.input(3), scope)
    return _scaled(node, total, scale, b_scale, node.input(4), scope)


def matmul_nbits(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """The product with weights of a few bits: B[n] holds the blocks of column n, packed, the first
    element in the lowest bits; without zero points these are half of the range."""
    attrs = node.attrs
    rows, columns, block = (int(attrs[name]) for name in ("K", "N", "block_size"))
    bits = int(attrs.get("bits", 4))
    packed, scales = scope.data(node.inputs[1]), scope.data(node.inputs[2])
    if packed is None or scales is None or node.input(4):
        raise NotSupported("MatMulNBits of weights computed at run time, or with g_idx")
    if bits not in (2, 4, 8):
        raise NotSupported(f"weights of {bits} bits")
    blocks = -(-rows // block)
    weights = _unpacked(packed.reshape(columns, -1), bits)[:, : blocks * block]
    zeros = np.full((columns, blocks), 1 << bits - 1, np.float32)
    if node.input(3):
        given = scope.data(node.input(3))
        if given is None:
            raise NotSupported("zero points computed at run time")
        if given.dtype == np.uint8:
            given = _unpacked(given.reshape(columns, -1), bits)[:, :blocks]
        zeros = given.reshape(columns, blocks).astype(np.float32)
    real = weights.reshape(columns, blocks, block).astype(np.float32) - zeros[..., None]
    real *= scales.reshape(columns, blocks, 1).astype(np.float32)
    dtype = scope.dtype(node.inputs[0])
    matrix = real.reshape(columns, -1)[:, :rows].T.astype(dtype.numpy)
    product = scope.add("MatMul", node.inputs[0], scope.constant(np.ascontiguousarray(matrix)))
    if node.input(5):
        return [RawNode("Add", [product, node.input(5)], node.outputs, {}, node.origin)]
    return [RawNode("Identity", [product], node.outputs, {}, node.origin)]


def _unpacked(packed: npt.NDArray[np.uint8], bits: int) -> npt.NDArray[np.uint8]:
    """The elements of each row of bytes, the first in the lowest bits."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    parts = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return parts.reshape(*packed.shape[:-1], -1)


def gather_block_quantized(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rows of a table quantized in blocks, as floats."""
    data, indices, scales = node.inputs[:3]
    zeros, attrs = node.input(3), node.attrs
    rank = len(scope.shape(data))
    gathered = normal_axis(int(attrs.get("gather_axis", 0)), rank)
    axis = normal_axis(int(attrs.get("quantize_axis", 1)), rank)
    block = int(attrs.get("block_size", 128))
    if gathered == axis:
        raise Mismatch("gather_axis and quantize_axis are one")
    if scope.dtype(data) is DType.U8 and attrs.get("bits", 4) == 4:
        table = scope.data(data)
        points = scope.data(zeros) if zeros else None
        if table is None or axis != rank - 1 or (zeros and points is None):
            raise NotSupported(
                "packed bytes that are computed at run time, or not along the last axis"
            )
        data = scope.constant(_unpacked(table, 4).astype(DType.U4.numpy))
        count = number(scope.shape(scales)[-1])
        if points is None:
            points = np.full([number(n) for n in scope.shape(scales)], 8)
        else:
            points = _unpacked(points, 4)[..., :count]
        zeros = scope.constant(points.astype(DType.U4.numpy))
    rows, parameters = scope.add("Gather", data, indices, axis=gathered), [scales]
    parameters += [zeros] if zeros else []
    parameters = [scope.add("Gather", name, indices, axis=gathered) for name in parameters]
    moved = axis + len(scope.shape(indices)) - 1 if axis > gathered else axis
    made = RawNode(
        "DequantizeLinear",
        [rows, *parameters],
        node.outputs,
        {"axis": moved, "block_size": block},
        node.origin,
    )
    return dequantize(made, opset, scope)


RULES: dict[str, Upgrade] = {
    "QuantizeLinear": quantize,
    "DequantizeLinear": dequantize,
    "DynamicQuantizeLinear": dynamic_quantize,
    "MatMulInteger": matmul_integer,
    "QLinearMatMul": qlinear_matmul,
    "ConvInteger": conv_integer,
    "QLinearConv": qlinear_conv,
    f"{MICROSOFT}:QuantizeLinear": quantize,
    f"{MICROSOFT}:DequantizeLinear": dequantize,
    f"{MICROSOFT}:QLinearConv": qlinear_conv,
    f"{MICROSOFT}:QLinearAdd": _qlinear_binary("Add"),
    f"{MICROSOFT}:QLinearMul": _qlinear_binary("Mul"),
    f"{MICROSOFT}:QLinearLeakyRelu": _qlinear_unary("LeakyRelu"),
    f"{MICROSOFT}:QLinearSigmoid": _qlinear_unary("Sigmoid"),
    f"{MICROSOFT}:QLinearSoftmax": _qlinear_unary("Softmax"),
    f"{MICROSOFT}:QLinearAveragePool": _qlinear_unary("AveragePool"),
    f"{MICROSOFT}:QLinearGlobalAveragePool": _qlinear_unary("GlobalAveragePool"),
    f"{MICROSOFT}:QLinearWhere": qlinear_where,
    f"{MICROSOFT}:QLinearConcat": qlinear_concat,
    f"{MICROSOFT}:QGemm": qgemm,
    f"{MICROSOFT}:QLinearReduceMean": qlinear_reduce_mean,
    f"{MICROSOFT}:NhwcConv": _channels_last("Conv", (0,)),
    f"{MICROSOFT}:NhwcFusedConv": _channels_last(f"{MICROSOFT}:FusedConv", (0, 3)),
    f"{MICROSOFT}:NhwcMaxPool": _channels_last("MaxPool", (0,)),
    f"{MICROSOFT}:DynamicQuantizeLSTM": dynamic_quantize_lstm,
    f"{MICROSOFT}:MatMulIntegerToFloat": matmul_integer_to_float,
    f"{MICROSOFT}:DynamicQuantizeMatMul": dynamic_quantize_matmul,
    f"{MICROSOFT}:MatMulNBits": matmul_nbits,
    f"{MICROSOFT}:GatherBlockQuantized": gather_block_quantized,
}
