"""The channels of a block: the number that a tile's row reduces, where all channels fill them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from farrier.ir.graph import Constant, Graph, Node, Value, attributes
from farrier.ir.types import DType, TensorType
from farrier.options.precision import Precision
from farrier.passes.settings import Settings
from farrier.targets import parse_target
from farrier.targets.cpu.passes.channel_blocks import channel_block
from farrier.targets.cpu.passes.lower_precision import lower_precision

VECTORS = parse_target("x86-64-v4")
AMX = dataclasses.replace(
    VECTORS, features=("amx_bf16", "amx_int8", "amx_tile", "avx512_bf16", "avx512_vnni")
)
BF16, BYTES = (DType.BF16, DType.BF16, DType.F32), (DType.U8, DType.I8, DType.I32)
F32 = (DType.F32, DType.F32, DType.F32)
KINDS = {"bf16": BF16, "bytes": BYTES}


def chain(kind, *layers):
    """Convolutions that follow one another, each of (inputs, outputs, groups)."""
    left, right, total = kind
    constants, nodes = [], []
    first = x = Value("x", TensorType(left, (1, layers[0][0], 5, 5)))
    for at, (inputs, outputs, groups) in enumerate(layers):
        data = np.ones((outputs, inputs // groups, 1, 1), np.int8)
        w = Value(f"w{at}", TensorType(right, data.shape))
        constants.append(Constant(w, data.astype(right.numpy)))
        sums = Value(f"sums{at}", TensorType(total, (1, outputs, 5, 5)))
        y = Value(f"y{at}", TensorType(left, sums.type.shape))
        attrs = attributes(group=groups, accumulator=total.value)
        nodes.append(Node("Conv", (x, w), (sums,), attrs))
        nodes.append(Node("Cast", (sums,), (y,), attributes(to=left.value)))
        x = y
    return Graph("g", (first,), tuple(constants), tuple(nodes), (x,))


@pytest.mark.parametrize(
    ("layers", "of_bf16", "of_bytes"),
    [
        (((64, 64, 1), (64, 128, 1)), 32, 64),
        (((64, 32, 1), (32, 64, 1)), 32, 32),
        (((64, 48, 1), (48, 64, 1)), 32, 64),
        (((64, 24, 1), (24, 64, 1)), 32, 32),
        (((64, 96, 1), (96, 96, 96), (96, 64, 1)), 32, 32),
        (((64, 48, 1), (48, 48, 48), (48, 64, 1)), 16, 16),
        (((64, 64, 1), (64, 64, 2)), 32, 32),
    ],
    ids=["all", "half", "partial", "vectors", "depthwise", "uneven depthwise", "groups"],
)
def test_blocks_are_rows_of_tiles(layers, of_bf16, of_bytes):
    actual = {name: channel_block(chain(kind, *layers), AMX) for name, kind in KINDS.items()}
    assert actual == {"bf16": of_bf16, "bytes": of_bytes}
    assert all(channel_block(chain(kind, *layers), VECTORS) == 16 for kind in KINDS.values())


@pytest.mark.parametrize(
    ("layers", "block"),
    [
        (((3, 64, 1), (64, 64, 64), (64, 20, 1)), 4),
        (((3, 64, 1), (64, 18, 1)), 1),
        (((13, 64, 1),), 1),
        (((8, 8, 4),), 1),
    ],
    ids=["all", "partial outputs", "partial inputs", "small groups"],
)
def test_scalars_lie_in_blocks_of_four_where_all_convolutions_fill_them(layers, block):
    scalars = parse_target("rv64gc")
    for merges in (False, True):
        assert channel_block(chain(F32, *layers), scalars, merges=merges) == block


def test_groups_fill_blocks_once_they_are_merged():
    """From 32 groups of 4 channels, 8 are merged at most."""
    graph = chain(BYTES, (64, 128, 1), (128, 128, 32), (128, 64, 1))
    assert [channel_block(graph, AMX, merges=merges) for merges in (True, False)] == [32, 16]


@pytest.mark.parametrize(("floats", "together"), [(DType.F32, 16), (DType.BF16, 32)])
def test_groups_fill_the_blocks_of_what_floats_are_rounded_to(floats, together):
    graph = chain(F32, (64, 128, 1), (128, 128, 32), (128, 64, 1))
    assert channel_block(graph, AMX, merges=True, floats=floats) == together


@pytest.mark.parametrize(("group", "is_rounded"), [(2, True), (4, True), (8, False), (64, False)])
def test_groups_that_fill_blocks_are_rounded(group, is_rounded):
    graph = chain(F32, (64, 64, group))
    lowered = lower_precision(graph, Settings(AMX, 1, precision=Precision.BF16))
    (node,) = (node for node in lowered.nodes if node.op == "Conv")
    assert (node.inputs[0].type.dtype is DType.BF16) == is_rounded


def test_images_that_are_joined_begin_with_a_block():
    """Blocks of 32 would leave half a block of the first, and parts that end so lie plain."""
    graph = chain(BF16, (64, 48, 1), (48, 64, 1))
    sums = [node.outputs[0] for node in graph.nodes if node.op == "Conv"]
    whole = Value("whole", TensorType(DType.F32, (1, 112, 5, 5)))
    joined = Node("Concat", tuple(sums), (whole,), attributes(axis=1))
    assert channel_block(graph, AMX) == 32
    assert channel_block(dataclasses.replace(graph, nodes=(*graph.nodes, joined)), AMX) == 16
