"""Microcontrollers: models are right on emulated boards, and C programs can call them."""

from __future__ import annotations

import re
import struct

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import farrier
from bench import models
from bench.compare import difference
from farrier.errors import CompilerError, UsageError
from farrier.llvm import zig
from farrier.targets import parse_target, why_not_here
from farrier.targets.bare.boards import BOARDS, emulated_board
from farrier.targets.bare.cores import CORES
from farrier.targets.bare.elf import loaded, sections_of, undefined_symbols
from farrier.targets.bare.emulation import BoardError, EmulatedBoard
from farrier.targets.bare.linking import library
from farrier.targets.bare.part import BarePart
from farrier.targets.c_header import identifier

EMULATED = [name for name, board in BOARDS.items() if board.emulator is not None]


def lacks(board):
    target = parse_target(board)
    return why_not_here(target.arch, target.cpu, target.features)


needs_qemu = pytest.mark.skipif(
    bool(lacks("mps2-an386")), reason=f"the emulator of boards: {lacks('mps2-an386')}"
)


def reference(model, inputs):
    import onnxruntime

    return onnxruntime.InferenceSession(model).run(None, inputs)


@pytest.fixture(scope="module")
def quantized():
    floats = models.build("mobilenet_v2", size=16, stages=2, classes=10)
    rng = np.random.default_rng(0)
    samples = [{"x": rng.standard_normal((1, 3, 16, 16), np.float32)} for _ in range(2)]
    return models.statically(floats, samples), samples


@pytest.mark.long
@pytest.mark.parametrize("board", EMULATED)
def test_a_quantized_model_equals_the_reference_on_every_emulated_core(quantized, board):
    if why := lacks(board):
        pytest.skip(why)
    model, samples = quantized
    artifact = farrier.compile(model, target=board, verify=False)
    has_vectors = "mve" in CORES[BOARDS[board].core].extensions
    factors = "i8 i8 i32" if has_vectors else "u8 i8 i32"
    assert any(kernel.factors == factors for kernel in artifact.manifest.kernels)
    (expected,) = reference(model, samples[1])
    (outcome,) = artifact.run(samples[1]).values()
    step = np.diff(np.unique(expected)).min()
    assert np.abs(outcome - expected).max() <= 1.01 * step


@needs_qemu
def test_a_verified_model_of_floats_is_right():
    model = models.build("mobilenet_v2", size=16, stages=1, classes=5)
    artifact = farrier.compile(model, target="mps2-an386")
    assert artifact.report["verification"]["device"].startswith("qemu")
    inputs = {"x": np.random.default_rng(1).standard_normal((1, 3, 16, 16), np.float32)}
    (name,) = (spec.name for spec in artifact.manifest.outputs)
    expected = {name: reference(model, inputs)[0]}
    assert difference(artifact.run(inputs), expected) < 1e-5


