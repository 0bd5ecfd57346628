"""Convolutions in narrow groups: right, in few wide groups, and of whole blocks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farrier.ir.graph import Constant, Graph, Node, Value, attributes
from farrier.ir.types import DType, TensorType
from farrier.ops import run_graph
from farrier.ops.verify import verify
from farrier.passes.settings import Settings
from farrier.targets import parse_target
from farrier.targets.cpu.passes.channel_blocks import merging
from farrier.targets.cpu.passes.merge_groups import merge_groups

SETTINGS = Settings(parse_target("x86-64-v4"), threads=1)  # 16 lanes


def convolution(group, inputs, outputs, size=6, has_bias=True, seed=0):
    """A 3 × 3 convolution of small integers, whose sums are equal in every order of adding."""
    rng = np.random.default_rng(seed)
    x = Value("x", TensorType(DType.F32, (2, group * inputs, size, size)))
    y = Value("y", TensorType(DType.F32, (2, group * outputs, size, size)))
    arrays = {"w": rng.integers(-9, 9, (group * outputs, inputs, 3, 3))}
    if has_bias:
        arrays["b"] = rng.integers(-9, 9, group * outputs)
    constants = [
        Constant(Value(name, TensorType(DType.F32, data.shape)), data.astype(np.float32))
        for name, data in arrays.items()
    ]
    node = Node(
        "Conv",
        (x, *(constant.value for constant in constants)),
        (y,),
        attributes(group=group, pads=(1, 1, 1, 1)),
    )
    return Graph("g", (x,), tuple(constants), (node,), (y,))


def result(graph, x):
    with np.errstate(invalid="ignore"):
        return run_graph(graph, {"x": x})[graph.outputs[0].name]


@given(
    group=st.integers(2, 20),
    inputs=st.integers(1, 9),
    outputs=st.integers(1, 9),
    has_bias=st.booleans(),
    seed=st.integers(0, 99),
)
def test_sums_are_the_same(group, inputs, outputs, has_bias, seed):
    graph = convolution(group, inputs, outputs, 3, has_bias, seed)
    merged = merge_groups(graph, SETTINGS)
    verify(merged)
    x = np.random.default_rng(seed).integers(-9, 9, graph.inputs[0].type.shape).astype(np.float32)
    np.testing.assert_array_equal(result(merged, x), result(graph, x))


@pytest.mark.parametrize(
    ("group", "width", "groups"),
    [
        (32, 4, [8]),
        (32, 8, [16]),
        (17, 24, [8, 1]),
        (13, 8, [6, 1]),
        (3, 8, [1]),
        (32, 16, [32]),
        (5, 32, [5]),
        (40, 3, [40]),
    ],
)
def test_groups(group, width, groups):
    merged = merge_groups(convolution(group, width, width), SETTINGS)
    assert [n.attr("group") for n in merged.nodes if n.op == "Conv"] == groups


def test_depthwise_convolutions_stay():
    graph = convolution(32, 1, 1)
    assert merge_groups(graph, SETTINGS).nodes == graph.nodes


def test_infinity_stays_in_its_group_where_sums_are_plain():
    graph = convolution(4, 8, 8)
    plain = merge_groups(graph, Settings(SETTINGS.target, threads=1, max_layer_error=0))
    assert plain.nodes == graph.nodes
    x = np.zeros(graph.inputs[0].type.shape, np.float32)
    x[:, 0] = np.inf
    assert np.isnan(result(merge_groups(graph, SETTINGS), x)[:, 8:16]).any()
    assert np.isfinite(result(plain, x)[:, 8:]).all()


@given(
    group=st.integers(2, 64),
    outputs=st.integers(1, 40),
    inputs=st.integers(1, 40),
    block=st.sampled_from([4, 8, 16]),
)
def test_merged_groups_fill_blocks(group, outputs, inputs, block):
    actual = merging(group, outputs, inputs, block)
    if actual is None:
        return
    whole, rest = divmod(group, actual.count)
    assert rest == actual.rest
    is_one = whole == 1 and not rest
    assert is_one or actual.count * outputs % block == actual.count * inputs % block == 0
