"""Products of integers accumulated in i32: exact, in register tiles, with and without dot products
of bytes."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import onnx
import onnx.reference
import pytest
from onnx import helper, numpy_helper

import farrier
from farrier.frontends.onnx.importer import import_model
from farrier.ir.expr import Binary, BinaryOp, Buffer, Cast, Const, Load, Var
from farrier.ir.loop import Block, For, Function, LoopKind, Store
from farrier.ir.parser import parse_ir
from farrier.ir.types import DType
from farrier.lower.region import lower_region
from farrier.passes import Settings
from farrier.targets import host, parse_target, why_not_here
from farrier.targets.cpu.codegen.compile import assembly
from farrier.targets.cpu.codegen.emit import emit_function
from farrier.targets.cpu.rules import for_program
from tests.lowering import final_loops
from tests.targets.cpu.codegen.differential import run_compiled
from tests.targets.cpu.codegen.emulated import needs_qemu, run_graph_emulated

RNG = np.random.default_rng(21)
AVX_VNNI = "i7-12700"
_MACHINE = parse_target(AVX_VNNI)
avx_vnni = pytest.param(
    AVX_VNNI,
    marks=pytest.mark.skipif(
        why_not_here(_MACHINE.arch, _MACHINE.cpu, _MACHINE.features) != "",
        reason="this machine has no AVX-VNNI",
    ),
)


def compiled(op, x, weights, target, **attrs):
    """The artifact of one node whose first input is not known ahead."""
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    initializers = [numpy_helper.from_array(a, f"w{i}") for i, a in enumerate(weights)]
    node = helper.make_node(op, ["x", *(f"w{i}" for i in range(len(weights)))], ["y"], **attrs)
    info = helper.make_tensor_value_info("x", kind, x.shape)
    graph = helper.make_graph([node], "g", [info], [onnx.ValueInfoProto(name="y")], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return farrier.compile(model, target=target, verify=False, threads=2)


def rules(artifact):
    return [kernel.rule for kernel in artifact.manifest.kernels]


def any_of(dtype, *shape):
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    return RNG.integers(low, high + 1, shape).astype(dtype)


@pytest.mark.parametrize("target", ["host", avx_vnni, "x86-64-v3", "x86-64-v2"])
@pytest.mark.parametrize("dtypes", [(np.uint8, np.int8), (np.int8, np.int8), (np.uint8, np.uint8)])
@pytest.mark.parametrize("shape", [(1, 64, 33), (13, 36, 48), (7, 37, 20), (5, 4, 128)])
def test_matrices(shape, dtypes, target):
    m, k, n = shape
    x, w = any_of(dtypes[0], m, k), any_of(dtypes[1], k, n)
    zeros = [any_of(dtypes[0]), any_of(dtypes[1])]
    for points in ([], [np.asarray(z) for z in zeros]):
        artifact = compiled("MatMulInteger", x, [w, *points], target)
        assert "register_tile" in rules(artifact)
        assert "sketch/serial" not in rules(artifact)
        a, b = x.astype(np.int32), w.astype(np.int32)
        if points:
            a, b = a - points[0], b - points[1]
        np.testing.assert_array_equal(artifact.run({"x": x})["y"], a @ b)


@pytest.mark.parametrize("target", ["host", avx_vnni, "x86-64-v3"])
@pytest.mark.parametrize("weights", [np.int8, np.uint8])
@pytest.mark.parametrize(("channels", "outputs", "group"), [(16, 32, 1), (20, 17, 1), (32, 32, 32)])
def test_convolutions(channels, outputs, group, weights, target):
    x, w = any_of(np.uint8, 1, channels, 9, 7), any_of(weights, outputs, channels // group, 3, 3)
    if weights is np.uint8:
        w = w // 2  # The weights less their zero point then fit in i8.
    point, centre = np.array(113, np.uint8), np.array(3 if weights is np.uint8 else 0, weights)
    options = {"pads": [1, 0, 1, 2], "strides": [1, 2], "group": group}
    artifact = compiled("ConvInteger", x, [w, point, centre], target, **options)
    assert not any(rule.startswith("sketch/") for rule in rules(artifact))
    padded = np.pad(x.astype(np.int64) - 113, [(0, 0), (0, 0), (1, 1), (0, 2)])
    centred = w.astype(np.int64) - centre
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, :, ::2]
    if group == 1:
        expected = np.einsum("ncyxij,ocij->noyx", windows, centred)
    else:
        expected = np.einsum("ncyxij,cij->ncyx", windows, centred[:, 0])
    np.testing.assert_array_equal(artifact.run({"x": x})["y"], expected)


@needs_qemu
@pytest.mark.parametrize(
    ("target", "cpu"),
    [("rpi4", "cortex-a72"), ("rpi5", "neoverse-n1"), ("graviton3", "max,sve=off")],
)
@pytest.mark.parametrize("weights", [np.int8, np.uint8])
def test_dynamically_quantized_matrices_on_aarch64(weights, target, cpu):
    """The integers are the model's, so the floats are as well, bit for bit."""
    rng = np.random.default_rng(3)
    x, w = rng.standard_normal((13, 64)).astype(np.float32), any_of(weights, 64, 48)
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("MatMulInteger", ["q", "w", "z", "wz"], ["total"]),
        helper.make_node("Cast", ["total"], ["sums"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Mul", ["sums", "s"], ["y"]),
    ]
    info = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, x.shape)
    weights_by_name = {"w": w, "wz": np.array(0 if weights is np.int8 else 131, weights)}
    constants = [numpy_helper.from_array(data, name) for name, data in weights_by_name.items()]
    graph = helper.make_graph(nodes, "g", [info], [onnx.ValueInfoProto(name="y")], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (expected,) = onnx.reference.ReferenceEvaluator(model).run(None, {"x": x})
    read = import_model(model.SerializeToString()).graph
    settings = Settings(parse_target(target), threads=1)
    (actual,) = run_graph_emulated(read, {read.inputs[0].name: x}, settings, cpu).values()
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("target", ["host", avx_vnni])
def test_sums_wrap_around(target):
    """ONNX leaves it open; nothing saturates on the way."""
    x, w = np.full((2, 1 << 17), 255, np.uint8), np.full((1 << 17, 16), 127, np.int8)
    actual = compiled("MatMulInteger", x, [w], target).run({"x": x})["y"]
    wrapped = np.array(255 * 127 * (1 << 17), np.int64).astype(np.int32)
    np.testing.assert_array_equal(actual, wrapped)


def product(target, left="i16", right="i16"):
    """The assembly text of a matrix product."""
    graph = parse_ir(f"""\
@graph
def g(x: {left}[48, 64], w: {right}[64, 48]):
    y: i32[48, 48] = MatMul(x, w, accumulator='i32')
    return y
""")
    program = lower_region(graph, "kernel", frozenset({"w"}))
    space = for_program(program, target, 1)
    return assembly(emit_function(final_loops(space, space.default()), target), target)


@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v4"])
def test_products_of_i16_are_added_as_they_come(level):
    """The canary of a hidden flag: additions of integers are associative, and LLVM would add a
    tile's products to one another until no register is left."""
    text = product(parse_target(level))
    added = re.findall(r"vpmaddwd\t.*, (%.mm\d+)\n(?:.*\n)?\tvpaddd\t.*\1.*", text)
    assert len(added) == text.count("vpmaddwd") >= 8
    assert "pmulld" not in text


def test_products_of_i16_are_added_at_once_where_the_machine_can():
    text = product(dataclasses.replace(parse_target("x86-64-v4"), features=("avx512_vnni",)))
    assert text.count("vpdpwssd") >= 8
    assert "vpmaddwd" not in text


@pytest.mark.parametrize(
    ("operands", "instruction"), [(("u8", "i8"), "vpdpbusd"), (("i16", "i16"), "vpdpwssd")]
)
def test_machines_with_avx_vnni_alone_use_its_encoding(operands, instruction):
    text = product(parse_target(AVX_VNNI), *operands)
    instructions = re.findall(rf"\{{vex\}}\t{instruction}\t%ymm\d+, %ymm\d+, %ymm\d+", text)
    assert len(instructions) == text.count(instruction) >= 8
    assert "vpmaddwd" not in text
    assert "zmm" not in text


def test_least_factors_wrap_around():
    """−2¹⁵ twice: the one sum of two products that i32 does not hold."""
    x, w = Buffer("x", DType.I16, (2,)), Buffer("w", DType.I16, (8, 2))
    out = Buffer("out", DType.I32, (8,))
    lane, pair = (Var("n"),), Var("k")
    factors = (Cast(DType.I32, Load(x, (pair,))), Cast(DType.I32, Load(w, (*lane, pair))))
    total = Binary(BinaryOp.ADD, Load(out, lane), Binary(BinaryOp.MUL, *factors))
    start = For("m", 8, LoopKind.VECTORIZED, Store(out, (Var("m"),), Const(1, DType.I32)))
    products = For("k", 2, LoopKind.DOT, Store(out, lane, total))
    nest = Block((start, For("n", 8, LoopKind.VECTORIZED, products)))
    least = np.iinfo(np.int16).min
    inputs = {"x": np.full(2, least, np.int16), "w": any_of(np.int16, 8, 2)}
    inputs["w"][3] = least
    for target in (host(), parse_target("x86-64-v3")):
        actual = run_compiled(Function("kernel", (x, w, out), nest), inputs, target=target)["out"]
        exact = inputs["w"].astype(np.int64) @ inputs["x"].astype(np.int64) + 1
        np.testing.assert_array_equal(actual, exact.astype(np.int32))