def integer_products():
    """Products of i8 whose sums are groups of 16, 8 or 4 bytes, or of none of these, by one row and
    several, for whole vectors of results and others; and a padded convolution of each kind."""
    rng = np.random.default_rng(3)
    nodes, constants, inputs, outputs = [], [], {}, []

    def constant(name, values):
        constants.append(numpy_helper.from_array(values, name))
        return name

    def random(*shape):
        return rng.integers(-128, 128, shape).astype(np.int8)

    for rows, depth, columns in [(5, 80, 8), (3, 24, 4), (2, 20, 12), (7, 7, 5), (1, 33, 3)]:
        name = f"m{depth}"
        inputs[f"{name}_x"] = random(rows, depth)
        nodes.append(helper.make_node(
            "MatMulInteger", [f"{name}_x", constant(f"{name}_w", random(depth, columns))], [name]
        ))  # fmt: skip
        outputs.append(helper.make_tensor_value_info(name, TensorProto.INT32, (rows, columns)))
    scale, zero = constant("scale", np.float32(0.01)), constant("zero", np.int8(-3))
    none = constant("none", np.int8(0))
    for channels, filters in [(16, 8), (8, 12), (3, 7)]:
        name = f"c{channels}"
        inputs[f"{name}_x"] = random(1, channels, 5, 7)
        weights = constant(f"{name}_w", random(filters, channels, 3, 3))
        wanted = constant(f"{name}_scale", np.float32(0.7))
        operands = [f"{name}_x", scale, zero, weights, scale, none, wanted, zero]
        nodes.append(helper.make_node("QLinearConv", operands, [name], pads=[1] * 4))
        outputs.append(helper.make_tensor_value_info(name, TensorProto.INT8, (1, filters, 5, 7)))
    declared = [
        helper.make_tensor_value_info(name, TensorProto.INT8, x.shape) for name, x in inputs.items()
    ]
    graph = helper.make_graph(nodes, "products", declared, outputs, constants)
    opsets = [helper.make_opsetid("", 18)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    return model, inputs


@pytest.mark.parametrize("board", ["mps2-an386", "mps3-an547"])
def test_products_of_bytes_are_right_for_every_length_of_a_sum(board):
    if why := lacks(board):
        pytest.skip(why)
    model, inputs = integer_products()
    artifact = farrier.compile(model, target=board, verify=False)
    rules = [kernel.rule for kernel in artifact.manifest.kernels]
    has_vectors = "mve" in CORES[BOARDS[board].core].extensions
    assert rules.count("matrix_tile") == (5 if has_vectors else 0)
    outcome = artifact.run(inputs)
    for name, expected in zip(outcome, reference(model, inputs), strict=True):
        assert np.unique(expected).size > 2
        # A convolution's result is rounded once here, and may lie on a tie there.
        np.testing.assert_allclose(outcome[name], expected, atol=name[0] == "c", err_msg=name)


def functions():
    """Each function of floats, rounding among them, and integers of 64 bits that are divided."""
    unary = ("Exp", "Log", "Tanh", "Sigmoid", "Sqrt", "Floor", "Ceil", "Round", "Erf", "Sign")
    nodes = [helper.make_node(op, ["x"], [op]) for op in unary]
    nodes.append(helper.make_node("Div", ["i", "j"], ["quotient"]))
    nodes.append(helper.make_node("Mod", ["i", "j"], ["rest"]))
    outputs = [helper.make_tensor_value_info(op, TensorProto.FLOAT, (41,)) for op in unary]
    outputs += [
        helper.make_tensor_value_info(name, TensorProto.INT64, (5,))
        for name in ("quotient", "rest")
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (41,))]
    inputs += [helper.make_tensor_value_info(name, TensorProto.INT64, (5,)) for name in "ij"]
    graph = helper.make_graph(nodes, "functions", inputs, outputs)
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


BOARDS_OF_FUNCTIONS = ("qemu-m0", "mps2-an385", "mps2-an386", "mps3-an547", "qemu-rv32imac")


@pytest.mark.parametrize("board", BOARDS_OF_FUNCTIONS)
def test_what_a_core_has_no_instruction_for_is_right(board):
    if why := lacks(board):
        pytest.skip(why)
    model = functions()
    artifact = farrier.compile(model, target=board, verify=False)
    x = np.concatenate([np.linspace(0.01, 9, 34), [0.5, 1.5, 2.5, 1e-30, 3e9, np.inf, np.nan]])
    inputs = {
        "x": x.astype(np.float32),
        "i": np.array([7, -7, 2**40 + 5, -(2**62), 0]),
        "j": np.array([2, 2, -3, 2**33, 9]),
    }
    outcome = artifact.run(inputs)
    for name, expected in zip(outcome, reference(model, inputs), strict=True):
        np.testing.assert_allclose(outcome[name], expected, rtol=2e-6, atol=1e-30, err_msg=name)


