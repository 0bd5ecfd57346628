"""Products in tile registers: which programs the rule takes, what its schedules mean."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from farrier.ir.parser import parse_ir
from farrier.ir.run_loops import run_loops
from farrier.ir.types import DType
from farrier.ir.verify_kernel import verify_function
from farrier.lower.loops import to_loops
from farrier.lower.region import lower_region
from farrier.ops import run_graph
from farrier.targets import host, parse_target
from farrier.targets.cpu.codegen.compile import assembly
from farrier.targets.cpu.codegen.emit import emit_function
from farrier.targets.cpu.rules import for_program, matrix_tile
from tests.intrinsics.written_out import written_out
from tests.lowering import final_loops
from tests.schedule.programs import (
    BF16,
    U8_I8,
    assert_same_result,
    conv_bias_relu,
    inputs_of,
    narrow_matmul,
    plus,
    real,
    relu,
    requantized,
    run,
)
from tests.targets.cpu.codegen.differential import run_compiled

EXTENSIONS = ("amx_bf16", "amx_int8", "amx_tile", "avx512_bf16", "avx512_vnni")
AMX = dataclasses.replace(parse_target("x86-64-v4"), features=EXTENSIONS)
NEON = parse_target("graviton3")
of_machines = pytest.mark.parametrize("machine", [AMX, NEON], ids=["AMX", "NEON"])
needs_amx = pytest.mark.skipif(
    not set(host().features) >= set(EXTENSIONS), reason="this machine has no AMX"
)
SHAPES = [(8, 16, 32), (19, 16, 32), (8, 32, 32)]
OPERANDS = {"bf16": BF16, "u8 and i8": U8_I8}
of_each = pytest.mark.parametrize("operands", OPERANDS.values(), ids=OPERANDS)
SMALL = {"channels": 16, "filters": 16, "size": 2}
CONVOLUTIONS = {
    "3x3": SMALL,
    "steps of two": {**SMALL, "size": 3, "stride": 2, "halo_out": 1},
    "one tap": {"channels": 48, "filters": 32, "size": 4, "kernel": 1, "padding": 0},
    "steps of one tap": {**SMALL, "size": 7, "kernel": 1, "padding": 0, "stride": 2},
    "prime": {**SMALL, "size": 5, "kernel": 1, "padding": 0},
    "dilated": {**SMALL, "padding": 2, "dilation": 2},
    "wide blocks": {**SMALL, "channels": 64, "filters": 32, "block": 32},
    "groups": {**SMALL, "channels": 32, "filters": 64, "groups": 2, "block": 16},
    "groups of two vectors": {
        "channels": 64,
        "filters": 64,
        "groups": 2,
        "block": 32,
        "size": 3,
        "kernel": 1,
        "padding": 0,
    },
    "planes": {**SMALL, "channels": 3, "size": 6, "kernel": 4, "stride": 2, "planar": True},
    "wide planes": {**SMALL, "channels": 3, "size": 10, "kernel": 8, "stride": 2, "planar": True},
}
NARROW = "planes", U8_I8  # Rows have 4 bytes, which vectors multiply as fast.
CASES = [(n, o) for n in CONVOLUTIONS for o in OPERANDS.values() if (n, o) != NARROW]
of_convolutions = pytest.mark.parametrize(("name", "operands"), CASES)


def twice(value):
    return plus(value, value)


def candidates(space, count=2):
    """Allowed decisions, spread over the space."""
    rows = space.candidates()
    step = max(len(rows) // count, 1)
    return [space.decisions(row) for row in rows[::-step][:count]]


@of_machines
@pytest.mark.parametrize(
    ("shape", "follow"), list(zip(SHAPES, [(), (twice,), (relu, twice)], strict=True))
)
def test_schedules_mean_the_product(machine, shape, follow):
    _assert_right(narrow_matmul(*shape, *follow), machine)


@of_machines
@pytest.mark.parametrize(
    ("shape", "follow"),
    [((8, 16, 64), ()), ((19, 16, 64), (requantized,)), ((8, 32, 24), (real, twice, relu))],
)
def test_schedules_mean_the_product_of_bytes(machine, shape, follow):
    _assert_right(narrow_matmul(*shape, *follow, operands=U8_I8), machine)


def _assert_right(program, machine):
    space = matrix_tile.space(program, machine, 2)
    for decisions in candidates(space):
        function = final_loops(space, decisions)
        verify_function(function)
        assert_same_result(written_out(function), program)


@of_machines
@of_convolutions
def test_schedules_mean_the_convolution(machine, name, operands):
    program = conv_bias_relu(**CONVOLUTIONS[name], operands=operands)
    space = matrix_tile.space(program, machine, 2)
    (decisions,) = candidates(space, 1)
    function = final_loops(space, decisions)
    verify_function(function)
    assert_same_result(written_out(function), program)


_LAYER = """@graph
def layer(x: u8[19, 64], w: i8[64, 32], b: i32[32], f: f32[1, 32], s: f32[()], z: u8[()]):
    product: i32[19, 32] = MatMul(x, w, accumulator='i32')
    sums: i32[19, 32] = Add(product, b)
    wide: f32[19, 32] = Cast(sums, to='f32')
    real: f32[19, 32] = Mul(wide, f)
    y: u8[19, 32] = QuantizeLinear(real, s, z, precision='f32', saturate=1, to='u8')
    return y
