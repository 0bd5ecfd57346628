"""Products with weights of a few bits, quantized in blocks, against float64."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import farrier

FLOATS = {np.float32: TensorProto.FLOAT, np.float16: TensorProto.FLOAT16}


@st.composite
def products(draw):
    """bits, block, rows, K (a whole number of blocks, or not), N, dtype, zero points, level."""
    bits, block = draw(st.sampled_from([4, 8])), draw(st.sampled_from([16, 32, 64, 128]))
    inner = draw(st.integers(1, 3)) * block - draw(st.sampled_from([0, 0, 1, 5]))
    rows, columns = draw(st.sampled_from([1, 3, 9, 17])), draw(st.sampled_from([8, 24, 33, 65]))
    kind = draw(st.sampled_from([np.float32, np.float16]))
    zeros, level = draw(st.sampled_from(["", "packed", "float"])), draw(st.sampled_from([0, 4]))
    return bits, block, rows, inner, columns, kind, zeros, level


def codes_of(rng, bits, *shape):
    """Codes, and the bytes that hold them."""
    codes = rng.integers(0, 1 << bits, shape)
    if bits == 8:
        return codes, codes.astype(np.uint8)
    whole = np.concatenate((codes, np.zeros((*shape[:-1], shape[-1] % 2), int)), -1)
    return codes, (whole[..., ::2] | whole[..., 1::2] << 4).astype(np.uint8)


def as_bytes(x, block):
    """Rows rounded to i8 block by block, as accuracy_level 4 asks."""
    parts = np.pad(x.astype(np.float32), ((0, 0), (0, -x.shape[1] % block)))
    parts = parts.reshape(len(x), -1, block)
    high = np.abs(parts).max(-1, keepdims=True)
    codes = np.rint(parts * (np.float32(127) / high))
    return (codes * (high / np.float32(127))).reshape(len(x), -1)[:, : x.shape[1]].astype(x.dtype)


def one_product(rng, number, bits, block, rows, inner, columns, kind, zeros, level):
    """A MatMulNBits, its initializers, its input, and the result in float64."""
    blocks = -(-inner // block)
    codes, packed = codes_of(rng, bits, columns, blocks, block)
    scales = (rng.random((columns, blocks)) * 0.1 + 0.01).astype(kind)
    x = rng.standard_normal((rows, inner)).astype(kind)
    weights = {"w": packed, "s": scales}
    points = np.full((columns, blocks), 1 << bits - 1)
    if zeros == "packed":
        points, weights["z"] = codes_of(rng, bits, columns, blocks)
    if zeros == "float" and bits == 4:
        points = weights["z"] = (rng.random((columns, blocks)) * 15).astype(kind)
    matrix = (codes - points.astype(float)[..., None]) * scales.astype(float)[..., None]
    is_rounded = level == 4 and ("z" not in weights or zeros == "packed")
    multiplied = as_bytes(x, block) if is_rounded else x
    want = multiplied.astype(float) @ matrix.reshape(columns, -1)[:, :inner].T
    names = {name: f"{name}{number}" for name in ("x", *weights, "y")}
    inputs = [names[name] for name in ("x", *weights)]
    attrs = {"K": inner, "N": columns, "bits": bits, "block_size": block, "accuracy_level": level}
    node = helper.make_node("MatMulNBits", inputs, [names["y"]], domain="com.microsoft", **attrs)
    infos = [
        helper.make_tensor_value_info(names[name], FLOATS[kind], shape)
        for name, shape in (("x", x.shape), ("y", want.shape))
    ]
    constants = [numpy_helper.from_array(array, names[name]) for name, array in weights.items()]
    return node, infos, constants, {names["x"]: x}, {names["y"]: want}


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(products(), min_size=3, max_size=3), st.integers(0, 2**32 - 1))
def test_products_are_those_of_dequantized_weights(cases, seed):
    rng = np.random.default_rng(seed)
    parts = [one_product(rng, number, *case) for number, case in enumerate(cases)]
    graph = helper.make_graph(
        [node for node, *_ in parts],
        "g",
        [infos[0] for _, infos, *_ in parts],
        [infos[1] for _, infos, *_ in parts],
        [constant for _, _, constants, *_ in parts for constant in constants],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    feeds = {name: x for *_, inputs, _ in parts for name, x in inputs.items()}
    got = farrier.compile(model, verify=False, threads=1).run(feeds)
    for case, (*_, wanted) in zip(cases, parts, strict=True):
        for name, want in wanted.items():
            tolerance = 1e-5 if case[5] is np.float32 else 1e-3
            atol = tolerance * np.abs(want).max()
            np.testing.assert_allclose(got[name].astype(float), want, rtol=0, atol=atol)


def four_bits(rng, name, kind, *shape):
    low = -8 if kind == TensorProto.INT4 else 0
    numbers = rng.integers(low, low + 16, shape)
    return numbers, helper.make_tensor(name, kind, shape, numbers.flatten().tolist())


def declared(arrays):
    kinds = helper.np_dtype_to_tensor_dtype
    return [
        helper.make_tensor_value_info(name, kinds(array.dtype), array.shape)
        for name, array in arrays.items()
    ]


@pytest.mark.parametrize("kind", [TensorProto.INT4, TensorProto.UINT4])
def test_weights_of_four_bits_stay_in_half_a_byte(kind):
    """A table, a matrix of rows that no block divides, and a turned one, each dequantized by
    DequantizeLinear: the artifact holds the codes, scales and zero points in their bits."""
    rng, block, width = np.random.default_rng(45), 32, 250
    shapes = {"table": (300, 256, 1), "down": (width, 256, 0), "up": (256, 96, 1)}
    nodes, constants, real, stored = [], [], {}, 0
    for name, (*shape, axis) in shapes.items():
        blocks = list(shape)
        blocks[axis] = -(-shape[axis] // block)
        codes, tensor = four_bits(rng, f"{name}_w", kind, *shape)
        zeros, points = four_bits(rng, f"{name}_z", kind, *blocks)
        scales = np.asarray(rng.random(blocks) * 0.1, np.float32)
        spread = [np.repeat(each, block, axis) for each in (scales, zeros)]
        spread = [each[tuple(map(slice, shape))] for each in spread]
        real[name] = (codes - spread[1]) * spread[0].astype(float)
        constants += [tensor, points, numpy_helper.from_array(scales, f"{name}_s")]
        operands = [f"{name}_{part}" for part in "wsz"]
        attrs = {"axis": axis, "block_size": block}
        nodes.append(helper.make_node("DequantizeLinear", operands, [name], **attrs))
        stored += codes.size / 2 + zeros.size / 2 + scales.nbytes
    nodes += [
        helper.make_node("Gather", ["table", "ids"], ["rows"]),
        helper.make_node("MatMul", ["x", "down"], ["y"]),
        helper.make_node("Gemm", ["a", "up"], ["b"], transB=1),
    ]
    ids = rng.integers(-300, 300, (2, 3))
    x, a = (rng.standard_normal((2, rows)).astype(np.float32) for rows in (width, 96))
    feeds = {"ids": ids, "x": x, "a": a}
    wanted = {"rows": real["table"][ids], "y": x @ real["down"], "b": a @ real["up"].T}
    results = declared({name: want.astype(np.float32) for name, want in wanted.items()})
    graph = helper.make_graph(nodes, "g", declared(feeds), results, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    artifact = farrier.compile(model, verify=False, threads=1)
    for name, got in artifact.run(feeds).items():
        atol = 1e-5 * np.abs(wanted[name]).max()
        np.testing.assert_allclose(got, wanted[name], rtol=0, atol=atol)
    assert artifact.report["size"]["params_bytes"] <= 1.05 * stored


def test_kernels_for_a_token_and_for_a_prompt_read_the_same_weights():
    rng = np.random.default_rng(46)
    case = (4, 32, 60, 512, 160, np.float32, "packed", 0)
    node, infos, constants, feeds, wanted = one_product(rng, 0, *case)
    for info in infos:
        info.type.tensor_type.shape.dim[0].dim_param = "tokens"
    graph = helper.make_graph([node], "g", [infos[0]], [infos[1]], constants)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    typical, hot = {"tokens": 60}, [{"tokens": 1}]
    artifact = farrier.compile(model, verify=False, threads=1, typical=typical, hot=hot)
    (x,), (want,) = feeds.values(), wanted.values()
    for tokens in (1, 7, 60):
        (got,) = artifact.run({"x0": x[:tokens]}).values()
        atol = 1e-5 * np.abs(want).max()
        np.testing.assert_allclose(got, want[:tokens], rtol=0, atol=atol)
    stored = sum(len(constant.raw_data) for constant in constants)
    assert artifact.report["size"]["params_bytes"] <= 1.05 * stored


def test_no_matrix_of_floats_is_made_when_compiling():
    """numpy's memory at its peak, the model's own bytes left out, is below that of the floats."""
    rng, width, layers = np.random.default_rng(47), 1024, 3
    nodes, constants = [], []
    for layer in range(layers):
        packed = rng.integers(0, 256, (width, width // 32, 16), dtype=np.uint8)
        scales = np.ones(width * width // 32, np.float32)
        weights = {f"w{layer}": packed, f"s{layer}": scales}
        constants += [numpy_helper.from_array(array, name) for name, array in weights.items()]
        attrs = {"K": width, "N": width, "bits": 4, "block_size": 32}
        operands, results = [f"x{layer}", *weights], [f"x{layer + 1}"]
        nodes.append(
            helper.make_node("MatMulNBits", operands, results, domain="com.microsoft", **attrs)
        )
    x = np.zeros((1, width), np.float32)
    graph = helper.make_graph(nodes, "g", declared({"x0": x}), declared({"x3": x}), constants)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()
    farrier.compile(model, verify=False, threads=1)  # Later calls import no modules.
    tracemalloc.start()
    try:
        farrier.compile(model, verify=False, threads=1)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * layers * width * width