@needs_qemu
def test_floats_are_rounded_to_bytes_as_the_model_states():
    """Ties, values beyond all integers, infinity and NaN, with a zero point and without one."""
    kinds = {"u8": (np.uint8, 3), "i8": (np.int8, -5), "i16": (np.int16, 0), "plain": (np.uint8, 0)}
    nodes, constants = [], [numpy_helper.from_array(np.array(0.5, np.float32), "s")]
    outputs = []
    for name, (dtype, zero) in kinds.items():
        constants.append(numpy_helper.from_array(np.array(zero, dtype), f"{name}_zero"))
        nodes.append(helper.make_node("QuantizeLinear", ["x", "s", f"{name}_zero"], [name]))
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        outputs.append(helper.make_tensor_value_info(name, kind, (64,)))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (64,))
    graph = helper.make_graph(nodes, "rounding", [x], outputs, constants)
    opsets = [helper.make_opsetid("", 21)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    values = np.concatenate([np.arange(-14, 44) / 4, [1e9, -1e9, np.inf, -np.inf, 3e38, 66.25]])
    inputs = {"x": values.astype(np.float32)}
    artifact = farrier.compile(model, target="mps2-an386", verify=False)
    outcome = artifact.run(inputs)
    for name, expected in zip(outcome, reference(model, inputs), strict=True):
        np.testing.assert_array_equal(outcome[name], expected, err_msg=name)
    unknown = {"x": np.full(64, np.nan, np.float32)}
    there = artifact.run(unknown)
    for name, expected in farrier.compile(model, verify=False).run(unknown).items():
        np.testing.assert_array_equal(there[name], expected, err_msg=name)


@needs_qemu
def test_a_c_program_runs_the_library_that_is_exported(tmp_path, quantized):
    """The example that comes with it compiles, and two models fit into one program."""
    model, _ = quantized
    artifact = farrier.compile(model, target="mps2-an386", verify=False)
    exported = artifact.export(name="first")
    assert [note.split(":")[0] for note in exported.notes] == ["flash", "RAM", "stack"]
    assert set(exported.files) == {"libfirst.a", "first.h", "main.c"}
    floats = models.build("mobilenet_v2", size=16, stages=1, classes=5)
    other = farrier.compile(floats, target="mps2-an386", verify=False)
    for files in (other.export(name="second").files, exported.files):
        for name, content in files.items():
            (tmp_path / name).write_bytes(content)
    (tmp_path / "both.c").write_text(
        '#include "first.h"\n#include "second.h"\n'
        "int both(void *arena) { return first_run(arena) + second_run(arena) "
        "+ (first_input_x(arena) == (float *)arena) + !first_output_logits(arena); }\n"
    )
    flags = ["-target", "thumb-freestanding-eabi", "-mcpu=cortex_m4", "-Werror"]
    flags += ["-Wall", "-fno-sanitize=all"]
    for source in ("main.c", "both.c"):
        zig.run(["cc", *flags, "-c", source, "-o", f"{source}.o"], tmp_path, f"{source} fails")
    words = ["ld.lld", "-e", "both", "both.c.o", "libfirst.a", "libsecond.a", "-o", "program"]
    zig.run(words, tmp_path, "two models in one program fail")


@needs_qemu
def test_the_memory_that_is_told_is_that_of_the_program(quantized):
    model, samples = quantized
    artifact = farrier.compile(model, target="mps2-an386", verify=False)
    part = BarePart.of_json(artifact.manifest.backend)
    [code] = artifact.code.objects
    params = bytes(artifact.members.get("params.bin", b"")) or bytes(artifact.params)
    joined = library(part, code.content, params)
    assert undefined_symbols(joined) == []
    sizes = sections_of(joined)
    assert sizes.ram_bytes == 0
    assert part.params < sizes.flash_bytes < part.params + (24 << 10)
    board = EmulatedBoard.of(part, code.content, params)
    outcome = board.run([samples[0]["x"].tobytes()])
    assert outcome.code == 0
    assert 0 < outcome.stack_bytes < 4096
    assert outcome.instructions > 100_000


@needs_qemu
def test_a_board_that_faults_is_told(quantized):
    model, samples = quantized
    artifact = farrier.compile(model, target="mps2-an386", verify=False)
    part = BarePart.of_json(artifact.manifest.backend)
    board = EmulatedBoard.of(part, artifact.code.objects[0].content, bytes(artifact.params))
    board._program = board._program.replace(b"inputs\0", b"nothin\0")
    with pytest.raises(BoardError, match="ended with code 3"):
        board.run([samples[0]["x"].tobytes()])


def test_a_model_that_does_not_fit_says_what_it_needs_before_anything_is_flashed():
    """The error names the layers that take the most RAM and flash, and what would help."""
    model = models.build("mobilenet_v2", size=64, stages=2)
    with pytest.raises(CompilerError, match="does not fit stm32f411") as caught:
        farrier.compile(model, target="stm32f411", verify=False)
    lacks = r"needs ([\d,]+) bytes of {}, ([\d,]+) more than the board has \({} (\w+)"
    for memory, at, layer, there in (
        ("RAM", "at layer", "Conv_", 128 << 10),
        ("flash", "layer", "Gemm_", 512 << 10),
    ):
        pattern = lacks.format(memory, at).replace("needs", "(?:needs|and)")
        needed, excess, name = re.search(pattern, str(caught.value)).groups()
        assert int(needed.replace(",", "")) - int(excess.replace(",", "")) == there
        assert name.startswith(layer)
    assert "reads 24,576 bytes and writes 1,310,720" in str(caught.value)
    assert "quantize it to int8" in caught.value.hint
    assert "no board in `farrier targets` has that much" in caught.value.hint


def test_open_sizes_are_refused_by_name():
    model = models.build("bert_base", layers=1, width=32, heads=2, vocabulary=50, tokens="tokens")
    with pytest.raises(UsageError, match=r"are open \(tokens\)"):
        farrier.compile(model, target="mps2-an386", verify=False)


def test_a_board_that_the_model_is_not_for_is_refused(quantized):
    artifact = farrier.compile(quantized[0], target="nrf52840", verify=False)
    with pytest.raises(UsageError, match="compiled for cortex-m4, and esp32-c3 is named"):
        artifact.export("elf", "esp32-c3")
    with pytest.raises(UsageError, match="no form 'elf2'"):
        artifact.export("elf2")
    assert list(artifact.export("elf", "nrf52840").files) == ["model.elf"]


def test_a_board_with_a_disk_takes_its_program_as_a_file_of_blocks(quantized):
    artifact = farrier.compile(quantized[0], target="rp2350", verify=False)
    [program] = artifact.export("elf", "rp2350").files.values()
    exported = artifact.export("uf2", "rp2350")
    [blocks] = exported.files.values()
    assert "a debugger that serves semihosting" in exported.notes[-1]
    memory, count = {}, len(blocks) // 512
    for number in range(count):
        block = blocks[512 * number : 512 * (number + 1)]
        *magic, flags, address, size, index, total, family = struct.unpack_from("<8I", block)
        assert (magic, block[-4:]) == ([0x0A324655, 0x9E5D5157], b"\x30\x6f\xb1\x0a")
        assert (flags, size, index, total, family) == (0x2000, 256, number, count, 0xE48BFF59)
        memory |= {address + at: byte for at, byte in enumerate(block[32 : 32 + size])}
    for address, content in loaded(program):
        assert bytes(memory[address + at] for at in range(len(content))) == content
    first = bytes(memory[0x1000_0000 + at] for at in range(4096))
    start = first.index(struct.pack("<I", 0xFFFFDED3))  # The loader looks for it in 4 KB.
    assert start % 4 == 0
    assert first[start + 16 : start + 20] == struct.pack("<I", 0xAB123579)
    with pytest.raises(UsageError, match="mps2-an505 takes no UF2 file"):
        artifact.export("uf2", "mps2-an505")


def test_every_board_has_a_core_and_every_core_an_emulator():
    for name, board in BOARDS.items():
        assert parse_target(name).tune == board.core
    assert {emulated_board(core).core for core in CORES.values()} == set(CORES)


def test_other_machines_are_not_exported():
    model = models.build("mobilenet_v2", size=16, stages=1, classes=5)
    artifact = farrier.compile(model, target="webgpu", verify=False)
    with pytest.raises(UsageError, match="is exported"):
        artifact.export()


@pytest.mark.parametrize(
    ("text", "word"),
    [("My model-1", "my_model_1"), ("3d", "m_3d"), ("été", "t"), ("/a/b.0", "a_b_0"), ("", "m")],
)
def test_names_become_identifiers(text, word):
    assert identifier(text) == word


@pytest.mark.long
@needs_qemu
def test_kernels_are_tuned_by_the_instructions_that_the_board_counts():
    weights = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (6, 16))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (6, 8))],
        [numpy_helper.from_array(weights, "w")],
    )
    opsets = [helper.make_opsetid("", 18)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    artifact = farrier.compile(model, target="mps2-an386", trials=3)
    [kernel] = artifact.manifest.kernels
    assert kernel.source == "tuned"
    assert kernel.measured_us > 0
    assert artifact.report["verification"]["device"].startswith("qemu")
