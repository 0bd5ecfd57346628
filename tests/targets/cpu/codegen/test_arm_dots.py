"""Dot products and products of tiles of aarch64: what they compute, and by which instructions."""

from __future__ import annotations

import re

import numpy as np
import pytest

from bench.models import build
from farrier.errors import UsageError
from farrier.ir.expr import Binary, BinaryOp, Buffer, Cast, Const, Load, Var
from farrier.ir.loop import Block, For, Function, LoopKind, Store
from farrier.ir.parser import parse_ir
from farrier.ir.run_loops import run_loops
from farrier.ir.types import DType
from farrier.lower.region import lower_region
from farrier.options import CompileOptions
from farrier.options.precision import Precision
from farrier.pipeline import compile_model
from farrier.targets import parse_target
from farrier.targets.cpu.codegen.compile import assembly
from farrier.targets.cpu.codegen.emit import emit_function
from farrier.targets.cpu.rules import for_program, register_tile
from tests.lowering import final_loops
from tests.targets.cpu.codegen.emulated import needs_qemu, run_emulated

# The factors' dtypes, a target, the processor of qemu that has no more than it, the instruction.
PRODUCTS = {
    "sdot": (DType.I8, DType.I8, "rpi5", "neoverse-n1", "sdot"),
    "udot": (DType.U8, DType.U8, "rpi5", "neoverse-n1", "udot"),
    "usdot": (DType.U8, DType.I8, "graviton3", "max,sve=off", "sudot"),
}
products = pytest.mark.parametrize(
    ("left", "right", "target", "cpu", "instruction"), PRODUCTS.values(), ids=PRODUCTS
)


def any_of(dtype, rng, *shape):
    """Random integers, the least and the greatest among them."""
    low, high = dtype.limits
    actual = rng.integers(low, high + 1, shape)
    return np.where(rng.random(shape) < 0.2, rng.choice([low, high], shape), actual).astype(
        dtype.numpy
    )


def space_of(left, right, m, k, n, target, rule=for_program):
    total = "i32" if left.is_integer else "f32"
    graph = parse_ir(f"""\
@graph
def g(x: {left}[{m}, {k}], w: {right}[{k}, {n}]):
    y: {total}[{m}, {n}] = MatMul(x, w, accumulator='{total}')
    return y
""")
    code = parse_target(target)
    return rule(lower_region(graph, "kernel", frozenset({"w"})), code, 1)


@needs_qemu
@products
@pytest.mark.parametrize("lanes", [2, 4])
def test_a_group_of_each_lane(left, right, target, cpu, instruction, lanes):
    x, w = Buffer("x", left, (4,)), Buffer("w", right, (lanes, 4))
    out = Buffer("out", DType.I32, (lanes,))
    lane, step = Var("n"), Var("g")
    factors = (Cast(DType.I32, Load(x, (step,))), Cast(DType.I32, Load(w, (lane, step))))
    total = Binary(BinaryOp.ADD, Load(out, (lane,)), Binary(BinaryOp.MUL, *factors))
    dot = For("g", 4, LoopKind.DOT, Store(out, (lane,), total))
    start = Store(out, (Var("m"),), Const(-5, DType.I32))
    kind = LoopKind.VECTORIZED
    nest = Block((For("m", lanes, kind, start), For("n", lanes, kind, dot)))
    function, rng = Function("kernel", (x, w, out), nest), np.random.default_rng(lanes)
    code = parse_target(target)
    assert instruction in assembly(emit_function(function, code), code)
    inputs = {"x": any_of(left, rng, 4), "w": any_of(right, rng, lanes, 4)}
    expected = run_loops(function, inputs)["out"]
    np.testing.assert_array_equal(run_emulated(function, inputs, code, cpu)["out"], expected)


@needs_qemu
@products
@pytest.mark.parametrize("shape", [(13, 36, 48), (7, 64, 20), (5, 4, 33), (1, 96, 16)])
def test_matrices(left, right, target, cpu, instruction, shape):
    """The first schedule and some others, each exact."""
    m, k, n = shape
    space = space_of(left, right, *shape, target, register_tile.space)
    rng = np.random.default_rng(m)
    x, w = any_of(left, rng, m, k), any_of(right, rng, k, n)
    drawn = space.candidates()
    others = map(space.decisions, drawn[rng.choice(len(drawn), 3)])
    for decisions in (space.default(), *others):
        function = final_loops(space, decisions, parse_target(target))
        names = [param.name for param in function.params]
        inputs = dict(zip(names[:2], (x, w), strict=True))
        (actual,) = run_emulated(function, inputs, parse_target(target), cpu).values()
        np.testing.assert_array_equal(actual, x.astype(np.int32) @ w.astype(np.int32))


