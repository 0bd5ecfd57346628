"""Quantized operators against ONNX Runtime: the reference rules, and compiled code."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import farrier
from farrier.frontends.onnx.importer import import_model
from farrier.ir.types import DType
from farrier.ops import run_graph

RNG = np.random.default_rng(20261121)
F32, U8, I8 = np.float32, np.uint8, np.int8


def check(
    op, inputs, *, domain="", fixed=(), steps=1, share=0.02, tolerance=1e-5, expected=None, **attrs
):
    """One node: what the rules of its rewrite and the compiled code say, against ONNX Runtime.

    `inputs` are arrays, None where omitted; those at positions `fixed` are initializers. Integers
    may differ by `steps`, where a quotient lies half way between two: a `share` of all elements.
    """
    named = {f"x{i}": array for i, array in enumerate(inputs) if array is not None}
    kept = {name for name in named if int(name[1:]) in fixed}
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in named.items()
        if n not in kept
    ]
    weights = [numpy_helper.from_array(named[name], name) for name in sorted(kept)]
    names = [f"x{i}" if array is not None else "" for i, array in enumerate(inputs)]
    node = helper.make_node(op, names, ["y"], domain=domain, **attrs)
    graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name="y")], weights)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    data = model.SerializeToString()
    feeds = {name: array for name, array in named.items() if name not in kept}
    if expected is None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        expected = onnxruntime.InferenceSession(data, options).run(None, feeds)[0]
    imported = import_model(data)
    pairs = zip(imported.graph.inputs, imported.input_names, strict=True)
    reference = run_graph(imported.graph, {value.name: feeds[name] for value, name in pairs})
    compiled = farrier.compile(data, verify=False, threads=2).run(feeds)
    for actual in (*reference.values(), *compiled.values()):
        assert actual.dtype == expected.dtype
        assert actual.shape == expected.shape
        if expected.dtype.kind in "iu":
            apart = np.abs(actual.astype(np.int64) - expected.astype(np.int64))
            assert apart.max() <= steps
            assert (apart > 0).mean() <= share
        else:
            scale = np.abs(expected).max()
            np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * scale)


def codes(dtype, *shape):
    limits = np.iinfo(dtype)
    return np.asarray(RNG.integers(limits.min, limits.max + 1, shape), dtype)


def weights(*shape, dtype=I8):
    """Half of int8's range: ONNX Runtime's sums of two products by uint8 saturate at 16 bits where
    the processor has AVX2 but not VNNI, which with these does not happen."""
    return codes(dtype, *shape) if dtype is U8 else codes(dtype, *shape) // 2


def real(*shape):
    return RNG.normal(size=shape).astype(F32)


def scale(*shape):
    return np.asarray(RNG.random(shape) * 0.05 + 0.01, F32)


@pytest.mark.parametrize("dtype", [U8, I8, np.uint16, np.int16])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_quantize_and_dequantize(dtype, axis):
    x = real(5, 7, 6) * 3
    shape = () if axis is None else (x.shape[axis],)
    attrs = {} if axis is None else {"axis": axis}
    zero = codes(dtype, *shape)
    check("QuantizeLinear", [x, scale(*shape), zero], **attrs)
    check("DequantizeLinear", [codes(dtype, *x.shape), scale(*shape), zero], **attrs)
    check("DequantizeLinear", [codes(dtype, *x.shape), scale(*shape)], fixed=(1,), **attrs)


@pytest.mark.parametrize("length", [6, 7])
@pytest.mark.parametrize("axis", [0, 1])
def test_quantize_by_blocks(length, axis):
    x = np.moveaxis(real(length, 4), 0, axis) * 3
    blocks = np.moveaxis(np.zeros((-(-length // 3), 4)), 0, axis).shape
    zero = codes(I8, *blocks)
    check("QuantizeLinear", [x, scale(*blocks), zero], axis=axis, block_size=3)
    check("DequantizeLinear", [codes(I8, *x.shape), scale(*blocks), zero], axis=axis, block_size=3)


def product_of_integers(a, b, a_point=0, b_point=0):
    """(a − a_point) (b − b_point), int32."""
    return np.matmul(a.astype(np.int32) - np.int32(a_point), b.astype(np.int32) - np.int32(b_point))


@pytest.mark.parametrize("a", [U8, I8])
@pytest.mark.parametrize("zeros", ["none", "zero", "scalars", "vectors"])
@pytest.mark.parametrize("rows", [1, 13])
def test_matmul_integer(a, zeros, rows):
    x, w = codes(a, 2, rows, 37), codes(I8, 37, 19)
    points = {
        "none": [],
        "zero": [np.array(0, a), np.array(0, I8)],
        "scalars": [codes(a), codes(I8)],
        "vectors": [codes(a), codes(I8, 19)],
    }[zeros]
    expected = product_of_integers(x, w, *points)
    check("MatMulInteger", [x, w, *points], steps=0, expected=expected)
    check("MatMulInteger", [x, w, *points], fixed=(1, 3), steps=0, expected=expected)


def test_matmul_integer_of_vectors():
    points = [codes(U8), codes(I8)]
    for x, w in ((codes(U8, 37), codes(I8, 37, 5)), (codes(U8, 3, 37), codes(I8, 37))):
        expected = product_of_integers(x, w, *points)
        check("MatMulInteger", [x, w, *points], steps=0, expected=expected)


@pytest.mark.parametrize("b", [U8, I8])
def test_qlinear_matmul(b):
    """The sum is rounded to the nearest of a coarser scale; per column for the weights."""
    for columns in ((), (19,)):
        inputs = [codes(U8, 13, 37), scale(), codes(U8), weights(37, 19, dtype=b), scale(*columns),
                  codes(b, *columns), np.array(3.5, F32), codes(U8)]  # fmt: skip
        check("QLinearMatMul", inputs, fixed=(3, 4, 5))
        check("QLinearMatMul", inputs)


@pytest.mark.parametrize("group", [1, 2, 6])
@pytest.mark.parametrize("points", [False, True])
def test_convolutions(group, points):
    x, w = codes(U8, 2, 6, 9, 8), weights(12, 6 // group, 3, 3)
    zeros = [codes(U8), np.array(0, I8)] if points else []
    attrs = {"pads": [1, 1, 1, 1], "strides": [2, 1], "group": group}
    if not points or group == 1:
        # ONNX Runtime's ConvInteger takes weights of x's type alone
        check("ConvInteger", [x, w.view(U8), *[z.astype(U8) for z in zeros]], steps=0, **attrs)
    inputs = [x, scale(), codes(U8) if points else np.array(0, U8), w, scale(12),
              np.zeros(12, I8), np.array(0.8, F32), codes(U8),
              codes(np.int16, 12).astype(np.int32)]  # fmt: skip
    check("QLinearConv", inputs, fixed=(3, 4, 5, 8), **attrs)
    check("QLinearConv", inputs[:8], fixed=(1, 2, 4, 5, 6, 7), **attrs)


def test_dynamic_quantize_linear():
    for x in (real(5, 9), np.abs(real(7)) + 1, -np.abs(real(7)) - 1, np.zeros(4, F32)):
        infos = [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)]
        node = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])
        outputs = [onnx.ValueInfoProto(name=name) for name in "ysz"]
        model = helper.make_model(
            helper.make_graph([node], "g", infos, outputs),
            opset_imports=[helper.make_opsetid("", 13)],
            ir_version=8,
        )
        actual = farrier.compile(model, verify=False).run({"x": x})
        high, low = max(x.max(), 0), min(x.min(), 0)
        step = np.float32(high - low) / np.float32(255)
        np.testing.assert_allclose(actual["s"], step if step else 1, rtol=1e-6)
        point = np.rint(-low / step) if step else 0
        assert actual["z"] == point
        wanted = np.clip(np.rint(x / step) + point, 0, 255) if step else 0 * x
        np.testing.assert_array_equal(actual["y"], wanted)


MS = "com.microsoft"


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("dtype", [U8, I8])
def test_qlinear_arithmetic(op, dtype):
    a, b = codes(dtype, 3, 5, 7), codes(dtype, 5, 1)
    inputs = [a, scale(), codes(dtype), b, scale(), codes(dtype), np.array(0.3, F32), codes(dtype)]
    check(op, inputs, domain=MS)
    check(op, inputs, domain=MS, fixed=(1, 2, 4, 5, 6, 7))


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("QLinearLeakyRelu", {"alpha": 0.3}),
        ("QLinearSigmoid", {}),
        ("QLinearSoftmax", {"axis": -1, "opset": 13}),
        ("QLinearAveragePool", {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}),
        ("QLinearAveragePool", {"kernel_shape": [3, 3], "count_include_pad": 1, "pads": [1] * 4}),
        ("QLinearAveragePool", {"kernel_shape": [3, 3], "channels_last": 1}),
        ("QLinearGlobalAveragePool", {"channels_last": 0}),
        ("QLinearGlobalAveragePool", {"channels_last": 1}),
    ],
)
def test_qlinear_functions(op, attrs):
    inputs = [codes(U8, 2, 6, 9, 7), scale(), codes(U8), np.array(0.03, F32), codes(U8)]
    share = 0.1 if op == "QLinearSoftmax" else 0.02  # ONNX Runtime takes it from a table
    check(op, inputs, domain=MS, fixed=(1, 2, 3, 4), share=share, **attrs)


def test_qlinear_where_and_concat():
    a, b = codes(U8, 3, 5), codes(U8, 3, 5)
    params_a, params_b = [scale(), codes(U8)], [scale(), codes(U8)]
    result = [np.array(0.1, F32), codes(U8)]
    check(
        "QLinearWhere", [RNG.random((3, 5)) < 0.5, a, *params_a, b, *params_b, *result], domain=MS
    )
    check("QLinearConcat", [*result, a, *params_a, b, *params_b], domain=MS, axis=1)


@pytest.mark.parametrize("quantized", [False, True])
@pytest.mark.parametrize("transposed", [0, 1])
def test_qgemm(quantized, transposed):
    b = weights(19, 37) if transposed else weights(37, 19)
    inputs = [codes(U8, 5, 37), scale(), codes(U8), b, scale(19), np.zeros(19, I8),
              codes(np.int16, 19).astype(np.int32)]  # fmt: skip
    inputs += [np.array(1.5, F32), codes(U8)] if quantized else []
    check("QGemm", inputs, domain=MS, fixed=(3, 4, 5), transB=transposed, alpha=0.7)


def test_images_with_channels_last():
    x, w = real(2, 8, 9, 6), real(12, 6, 3, 3)
    moved = np.ascontiguousarray(np.moveaxis(x, -1, 1))
    options = {"pads": [1, 1, 1, 1], "strides": [2, 2]}
    node = helper.make_node("Conv", ["x", "w"], ["y"], **options)
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape)
             for n, a in (("x", moved), ("w", w))]  # fmt: skip
    graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    expected = np.moveaxis(session.run(None, {"x": moved, "w": w})[0], 1, -1)
    check("NhwcConv", [x, w], domain=MS, fixed=(1,), expected=expected, **options)
    z = real(*expected.shape)
    fused = np.maximum(expected + z, 0)
    options |= {"activation": "Relu"}
    check("NhwcFusedConv", [x, w, None, z], domain=MS, fixed=(1,), expected=fused, **options)


def test_pools_with_channels_last():
    x = codes(U8, 2, 9, 7, 6)
    check("NhwcMaxPool", [x], domain=MS, kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1])


@pytest.mark.parametrize("keep", [0, 1])
def test_qlinear_reduce_mean(keep):
    x, zero, result = codes(U8, 3, 5, 7), codes(U8), np.array(100, U8)
    real = (x.astype(F32) - F32(zero)) * F32(0.02)
    mean = real.mean(axis=(0, 2), keepdims=bool(keep), dtype=np.float64)
    expected = np.clip(np.rint(mean / 0.01) + 100, 0, 255).astype(U8)
    inputs = [x, np.array(0.02, F32), zero, np.array(0.01, F32), result]
    check(
        "QLinearReduceMean", inputs, domain=MS, expected=expected, axes=[0, 2], keepdims=keep,
        share=0.2,
    )  # fmt: skip


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("columns", [False, True])
def test_lstm_of_quantized_weights(direction, columns):
    count, hidden = 2 if direction == "bidirectional" else 1, 8
    shape = (count, 4 * hidden) if columns else (count,)
    weights = [codes(I8, count, length, 4 * hidden) // 8 for length in (5, hidden)]
    quantization = [scale(*shape) / 2, np.zeros(shape, I8)]
    inputs = [real(7, 3, 5), *weights, real(count, 8 * hidden) * F32(0.1), None, None, None, None,
              *quantization, *quantization]  # fmt: skip
    # ONNX Runtime rounds the inputs of every step to 8 bits.
    check(
        "DynamicQuantizeLSTM", inputs, domain=MS, fixed=(1, 2, 8, 9, 10, 11), tolerance=5e-2,
        hidden_size=hidden, direction=direction,
    )  # fmt: skip


@pytest.mark.parametrize("bias", [False, True])
def test_products_quantized_on_the_way(bias):
    b, columns = weights(37, 19), (19,)
    tail = [real(19)] if bias else []
    inputs = [real(5, 37), b, scale(*columns), np.zeros(19, I8), *tail]
    check("DynamicQuantizeMatMul", inputs, domain=MS, fixed=(1, 2, 3), tolerance=1e-2)
    inputs = [codes(U8, 5, 37), b, scale(), scale(*columns), codes(U8), np.zeros(19, I8), *tail]
    check("MatMulIntegerToFloat", inputs, domain=MS, fixed=(1, 3, 5))


@pytest.mark.parametrize("points", [False, True])
@pytest.mark.parametrize("length", [64, 96])
def test_matmul_of_weights_of_four_bits(points, length):
    blocks = length // 32
    packed = codes(U8, 9, blocks, 16)
    inputs = [real(3, length), packed, scale(9 * blocks)]
    inputs += [codes(U8, 9 * -(-blocks // 2))] if points else []
    attrs = {"K": length, "N": 9, "bits": 4, "block_size": 32}
    check("MatMulNBits", inputs, domain=MS, fixed=(1, 2, 3), **attrs)


def test_rows_of_a_quantized_table():
    table = codes(I8, 11, 64) // 16
    indices = RNG.integers(0, 11, (2, 3))
    blocks = scale(11, 2)
    wide = table.astype(F32).reshape(11, 2, 32) * blocks[..., None]
    expected = wide.reshape(11, 64)[indices]
    inputs = [table.astype(DType.I4.numpy), indices, blocks]
    attrs = {"gather_axis": 0, "quantize_axis": 1, "block_size": 32}
    check("GatherBlockQuantized", inputs, domain=MS, fixed=(0, 2), expected=expected, **attrs)
