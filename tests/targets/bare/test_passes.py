"""The passes that microcontrollers add to a CPU's."""

from __future__ import annotations

import dataclasses
import importlib
import json
import re

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import farrier
from farrier.errors import CompilerError, StackError
from farrier.frontends.builder import Declared, Source
from farrier.frontends.onnx.model.file import model_of
from farrier.ir.types import DType
from farrier.listing.rebuild import rebuild
from farrier.ops import run_graph
from farrier.ops.fixed_point import LARGEST_SUM
from farrier.options import CompileOptions
from farrier.pipeline import compile_model
from farrier.progress import Warned
from farrier.targets import parse_target
from farrier.targets.bare.boards import BOARDS
from farrier.targets.bare.cores import CORES
from farrier.targets.bare.part import BarePart
from farrier.targets.bare.passes.strips import in_patches, prefixes
from tests.targets.bare.test_models import needs_qemu

BOARD = "mps2-an386"
# The package has a function of the module's name.
bound_sums = importlib.import_module("farrier.targets.bare.passes.bound_sums")


def product(bias):
    """Return a product of bytes, whose sums are at most 4 · 127 · 128 and the bias, as bytes."""
    weights = np.full((4, 3), 127, np.int8)

    def build(b):
        (y,) = b.node("MatMul", ["x", b.constant(weights)], {"accumulator": "i32"}, origin="y")
        (total,) = b.node("Add", [y, b.constant(np.full(3, bias, np.int32))], origin="total")
        operands = [b.constant(np.array(value, np.int32)) for value in (1518500250, 15)]
        attrs = {"zero": -5, "low": -128, "high": 127, "to": "i8", "rounding": "twice"}
        (z,) = b.node("Requantize", [total, *operands], attrs, origin="z")
        b.output("z", z)

    return Source([Declared("x", DType.I8, (6, 4))], build)


@needs_qemu
@pytest.mark.parametrize("bias", [-7, LARGEST_SUM - 4 * 127 * 128, LARGEST_SUM, 2**31 - 1])
def test_sums_are_quantized_as_elsewhere_whether_they_are_small_or_not(bias):
    x = np.random.default_rng(0).integers(-128, 128, (6, 4)).astype(np.int8)
    here = farrier.compile(product(bias), verify=False).run({"x": x})["z"]
    there = farrier.compile(product(bias), target=BOARD, verify=False).run({"x": x})["z"]
    np.testing.assert_array_equal(here, there)


def windows(channels, group, stride, size):
    """Return a convolution of bytes with a border of a zero point, and its result as bytes."""
    rng = np.random.default_rng(1)
    per_group = channels // group
    weights = rng.integers(-128, 128, (8, per_group, 3, 3)).astype(np.int8)
    bias = rng.integers(-500, 500, 8).astype(np.int32)

    def build(b):
        pads = b.constant(np.array([0, 0, 1, 1, 0, 0, 1, 1]))
        value = b.constant(np.array(-7, np.int8))
        (padded,) = b.node("Pad", ["x", pads, value], {"mode": "constant"}, origin="padded")
        attrs = {"strides": (stride, stride), "group": group, "accumulator": "i32"}
        inputs = [padded, b.constant(weights), b.constant(bias)]
        (y,) = b.node("Conv", inputs, attrs, origin="y")
        operands = [b.constant(np.array(value, np.int32)) for value in (1518500250, 8)]
        attrs = {"zero": -5, "low": -128, "high": 127, "to": "i8", "rounding": "twice"}
        (z,) = b.node("Requantize", [y, *operands], attrs, origin="z")
        b.output("z", z)

    return Source([Declared("x", DType.I8, (1, channels, *size))], build)


@needs_qemu
@pytest.mark.parametrize(
    ("channels", "group", "stride", "size"),
    [
        (8, 1, 1, (7, 13)),
        (8, 8, 1, (11, 5)),
        (8, 8, 2, (9, 6)),
        (3, 1, 2, (16, 10)),
        (8, 1, 1, (1, 1)),
    ],
)
def test_convolutions_read_a_border_of_which_no_whole_copy_is_made(channels, group, stride, size):
    model = windows(channels, group, stride, size)
    x = np.random.default_rng(2).integers(-128, 128, (1, channels, *size)).astype(np.int8)
    expected = farrier.compile(model, verify=False).run({"x": x})["z"]
    artifact = farrier.compile(model, target=BOARD, verify=False)
    np.testing.assert_array_equal(artifact.run({"x": x})["z"], expected)
    part = BarePart.of_json(artifact.manifest.backend)
    if stride == 1:  # Channels become the last axis of blocks before, and the first axis behind.
        assert part.arena.nbytes <= 2 * (whole(x.nbytes) + whole(expected.nbytes))


