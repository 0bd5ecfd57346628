"""Attention in tile registers: which programs the rule takes, and what its schedules mean."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from farrier.ir.parser import parse_ir
from farrier.ir.run_loops import run_loops
from farrier.ir.verify_kernel import verify_function
from farrier.lower.region import lower_region
from farrier.ops import run_graph
from farrier.targets import host, parse_target
from farrier.targets.cpu.rules import attention_tile, for_program
from tests.intrinsics.written_out import written_out
from tests.lowering import final_loops
from tests.targets.cpu.codegen.differential import run_compiled

EXTENSIONS = ("amx_bf16", "amx_int8", "amx_tile", "avx512_bf16", "avx512_vnni")
AMX = dataclasses.replace(parse_target("x86-64-v4"), features=EXTENSIONS)
needs_amx = pytest.mark.skipif(
    not set(host().features) >= set(EXTENSIONS), reason="this machine has no AMX"
)
# Queries, keys, depth, width.
SHAPES = {
    "whole tiles": (32, 32, 32, 16),
    "few rows": (5, 32, 16, 16),
    "uneven rows": (19, 32, 8, 16),
    "uneven keys": (16, 33, 8, 16),
    "few keys": (16, 17, 32, 16),
}
LARGER = {
    "prime": (19, 41, 40, 48),
    "a last block of few rows": (33, 32, 32, 16),
    "several blocks": (100, 197, 64, 64),
}
of_shapes = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
of_masks = pytest.mark.parametrize("masked", [False, True], ids=["all", "masked"])


def attention(queries, keys, depth, width, masked=False, kind="bf16"):
    """The attention of two heads, in bf16: softmax(q k + mask) v."""
    add = f"v1: f32[2, {queries}, {keys}] = Add(v0, mask)" if masked else ""
    parameter = f", mask: f32[{queries}, {keys}]" if masked else ""
    scores = "v1" if masked else "v0"
    return parse_ir(f"""@graph
def region(q: {kind}[2, {queries}, {depth}], k: {kind}[2, {depth}, {keys}]{parameter}, v: {kind}[2, {keys}, {width}]):
    v0: f32[2, {queries}, {keys}] = MatMul(q, k, accumulator='f32')
    {add}
    v2: f32[2, {queries}, {keys}] = Softmax({scores}, axis=-1)
    v3: {kind}[2, {queries}, {keys}] = Cast(v2, to='{kind}')
    v4: f32[2, {queries}, {width}] = MatMul(v3, v, accumulator='f32')
    return v4
""")  # noqa: E501


def space_of(graph, target=AMX, threads=2):
    return attention_tile.space(lower_region(graph, "region", set()), target, threads)


def inputs_of(graph, seed=0):
    """Random arrays; of a mask a third is -inf, and the last row whole."""
    rng, arrays = np.random.default_rng(seed), {}
    for value in graph.inputs:
        array = rng.standard_normal(value.type.static_shape)
        if value.name == "mask":
            array[rng.random(array.shape) < 0.3] = -np.inf
            array[:, 0], array[-1] = 0, -np.inf
        arrays[value.name] = array.astype(value.type.dtype.numpy)
    return arrays


def spread(space, count):
    """Allowed decisions, spread over the space."""
    rows = space.candidates()
    return [space.decisions(row) for row in rows[:: max(len(rows) // count, 1)][:count]]


def check(actual, graph, inputs):
    """Within the roundings of weights: those of the reference are divided before."""
    (expected,) = run_graph(graph, inputs).values()
    assert np.isnan(expected).any() == ("mask" in inputs)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=2e-2)


@of_shapes
@of_masks
def test_schedules_mean_attention(shape, masked):
    graph = attention(*shape, masked)
    space, inputs = space_of(graph), inputs_of(graph)
    (decisions,) = spread(space, 1)
    function = final_loops(space, decisions)
    verify_function(function)
    (actual,) = run_loops(written_out(function), inputs).values()
    check(actual, graph, inputs)


@needs_amx
@pytest.mark.parametrize("shape", [*SHAPES.values(), *LARGER.values()], ids=[*SHAPES, *LARGER])
@of_masks
@pytest.mark.parametrize("threads", [1, 2])
def test_compiled(shape, masked, threads):
    graph = attention(*shape, masked)
    space, inputs = space_of(graph, host(), threads), inputs_of(graph, 1)
    for decisions in spread(space, 3):
        (actual,) = run_compiled(final_loops(space, decisions), inputs, threads).values()
        check(actual, graph, inputs)


@pytest.mark.parametrize("keys", [1, 17, 4099, 100_003])
def test_scores_of_a_block_stay_near(keys):
    """A prime number of queries, which no block of rows divides."""
    space = space_of(attention(997, keys + 15, 32, 16))
    block = space.columns(space.candidates())["block"].max()
    row_bytes = (keys + 15) * (4 + 2)  # A score and a weight.
    assert block == 16 or block * row_bytes < AMX.l2_bytes


def test_the_rule_comes_before_vectors():
    program = lower_region(attention(32, 32, 32, 16), "region", set())
    assert for_program(program, AMX, 2).rule == attention_tile.RULE


@pytest.mark.parametrize(
    "shape",
    [(1, 32, 32, 16), (2, 32, 32, 16), (32, 8, 32, 16), (32, 32, 10, 16), (32, 32, 32, 24)],
    ids=["one query", "two queries", "few keys", "odd depth", "odd width"],
)
def test_other_extents_are_left_to_vectors(shape):
    graph = attention(*shape)
    assert space_of(graph) is None
    program = lower_region(graph, "region", set())
    assert for_program(program, AMX, 2).rule.name == "attention"


def test_what_tiles_do_not_multiply_several_times_as_fast_is_left_to_vectors():
    assert space_of(attention(32, 32, 32, 16), parse_target("graviton3")) is None
    assert space_of(attention(32, 32, 32, 16), parse_target("x86-64-v4")) is None
    assert space_of(attention(32, 32, 32, 16, kind="f32")) is None