"""


def test_a_quantized_layer_is_one_kernel():
    """The operators after the product, up to the next layer's bytes, are computed from its
    totals."""
    graph = parse_ir(_LAYER)
    program = lower_region(graph, "layer", {"w", "b", "f", "s", "z"})
    space = for_program(program, AMX, 2)
    assert space.rule.name == "matrix_tile"
    rng = np.random.default_rng(2)
    inputs = {
        "x": rng.integers(0, 256, (19, 64)).astype(np.uint8),
        "w": rng.integers(-127, 128, (64, 32)).astype(np.int8),
        "b": rng.integers(-(10**5), 10**5, 32).astype(np.int32),
        "f": rng.uniform(1e-4, 3e-4, (1, 32)).astype(np.float32),
        "s": np.float32(0.125),
        "z": np.uint8(100),
    }
    function = final_loops(space, space.default())
    (actual,) = run_loops(written_out(function), inputs).values()
    (expected,) = run_graph(graph, inputs).values()
    assert len(np.unique(expected)) > 50
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(
    ("operands", "follow", "instruction"),
    [(BF16, relu, "tdpbf16ps"), (U8_I8, requantized, "tdpbusd")],
)
def test_totals_stay_in_tiles(operands, follow, instruction):
    """The loop over the reduction loads each operand tile once and moves no total."""
    program = narrow_matmul(64, 64, 256, follow, operands=operands)
    space = matrix_tile.space(program, AMX, 1)
    decisions = {"rows": 16, "high": 2, "wide": 2, "lines": 1, "order": 0, "prefetch": 0}
    text = assembly(emit_function(final_loops(space, decisions), AMX), AMX)
    loops = [part for part in re.split(r"^\.LBB", text, flags=re.MULTILINE) if instruction in part]
    (loop,) = (part.partition("\tj")[0] for part in loops)
    counts = [loop.count(name) for name in ("tileloadd", instruction, "tilestored", "tilezero")]
    assert counts == [4, 4, 0, 0]


@of_each
@pytest.mark.parametrize(
    "shape",
    [(1, 64, 64), (64, 24, 64), (64, 64, 38)],
    ids=["one row", "odd lanes", "odd depth"],
)
def test_other_extents_are_left_to_vectors(shape, operands):
    program = narrow_matmul(*shape, operands=operands)
    assert matrix_tile.space(program, AMX, 1) is None
    assert for_program(program, AMX, 1).rule.name == "register_tile"


@of_each
@pytest.mark.parametrize("lacks", ["amx_tile", "amx_bf16", "amx_int8"])
def test_targets_without_such_tiles_leave_them_to_vectors(lacks, operands):
    program = narrow_matmul(64, 64, 64, operands=operands)
    target = dataclasses.replace(AMX, features=tuple(f for f in EXTENSIONS if f != lacks))
    of_others = {BF16: "amx_int8", U8_I8: "amx_bf16"}[operands]
    assert (matrix_tile.space(program, target, 1) is None) == (lacks != of_others)


@pytest.mark.parametrize(
    "operands",
    [(DType.I8, DType.I8), (DType.I8, DType.U8), (DType.U8, DType.U8), (DType.I16, DType.I16)],
)
def test_other_operands_are_left_to_vectors(operands):
    assert matrix_tile.space(narrow_matmul(64, 64, 64, operands=operands), AMX, 1) is None


def test_planes_of_few_taps_are_left_to_vectors():
    name, operands = NARROW
    program = conv_bias_relu(**CONVOLUTIONS[name], operands=operands)
    assert matrix_tile.space(program, AMX, 1) is None


@pytest.mark.parametrize(
    ("layer", "wide"),
    [
        ({"filters": 96}, [1, 2, 3]),
        ({"filters": 96, "groups": 2}, [1, 3]),
        ({"filters": 64, "groups": 4}, [1]),
        ({"filters": 48, "block": 32}, [2]),
    ],
)
def test_panels_end_where_groups_do_and_fill_the_last_block(layer, wide):
    layer = {**SMALL, "channels": 64, "kernel": 1, "padding": 0, **layer}
    program = conv_bias_relu(**layer, operands=BF16)
    space = matrix_tile.space(program, AMX, 1)
    assert np.unique(space.columns(space.candidates())["wide"]).tolist() == wide
    _assert_right(program, AMX)


@pytest.mark.parametrize(
    "layer", [{"filters": 32, "groups": 4}, {"filters": 16, "block": 64}], ids=["groups", "blocks"]
)
def test_what_panels_do_not_cover_is_left_to_vectors(layer):
    program = conv_bias_relu(**{**SMALL, "channels": 64, **layer}, operands=BF16)
    assert matrix_tile.space(program, AMX, 1) is None


@needs_amx
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "shape", [(64, 32, 96), (45, 96, 32), (128, 192, 256), (197, 32, 48), (2, 16, 4)]
)
def test_compiled(shape, threads):
    program = narrow_matmul(*shape, relu)
    inputs = inputs_of(program)
    expected = inputs["x"].astype(np.float64) @ inputs["w"].astype(np.float64)
    _check(program, inputs, np.maximum(expected, 0), threads)


@needs_amx
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [(64, 32, 192), (45, 96, 64), (197, 32, 48), (2, 16, 8)])
def test_compiled_product_of_bytes(shape, threads):
    program = narrow_matmul(*shape, operands=U8_I8)
    inputs = inputs_of(program)
    expected = inputs["x"].astype(np.int64) @ inputs["w"].astype(np.int64)
    _check(program, inputs, expected, threads)


@needs_amx
@of_convolutions
def test_compiled_convolution(name, operands):
    program = conv_bias_relu(**CONVOLUTIONS[name], operands=operands)
    _check(program, inputs_of(program), run(to_loops(program), program)["y"], 2)


def _check(program, inputs, expected, threads):
    space = matrix_tile.space(program, host(), threads)
    for decisions in candidates(space):
        function = final_loops(space, decisions)
        actual = run_compiled(function, inputs, threads)["y"]
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-4)