def shortcut():
    """Return the sum of two convolutions of bytes, each scaled in 32 bits, as a byte again."""
    rng = np.random.default_rng(3)
    bytes_of = {"zero": -5, "low": -128, "high": 127, "to": "i8", "rounding": "twice"}
    words_of = {**bytes_of, "zero": 0, "low": -(2**31), "high": 2**31 - 1, "to": "i32"}

    def requantized(b, x, factor, attrs):
        operands = [b.constant(np.array(value, np.int32)) for value in factor]
        return b.node("Requantize", [x, *operands], attrs, origin="z")[0]

    def scaled(b, kernel):
        weights = rng.integers(-128, 128, (16, 16, kernel, kernel)).astype(np.int8)
        attrs = {"accumulator": "i32", "pads": (kernel // 2,) * 4}
        (y,) = b.node("Conv", ["x", b.constant(weights)], attrs, origin="y")
        (wide,) = b.node(
            "Cast", [requantized(b, y, (1518500250, 8), bytes_of)], {"to": "i32"}, origin="w"
        )
        (high,) = b.node("Mul", [wide, b.constant(np.array(1 << 12, np.int32))], {}, origin="h")
        return requantized(b, high, (1518500250, 1), words_of)

    def build(b):
        rng.bit_generator.state = np.random.default_rng(3).bit_generator.state
        (total,) = b.node("Add", [scaled(b, 3), scaled(b, 1)], {}, origin="t")
        b.output("z", requantized(b, total, (1518500250, 12), bytes_of))

    return Source([Declared("x", DType.I8, (1, 16, 8, 8))], build)


@needs_qemu
def test_a_sum_reads_bytes_that_another_kernel_computes():
    x = np.random.default_rng(4).integers(-128, 128, (1, 16, 8, 8)).astype(np.int8)
    expected = farrier.compile(shortcut(), verify=False).run({"x": x})["z"]
    artifact = farrier.compile(shortcut(), target=BOARD, verify=False)
    np.testing.assert_array_equal(artifact.run({"x": x})["z"], expected)
    part = BarePart.of_json(artifact.manifest.backend)
    assert part.arena.nbytes < 5 * x.nbytes  # The words of one operand would be four images alone.


def whole(nbytes):
    return -(-nbytes // 64) * 64


def dead_channels(depthwise):
    """Return a convolution some of whose channels have weights of 0, or results beyond a byte, with
    the huge biases and shifts of a tiny scale."""
    rng = np.random.default_rng(3)
    weights = rng.integers(-128, 128, (8, 1 if depthwise else 8, 3, 3)).astype(np.int8)
    weights[:4] = 0
    bias = np.array([1 << 30, -(1 << 30), -(1 << 29), 77, 1 << 24, -(1 << 24), 5, -5], np.int32)
    multiplier = np.array([1 << 30, 1518500250] * 4, np.int32).reshape(8, 1, 1)
    right = np.array([27, 25, 31, 0, 9, 9, 9, 9], np.int32).reshape(8, 1, 1)

    def build(b):
        attrs = {"group": 8 if depthwise else 1, "accumulator": "i32"}
        (y,) = b.node("Conv", ["x", b.constant(weights), b.constant(bias)], attrs, origin="y")
        attrs = {"zero": -5, "low": -128, "high": 127, "to": "i8", "rounding": "twice"}
        operands = [b.constant(multiplier), b.constant(right)]
        (z,) = b.node("Requantize", [y, *operands], attrs, origin="z")
        b.output("z", z)

    return Source([Declared("x", DType.I8, (1, 8, 5, 7))], build)


@needs_qemu
@pytest.mark.parametrize("depthwise", [False, True])
def test_channels_that_no_input_changes_keep_their_values(depthwise, monkeypatch):
    small = []
    monkeypatch.setattr(bound_sums, "_stated", spied(bound_sums._stated, small))
    model = dead_channels(depthwise)
    x = np.random.default_rng(4).integers(-128, 128, (1, 8, 5, 7)).astype(np.int8)
    expected = farrier.compile(model, verify=False).run({"x": x})["z"]
    artifact = farrier.compile(model, target=BOARD, verify=False)
    np.testing.assert_array_equal(artifact.run({"x": x})["z"], expected)
    assert (np.ptp(expected, axis=(0, 2, 3)) == 0).tolist() == [True] * 6 + [False] * 2
    assert len(set(expected[0, :6, 0, 0].tolist())) > 3
    assert any(node.attr("is_small") for node in small)


def spied(stated, results):
    def call(node, rewriter):
        results.append(stated(node, rewriter))
        return results[-1]

    return call


@needs_qemu
def test_a_kernel_has_less_code_where_flash_is_scarce(monkeypatch):
    """Columns of 24 divide into tiles of 4, and not of 5, whose last tile is code of its own."""

    def code_bytes(weight):
        core = dataclasses.replace(CORES["cortex-m4"], code_weight=weight)
        monkeypatch.setitem(CORES, "cortex-m4", core)
        artifact = farrier.compile(windows(8, 8, 1, (24, 24)), target=BOARD, verify=False)
        return len(artifact.code.objects[0].content)

    assert code_bytes(5e-5) < 0.9 * code_bytes(0.0)


@pytest.mark.parametrize("core", ["cortex-m4", "rv32imac"])
def test_code_weighs_more_in_a_model_of_more_kernels(core):
    board = next(name for name, board in BOARDS.items() if board.core == core)
    target = parse_target(board)
    weights = [target.for_kernels(count).code_weight for count in (1, 30)]
    assert weights == [CORES[core].code_weight, 30 * CORES[core].code_weight]


def images(height, width):
    """Return convolutions of bytes with a shortcut, whose images shrink and whose last layer takes
    all columns of a line together."""
    rng = np.random.default_rng(7)

    def build(b):
        def scaled(value, weights, **attrs):
            border = b.constant(np.array([0, 0, 1, 1, 0, 0, 1, 1]))
            fill = b.constant(np.array(-7, np.int8))
            (value,) = b.node("Pad", [value, border, fill], {}, origin="border")
            operands = [value, b.constant(weights.astype(np.int8))]
            (y,) = b.node("Conv", operands, {"accumulator": "i32", **attrs}, origin="sums")
            operands = [b.constant(np.array(value, np.int32)) for value in (1518500250, 8)]
            attrs = {"zero": -7, "low": -128, "high": 127, "to": "i8", "rounding": "twice"}
            return b.node("Requantize", [y, *operands], attrs, origin="scaled")[0]

        rng.bit_generator.state = np.random.default_rng(7).bit_generator.state
        first = scaled("x", rng.integers(-128, 128, (16, 3, 3, 3)))
        second = scaled(first, rng.integers(-128, 128, (16, 1, 3, 3)), group=16)
        (larger,) = b.node("Max", [first, second], {}, origin="larger")
        last = scaled(larger, rng.integers(-128, 128, (8, 16, 3, 3)), strides=(2, 2))
        (y,) = b.node("MaxPool", [last], {"kernel_shape": (3, 3)}, origin="y")
        b.output("y", y)

    return Source([Declared("x", DType.I8, (1, 3, height, width))], build)


@pytest.mark.parametrize(("height", "width"), [(12, 8), (13, 7), (9, 5)])
def test_layers_in_patches_compute_what_they_compute_whole(height, width):
    """All layers at which patches can end, and all numbers of patches: also of lines that do not
    divide, with borders at both ends."""
    graph = images(height, width).imported({}, (), {}).graph
    x = np.random.default_rng(1).integers(-128, 128, (1, 3, height, width)).astype(np.int8)
    inputs = {graph.inputs[0].name: x}
    expected = run_graph(graph, inputs)
    ends = list(prefixes(graph))
    assert {node.op for node in ends[-1].nodes} == {"Pad", "Conv", "Requantize", "Max", "MaxPool"}
    for prefix in ends:
        for count in range(2, prefix.height + 1):
            outcome = run_graph(in_patches(graph, prefix, count), inputs)
            for name, array in expected.items():
                np.testing.assert_array_equal(outcome[name], array)


def board_with(ram_bytes):
    """Return the description of a board with this much RAM."""
    board = parse_target(BOARD).backend.machines[BOARD].description
    return json.dumps(dataclasses.asdict(dataclasses.replace(board, memory_bytes=ram_bytes)))


@pytest.mark.long
@needs_qemu
def test_a_model_is_computed_in_patches_only_if_it_does_not_fit_otherwise():
    model = images(64, 24)
    x = np.random.default_rng(2).integers(-128, 128, (1, 3, 64, 24)).astype(np.int8)
    expected = farrier.compile(model, verify=False).run({"x": x})["y"]
    whole = farrier.compile(model, target=board_with(100 << 10), verify=False)
    part = BarePart.of_json(whole.manifest.backend)
    assert part.notes == ()
    artifact = farrier.compile(model, target=board_with(20 << 10), verify=False)
    np.testing.assert_array_equal(artifact.run({"x": x})["y"], expected)
    [note] = [note for note in artifact.export().notes if note.startswith("patches:")]
    counted = re.search(r"in (\d+) patches of .* ([\d,]+) bytes of RAM instead of ([\d,]+)", note)
    count, after, before = (int(number.replace(",", "")) for number in counted.groups())
    assert count > 1
    assert before == part.arena.nbytes
    assert after == BarePart.of_json(artifact.manifest.backend).arena.nbytes <= 16 << 10
    with pytest.raises(CompilerError, match="more than the board has, even with its first layers"):
        farrier.compile(model, target=board_with(8 << 10), verify=False)


@pytest.mark.long
@needs_qemu
def test_a_model_for_whose_stack_no_ram_is_left_is_refused():
    """A model whose only image has one line cannot be computed in patches."""
    model = windows(8, 1, 1, (1, 24))
    part = BarePart.of_json(farrier.compile(model, target=BOARD, verify=False).manifest.backend)
    with pytest.raises(StackError, match=r"more than the board has, [\d,]+ of them for the stack"):
        farrier.compile(model, target=board_with(part.arena.nbytes + 256), verify=False)
    farrier.compile(model, target=board_with(part.arena.nbytes + 4096), verify=False)


def shrinking():
    """Return an ONNX model of two convolutions of bytes, with the larger image between them."""
    rng = np.random.default_rng(5)
    constants = {"scale": np.float32(0.1), "zero": np.int8(-3), "none": np.int8(0)}
    for name, shape in {"v": (16, 3, 3, 3), "w": (8, 16, 3, 3)}.items():
        constants[name] = rng.integers(-128, 128, shape).astype(np.int8)

    def convolution(x, weights, y, **attrs):
        operands = [x, "scale", "zero", weights, "scale", "none", "scale", "zero"]
        return helper.make_node("QLinearConv", operands, [y], pads=[1] * 4, **attrs)

    nodes = [convolution("x", "v", "large"), convolution("large", "w", "y", strides=[2, 2])]
    x = helper.make_tensor_value_info("x", TensorProto.INT8, (1, 3, 64, 24))
    y = helper.make_tensor_value_info("y", TensorProto.INT8, (1, 8, 32, 12))
    arrays = [numpy_helper.from_array(np.array(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "shrinking", [x], [y], arrays)
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


@pytest.mark.long
@needs_qemu
def test_a_model_for_whose_stack_no_ram_is_left_is_computed_in_patches():
    """The stack is in the artifact, so that the same code can be compiled from it again."""
    model = shrinking()
    whole = farrier.compile(model, target=BOARD, verify=False)
    arena = BarePart.of_json(whole.manifest.backend).arena.nbytes
    board = board_with(arena + 256)
    messages = []
    options = CompileOptions(target=board, verify=False)
    artifact = compile_model(model, options, listener=messages.append)
    warnings = [event.message for event in messages if isinstance(event, Warned)]
    assert [message for message in warnings if message.endswith("; it is compiled again")]
    part = BarePart.of_json(artifact.manifest.backend)
    [note] = part.notes
    assert "are computed in 2 patches" in note
    assert part.arena.nbytes < arena
    x = np.random.default_rng(6).integers(-128, 128, (1, 3, 64, 24)).astype(np.int8)
    np.testing.assert_array_equal(artifact.run({"x": x})["y"], whole.run({"x": x})["y"])
    assert artifact.schedules[0].stack_bytes > 256
    rebuilt, _ = rebuild(model_of(model), options, artifact, lambda _: None)
    assert rebuilt.is_same
