"""Models of many operators each, one output an operator, for a comparison with LiteRT's kernels.

`MODELS` has the functions that write them.
"""

import numpy as np

from tests.frontends.tflite.writer import Writer

SAME, VALID = 0, 1


class Outputs:
    """A model whose operators each have an output of their own."""

    def __init__(self, seed):
        self.w, self.rng = Writer(), np.random.default_rng(seed)
        self.inputs, self.outputs = [], []

    def input(self, name, shape, dtype=np.float32, **quantization):
        index = self.w.tensor(name, shape, dtype, **quantization)
        self.inputs.append(index)
        return index

    def ints(self, *values):
        return self.w.constant(np.array(values, np.int32))

    def op(self, name, inputs, shape, dtype=np.float32, *, scaled=None, **options):
        """Add an operator and return its output; `scaled` is the scale and zero point."""
        scale, zero = scaled or (None, None)
        label = f"{name}_{len(self.outputs)}"
        index = self.w.tensor(label, shape, dtype, scale=scale, zero=zero)
        self.w.op(name, inputs, [index], **options)
        self.outputs.append(index)
        return index

    def model(self):
        return self.w.model(self.inputs, self.outputs)


def floats():
    """Operators on floats."""
    m = Outputs(1)
    x, y = m.input("x", (2, 4, 5, 3)), m.input("y", (2, 4, 5, 3))
    row, positive = m.input("row", (3,)), m.input("positive", (2, 6))
    for name in ("ADD", "SUB", "MUL", "DIV"):
        m.op(name, [x, row], (2, 4, 5, 3), activation=1)
    for name in ("MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE", "FLOOR_DIV", "FLOOR_MOD"):
        m.op(name, [x, y], (2, 4, 5, 3))
    m.op("ADD_N", [x, y, x], (2, 4, 5, 3))
    for name in ("ABS", "CEIL", "COS", "ELU", "EXP", "FLOOR", "HARD_SWISH", "LOGISTIC", "NEG",
                 "RELU", "RELU6", "RELU_N1_TO_1", "ROUND", "SIN", "SQUARE", "TANH", "ZEROS_LIKE",
                 "LOG_SOFTMAX", "L2_NORMALIZATION", "SIGN", "RELU_0_TO_1"):  # fmt: skip
        m.op(name, [x], (2, 4, 5, 3))
    m.op("GELU", [x], (2, 4, 5, 3), approximate=False)
    m.op("GELU", [x], (2, 4, 5, 3), approximate=True)
    m.op("LEAKY_RELU", [x], (2, 4, 5, 3), alpha=0.3)
    m.op("SOFTMAX", [x], (2, 4, 5, 3), beta=0.7)
    m.op("PRELU", [x, m.w.constant(np.array([[[0.1, -0.2, 0.3]]], np.float32))], (2, 4, 5, 3))
    size = m.op("ABS", [positive], (2, 6))
    for name in ("LOG", "SQRT", "RSQRT"):
        m.op(name, [size], (2, 6))
    m.op("POW", [size, positive], (2, 6))
    for name in ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"):
        m.op(name, [x, row], (2, 4, 5, 3), np.bool_)
    is_less = m.outputs[-4]
    m.op("LOGICAL_NOT", [is_less], (2, 4, 5, 3), np.bool_)
    m.op("LOGICAL_AND", [is_less, m.outputs[-2]], (2, 4, 5, 3), np.bool_)
    m.op("SELECT_V2", [is_less, x, y], (2, 4, 5, 3))
    for keep in (False, True):
        for name in ("SUM", "MEAN", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD"):
            shape = (2, 1, 1, 3) if keep else (2, 3)
            m.op(name, [x, m.ints(1, -2)], shape, keep_dims=keep)
    m.op("REDUCE_ANY", [is_less, m.ints(1)], (2, 5, 3), np.bool_)
    m.op("REDUCE_ALL", [is_less, m.ints(-1)], (2, 4, 5), np.bool_)
    m.op(
        "CUMSUM",
        [x, m.w.constant(np.array(2, np.int32))],
        (2, 4, 5, 3),
        exclusive=True,
        reverse=True,
    )
    m.op("ARG_MAX", [x, m.ints(3)], (2, 4, 5), np.int32, output_type=2)
    m.op("ARG_MIN", [x, m.ints(1)], (2, 5, 3), np.int64, output_type=4)
    return m


def moves():
    """Operators that move elements, and those of shapes."""
    m = Outputs(2)
    x, y = m.input("x", (2, 4, 6, 3)), m.input("y", (2, 4, 6, 3))
    m.op("RESHAPE", [x, m.ints(4, -1)], (4, 36))
    m.op("SQUEEZE", [m.op("EXPAND_DIMS", [x, m.ints(-2)], (2, 4, 6, 1, 3))], (2, 4, 6, 3))
    m.op("TRANSPOSE", [x, m.ints(2, 0, 3, 1)], (6, 2, 3, 4))
    m.op("SHAPE", [x], (4,), np.int32, output_type=2)
    m.op("BROADCAST_TO", [m.op("SLICE", [x, m.ints(0, 1, 2, 0), m.ints(2, 1, -1, 3)], (2, 1, 4, 3)),
         m.ints(2, 5, 4, 3)], (2, 5, 4, 3))  # fmt: skip
    m.op("PACK", [x, y], (2, 4, 2, 6, 3), count=2, axis=2)
    m.op("CONCATENATION", [x, y, x], (2, 4, 18, 3), axis=-2)
    m.op("TILE", [x, m.ints(1, 2, 1, 3)], (2, 8, 6, 9))
    m.op("REVERSE_V2", [x, m.ints(1, 2)], (2, 4, 6, 3))
    pads = m.w.constant(np.array([[0, 0], [1, 2], [3, 0], [1, 1]], np.int32))
    m.op("PAD", [x, pads], (2, 7, 9, 5))
    m.op("PADV2", [x, pads, m.w.constant(np.array(2.5, np.float32))], (2, 7, 9, 5))
    mirrored = m.w.constant(np.array([[0, 1], [1, 2], [3, 0], [1, 1]], np.int32))
    m.op("MIRROR_PAD", [x, mirrored], (3, 7, 9, 5), mode=0)
    m.op("MIRROR_PAD", [x, mirrored], (3, 7, 9, 5), mode=1)
    m.op("STRIDED_SLICE", [x, m.ints(0, -1, 5), m.ints(2, 0, 0), m.ints(1, -2, -3)],
         (2, 2, 2, 3))  # fmt: skip
    m.op("STRIDED_SLICE", [x, m.ints(1, 0, 1), m.ints(0, 0, 3), m.ints(1, 1, 1)], (4, 6, 2),
         shrink_axis_mask=1, ellipsis_mask=2)  # fmt: skip
    m.op("GATHER", [x, m.ints(3, 0, 2)], (2, 3, 6, 3), axis=1)
    m.op("GATHER_ND", [x, m.w.constant(np.array([[1, 2], [0, 3]], np.int32))], (2, 6, 3))
    m.op("DEPTH_TO_SPACE", [m.op("SPACE_TO_DEPTH", [x], (2, 2, 3, 12), block_size=2)],
         (2, 4, 6, 3), block_size=2)  # fmt: skip
    crops = m.w.constant(np.array([[1, 1], [2, 1]], np.int32))
    batches = m.op("SPACE_TO_BATCH_ND", [x, m.ints(2, 3), crops], (12, 3, 3, 3))
    m.op("BATCH_TO_SPACE_ND", [batches, m.ints(2, 3), crops], (2, 4, 6, 3))
    m.op("ONE_HOT", [m.ints(3, 0, 5), m.w.constant(np.array(4, np.int32)),
         m.w.constant(np.array(2, np.float32)), m.w.constant(np.array(-1, np.float32))],
         (3, 4), axis=-1)  # fmt: skip
    m.op("CAST", [x], (2, 4, 6, 3), np.int32, **{"from": 0, "to": 2})
    m.op("RESIZE_BILINEAR", [x, m.ints(7, 4)], (2, 7, 4, 3))
    m.op("RESIZE_BILINEAR", [x, m.ints(7, 4)], (2, 7, 4, 3), half_pixel=True)
    m.op("RESIZE_BILINEAR", [x, m.ints(7, 4)], (2, 7, 4, 3), align_corners=True)
    m.op("RESIZE_NEAREST_NEIGHBOR", [x, m.ints(7, 4)], (2, 7, 4, 3))
    m.op("RESIZE_NEAREST_NEIGHBOR", [x, m.ints(7, 4)], (2, 7, 4, 3), half_pixel=True)
    m.op("RESIZE_NEAREST_NEIGHBOR", [x, m.ints(7, 4)], (2, 7, 4, 3), align_corners=True)
    return m


def sums():
    """Convolutions, products and pools of floats."""
    m = Outputs(3)
    x = m.input("x", (2, 7, 8, 4))

    def weights(*shape):
        return m.w.constant(m.rng.standard_normal(shape).astype(np.float32))

    bias = weights(6)
    m.op("CONV_2D", [x, weights(6, 3, 2, 4), bias], (2, 4, 4, 6), padding=SAME, stride_w=2,
         stride_h=2, activation=1)  # fmt: skip
    m.op("CONV_2D", [x, weights(6, 3, 2, 2), bias], (2, 3, 6, 6), padding=VALID, stride_w=1,
         stride_h=1, dilation_w=2, dilation_h=2)  # fmt: skip
    m.op("DEPTHWISE_CONV_2D", [x, weights(1, 3, 3, 8), weights(8)], (2, 7, 4, 8), padding=SAME,
         stride_w=2, stride_h=1, multiplier=2)  # fmt: skip
    m.op("TRANSPOSE_CONV", [m.ints(2, 14, 16, 5), weights(5, 3, 3, 4), x], (2, 14, 16, 5),
         padding=SAME, stride_w=2, stride_h=2)  # fmt: skip
    m.op("TRANSPOSE_CONV", [m.ints(2, 16, 9, 5), weights(5, 4, 2, 4), x, weights(5)],
         (2, 16, 9, 5), padding=VALID, stride_w=1, stride_h=2)  # fmt: skip
    for padding, shape in ((SAME, (2, 4, 8, 4)), (VALID, (2, 3, 7, 4))):
        for name in ("AVERAGE_POOL_2D", "MAX_POOL_2D"):
            m.op(name, [x], shape, padding=padding, stride_w=1, stride_h=2, width=2, height=3)
    m.op("FULLY_CONNECTED", [x, weights(5, 32), weights(5)], (14, 5), activation=3)
    m.op("FULLY_CONNECTED", [x, weights(5, 4), -1], (2, 7, 8, 5), keep_dims=True)
    m.op("BATCH_MATMUL", [x, weights(2, 7, 3, 4)], (2, 7, 8, 3), adj_y=True)
    return m


def integers(dtype=np.int8):
    """Operators on bytes."""
    m = Outputs(4)
    low = np.iinfo(dtype).min
    at = low + 128  # This is the middle of the type.
    scale = (0.047, at - 5)
    x = m.input("x", (2, 6, 7, 4), dtype, scale=scale[0], zero=scale[1])
    y = m.input("y", (2, 6, 7, 4), dtype, scale=0.031, zero=at + 17)
    shape, out = (2, 6, 7, 4), (0.05, at + 3)
    for name in ("ADD", "SUB", "MUL"):
        m.op(name, [x, y], shape, dtype, scaled=out)
        m.op(name, [x, y], shape, dtype, scaled=(0.01, at), activation=1)
    row = m.w.constant(m.rng.integers(0, 100, (4,)).astype(dtype), scale=0.02, zero=at)
    m.op("ADD", [x, row], shape, dtype, scaled=out)
    for name in ("LOGISTIC", "SOFTMAX"):
        m.op(
            name,
            [x],
            shape,
            dtype,
            scaled=(1 / 256, low),
            **({"beta": 1.0} if "S" in name[:1] else {}),
        )
    m.op("TANH", [x], shape, dtype, scaled=(1 / 128, at))
    m.op("QUANTIZE", [x], shape, np.uint8 if dtype is np.int8 else np.int8, scaled=(0.06, 3))
    m.op("DEQUANTIZE", [x], shape)
    m.op("RELU6", [x], shape, dtype, scaled=(0.03, at - 128))
    m.op("RELU", [x], shape, dtype, scaled=out)
    m.op("LEAKY_RELU", [x], shape, dtype, scaled=out, alpha=0.2)
    for padding, pooled in ((SAME, (2, 3, 7, 4)), (VALID, (2, 2, 6, 4))):
        for name in ("AVERAGE_POOL_2D", "MAX_POOL_2D"):
            m.op(name, [x], pooled, dtype, scaled=scale, padding=padding, stride_w=1, stride_h=2,
                 width=2, height=3)  # fmt: skip
    m.op("MAXIMUM", [x, x], shape, dtype, scaled=scale)
    m.op("REDUCE_MAX", [x, m.ints(1, 2)], (2, 4), dtype, scaled=scale)
    if dtype is np.int8:
        further_integers(m, x, shape, out)
    m.op("CONCATENATION", [x, x], (2, 12, 7, 4), dtype, scaled=scale, axis=1)
    pads = m.w.constant(np.array([[0, 0], [1, 2], [3, 0], [0, 0]], np.int32))
    m.op("PAD", [x, pads], (2, 9, 10, 4), dtype, scaled=scale)
    m.op("RESIZE_NEAREST_NEIGHBOR", [x, m.ints(9, 3)], (2, 9, 3, 4), dtype, scaled=scale)
    return m


def further_integers(m, x, shape, out):
    """Add operators that the reference kernels have for signed bytes alone."""
    m.op("MEAN", [x, m.ints(1, 2)], (2, 4), np.int8, scaled=(0.047, -5))
    m.op("MEAN", [x, m.ints(1, 2)], (2, 1, 1, 4), np.int8, scaled=(0.02, 11), keep_dims=True)
    m.op("MEAN", [x, m.ints(3)], (2, 6, 7), np.int8, scaled=(0.04, 11))
    m.op("HARD_SWISH", [x], shape, np.int8, scaled=(0.03, -7))
    m.op("ABS", [x], shape, np.int8, scaled=(0.03, -7))
    slopes = m.w.constant(np.array([[[3, -20, 100, 7]]], np.int8), scale=0.01, zero=2)
    m.op("PRELU", [x, slopes], shape, np.int8, scaled=out)
    for half in (False, True):
        m.op("RESIZE_BILINEAR", [x, m.ints(9, 5)], (2, 9, 5, 4), np.int8, scaled=(0.047, -5),
             half_pixel=half)  # fmt: skip


def integer_sums():
    """Convolutions and products of bytes."""
    m = Outputs(5)
    x = m.input("x", (2, 7, 8, 4), np.int8, scale=0.047, zero=-5)

    def weights(*shape, axis=0, count=1):
        scale = m.rng.uniform(0.001, 0.02, count).astype(np.float32)
        values = m.rng.integers(-127, 128, shape).astype(np.int8)
        return m.w.constant(values, scale=scale, axis=axis), scale

    def bias(scale):
        values = m.rng.integers(-3000, 3000, scale.size if scale.size > 1 else 6).astype(np.int32)
        return m.w.constant(values, scale=scale * np.float32(0.047), zero=0)

    for count, activation in ((6, 0), (6, 1), (6, 3)):
        w, scale = weights(6, 3, 2, 4, count=count)
        m.op("CONV_2D", [x, w, bias(scale)], (2, 4, 4, 6), np.int8, scaled=(0.3, 11), padding=SAME,
             stride_w=2, stride_h=2, activation=activation)  # fmt: skip
    w, scale = weights(6, 1, 1, 4, count=6)
    m.op("CONV_2D", [x, w, bias(scale)], (2, 7, 8, 6), np.int8, scaled=(0.0002, 11), padding=VALID,
         stride_w=1, stride_h=1)  # fmt: skip
    w, scale = weights(1, 3, 3, 4, axis=3, count=4)
    m.op("DEPTHWISE_CONV_2D", [x, w, bias(scale)], (2, 7, 8, 4), np.int8, scaled=(0.08, -20),
         padding=SAME, stride_w=1, stride_h=1, multiplier=1)  # fmt: skip
    w, scale = weights(1, 3, 3, 8, axis=3, count=8)
    m.op("DEPTHWISE_CONV_2D", [x, w, bias(scale)], (2, 3, 3, 8), np.int8, scaled=(0.08, -20),
         padding=VALID, stride_w=2, stride_h=2, multiplier=2, activation=1)  # fmt: skip
    w, scale = weights(6, 224)
    m.op("FULLY_CONNECTED", [x, w, bias(scale)], (2, 6), np.int8, scaled=(0.7, 11))
    w, scale = weights(6, 224, count=6)
    m.op("FULLY_CONNECTED", [x, w, bias(scale)], (2, 6), np.int8, scaled=(0.7, 11))
    return m


def unsigned_sums():
    """Convolutions and products of unsigned bytes with weights that have zero points."""
    m = Outputs(6)
    x = m.input("x", (2, 7, 8, 4), np.uint8, scale=0.047, zero=120)

    def weights(*shape):
        values = m.rng.integers(20, 250, shape).astype(np.uint8)
        return m.w.constant(values, scale=0.01, zero=128)

    bias = m.w.constant(m.rng.integers(-3000, 3000, 6).astype(np.int32), scale=0.00047, zero=0)
    m.op("CONV_2D", [x, weights(6, 3, 2, 4), bias], (2, 4, 4, 6), np.uint8, scaled=(0.3, 111),
         padding=SAME, stride_w=2, stride_h=2, activation=1)  # fmt: skip
    m.op("FULLY_CONNECTED", [x, weights(6, 224), bias], (2, 6), np.uint8, scaled=(0.7, 111))
    return m


def hybrids():
    """Floats times weights of bytes."""
    m = Outputs(7)
    x = m.input("x", (2, 7, 8, 4))

    def weights(*shape, axis=0, count=1):
        scale = m.rng.uniform(0.001, 0.02, count).astype(np.float32)
        values = m.rng.integers(-127, 128, shape).astype(np.int8)
        return m.w.constant(values, scale=scale, axis=axis)

    bias = m.w.constant(m.rng.standard_normal(6).astype(np.float32))
    for count in (1, 6):
        m.op("CONV_2D", [x, weights(6, 3, 2, 4, count=count), bias], (2, 4, 4, 6), padding=SAME,
             stride_w=2, stride_h=2)  # fmt: skip
    none = m.w.constant(np.zeros(4, np.float32))
    m.op("DEPTHWISE_CONV_2D", [x, weights(1, 3, 3, 4, axis=3, count=4), none], (2, 7, 8, 4),
         padding=SAME, stride_w=1, stride_h=1, multiplier=1)  # fmt: skip
    for asymmetric in (False, True):
        m.op("FULLY_CONNECTED", [x, weights(6, 224), bias], (2, 6), asymmetric=asymmetric)
    return m


def unsigned():
    """The operators on bytes, unsigned."""
    return integers(np.uint8)


MODELS = {
    each.__name__: each
    for each in (floats, moves, sums, integers, unsigned, integer_sums, unsigned_sums, hybrids)
}