@products
def test_factors_that_all_lanes_share_are_lanes_of_a_register(
    left, right, target, cpu, instruction
):
    """The canary of what LLVM makes of a broadcast: an instruction that loads it into every lane
    takes the time of arithmetic."""
    space = space_of(left, right, 48, 64, 48, target, register_tile.space)
    code = parse_target(target)
    text = assembly(emit_function(final_loops(space, space.default(), code), code), code)
    assert len(re.findall(rf"\t{instruction}\t.*\.4b\[\d\]", text)) >= 8
    assert not re.search(r"\t(ld1r|dup)\t", text)


# Rows of 16 bytes, rows of 8, and the rest, which is left to dot products.
TILES = {
    "usmmla": (DType.U8, DType.I8, [(13, 48, 48), (7, 40, 20), (2, 8, 4)]),
    "smmla": (DType.I8, DType.I8, [(13, 48, 48), (7, 40, 20), (2, 8, 4)]),
    "bfmmla": (DType.BF16, DType.BF16, [(13, 24, 48), (7, 20, 20), (2, 4, 4)]),
    "bfdot": (DType.BF16, DType.BF16, [(13, 38, 48), (5, 4, 33), (1, 96, 16)]),
    "fcvtl2": (DType.F16, DType.F16, [(13, 64, 48), (7, 48, 16), (2, 8, 8)]),
}


@needs_qemu
@pytest.mark.parametrize(
    ("instruction", "left", "right", "shape"),
    [(name, *kinds, shape) for name, (*kinds, shapes) in TILES.items() for shape in shapes],
)
def test_tiles(instruction, left, right, shape):
    """The first schedule and some others; sums of small floats, which no rounding changes."""
    m, k, n = shape
    half = left is DType.F16
    code, rng = parse_target("rpi5" if half else "graviton3"), np.random.default_rng(m)
    # Sketches, which use no dot products, are candidates as well.
    space = space_of(left, right, *shape, "rpi5" if half else "graviton3").built_in
    if left.is_float:
        x, w = (rng.integers(-8, 9, extents).astype(left.numpy) for extents in ((m, k), (k, n)))
    else:
        x, w = any_of(left, rng, m, k), any_of(right, rng, k, n)
    total = np.float32 if left.is_float else np.int32
    drawn = space.candidates()
    others = map(space.decisions, drawn[rng.choice(len(drawn), 3)])
    for decisions in (space.default(), *others):
        function = final_loops(space, decisions, code)
        assert f"\t{instruction}\t" in assembly(emit_function(function, code), code)
        names = [param.name for param in function.params]
        inputs = dict(zip(names[:2], (x, w), strict=True))
        cpu = "neoverse-n1" if half else "max,sve=off"
        (actual,) = run_emulated(function, inputs, code, cpu).values()
        np.testing.assert_array_equal(actual, x.astype(total) @ w.astype(total))


@needs_qemu
def test_sums_of_half_precision_are_short():
    """Thirty-two products of f16 are added up in f16, and these sums in f32."""
    code = parse_target("rpi5")
    space = space_of(DType.F16, DType.F16, 4, 4096, 8, "rpi5")
    x, w = np.ones((4, 4096), np.float16), np.ones((4096, 8), np.float16)
    w[1::2] = 2**-11  # This is half a step from 1.
    function = final_loops(space, space.default(), code)
    names = [param.name for param in function.params]
    (actual,) = run_emulated(
        function, dict(zip(names[:2], (x, w), strict=True)), code, "neoverse-n1"
    ).values()
    assert (np.abs(actual / (2048 * (1 + 2**-11)) - 1) < 1e-3).all()


@pytest.mark.parametrize("target", ["host", "rpi4"])
def test_f16_is_refused_where_nothing_multiplies_it(target):
    options = CompileOptions(target, verify=False, precision=Precision.F16)
    with pytest.raises(UsageError, match=r"precision f16 takes .*, which the target .* not have"):
        compile_model(build("mobilenet_v2"), options)


@pytest.mark.parametrize("target", ["rpi5", "rpi4"])
def test_bf16_is_refused_where_nothing_multiplies_it(target):
    model = build("mobilenet_v2")
    options = CompileOptions(target, verify=False, precision=Precision.BF16)
    with pytest.raises(UsageError, match="takes bf16, which the target cortex"):
        compile_model(model, options)
