"""Contractions in half precision: which operands become f16, and that results are right."""

from __future__ import annotations

import dataclasses

import numpy as np

from farrier.ir.graph import Constant
from farrier.ir.parser import parse_ir
from farrier.ir.types import DType
from farrier.ops import run_graph
from farrier.ops.verify import verify
from farrier.options.precision import Precision
from farrier.passes import optimize
from farrier.passes.settings import Settings
from farrier.targets import parse_target
from farrier.targets.cpu.passes.channel_blocks import channel_block
from farrier.targets.cpu.passes.lower_precision import lower_precision
from tests.targets.cpu.codegen.emulated import needs_qemu, run_graph_emulated

SETTINGS = Settings(parse_target("rpi5"), threads=1, precision=Precision.F16)
NET = """@graph
def net(x: f32[1, 16, 7, 9], v: f32[32, 16, 3, 3], u: f32[24, 32, 1, 1], w: f32[24, 40]):
    pooled_shape: i64[2] = constant([63, 24])
    a: f32[1, 32, 7, 9] = Conv(x, v, pads=(1, 1, 1, 1))
    r: f32[1, 32, 7, 9] = Relu(a)
    b: f32[1, 24, 7, 9] = Conv(r, u)
    t: f32[1, 7, 9, 24] = Transpose(b, perm=(0, 2, 3, 1))
    m: f32[63, 24] = Reshape(t, pooled_shape)
    y: f32[63, 40] = MatMul(m, w)
    return y
"""


def net(rng):
    """The graph with constant weights, and an input of it."""
    graph = parse_ir(NET)
    weights = [value for value in graph.inputs if value.name != "x"]
    scales = [0.5 / np.sqrt(np.prod(value.type.shape[1:])) for value in weights]
    constants = tuple(
        Constant(value, (scale * rng.standard_normal(value.type.shape)).astype(np.float32))
        for value, scale in zip(weights, scales, strict=True)
    )
    x = rng.standard_normal(graph.inputs[0].type.shape).astype(np.float32)
    all_constants = (*graph.constants, *constants)
    return dataclasses.replace(graph, inputs=graph.inputs[:1], constants=all_constants), {"x": x}


def operands(graph):
    """The dtypes that each contraction multiplies, in order."""
    nodes = [node for node in graph.nodes if node.op in ("Conv", "MatMul")]
    return [tuple(value.type.dtype for value in node.inputs[:2]) for node in nodes]


def test_products_with_constant_weights_are_of_halves():
    graph, _ = net(np.random.default_rng(0))
    lowered = lower_precision(graph, SETTINGS)
    verify(lowered)
    assert operands(lowered) == [(DType.F16, DType.F16)] * 3


def test_what_tiles_do_not_multiply_stays_f32():
    graph = parse_ir("""@graph
def g(x: f32[1, 12, 8, 8], image: f32[1, 3, 8, 8], q: f32[8, 16], k: f32[16, 8]):
    one: f32[()] = constant(1.0)
    twelve: i64[4] = constant([16, 12, 3, 3])
    three: i64[4] = constant([16, 3, 3, 3])
    v: f32[16, 12, 3, 3] = Expand(one, twelve)
    w: f32[16, 3, 3, 3] = Expand(one, three)
    a: f32[1, 16, 6, 6] = Conv(x, v)
    b: f32[1, 16, 6, 6] = Conv(image, w)
    s: f32[8, 8] = MatMul(q, k)
    return a, b, s
""")
    plain = optimize(graph, dataclasses.replace(SETTINGS, precision=Precision.F32))
    assert optimize(graph, SETTINGS) == plain


@needs_qemu
def test_a_model_for_a_board():
    """Within what halves of its values, and sums of these, are off by."""
    graph, inputs = net(np.random.default_rng(1))
    (expected,) = run_graph(graph, inputs).values()
    (actual,) = run_graph_emulated(graph, inputs, SETTINGS, "neoverse-n1").values()
    error = np.abs(actual - expected).max() / np.ptp(expected)
    assert 1e-6 < error < 2e-3


def test_images_of_floats_keep_their_blocks():
    """Four channels, a vector of totals, where nothing multiplies halves; 16 where tiles do."""
    graph, _ = net(np.random.default_rng(2))
    plain = dataclasses.replace(SETTINGS, precision=Precision.F32)
    assert [channel_block(lower_precision(graph, s), s.target) for s in (plain, SETTINGS)] == [
        4,
        16,
    ]
