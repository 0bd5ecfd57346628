"""GroupQueryAttention: its cache, its masks and its positions, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

import farrier
from farrier.errors import UnsupportedOperatorError
from farrier.frontends.onnx.importer import import_model
from tests.frontends.onnx.importer.microsoft.against import (
    Numbers,
    by_onnx_runtime,
    check,
    i32,
    one_node,
    same,
)

OP = "GroupQueryAttention"
NUMBERS = Numbers(20261128)
HEADS, GROUPS, SIZE = 4, 2, 16


def inputs(new, past, last, total, batch=2, heads=HEADS, size=SIZE, rotary=0, **more):
    """The operator's inputs for `new` tokens and `past` slots; `more` are optional ones by name."""
    f32 = NUMBERS.f32
    cache = [f32(batch, GROUPS, past, size) if past else None for _ in range(2)]
    angles = [f32(32, rotary // 2) if rotary else None for _ in range(2)]
    further = [more.get(name) for name in ("positions", "bias", "sink")]
    operands = [f32(batch, new, heads * size), *(f32(batch, new, GROUPS * size) for _ in range(2))]
    return [*operands, *cache, i32(*last), np.int32(total), *angles, *further]


def packed(new, past, last, total):
    query, _, _, *rest = inputs(new, past, last, total, heads=HEADS + 2 * GROUPS)
    return [query, None, None, *rest]


PROMPT, RAGGED = (4, 0, (3, 3), 4), (4, 0, (3, 1), 4)
# The past of DECODE grows; that of SHARED lies in a buffer with room.
DECODE, SHARED = (1, 5, (5, 3), 6), (1, 8, (5, 3), 6)
CASES = {
    "prompt": (inputs(*PROMPT), {}),
    "prompt of unequal length": (inputs(*RAGGED), {}),
    "prompt in a shared buffer": (inputs(4, 8, (3, 1), 4), {}),
    "decode": (inputs(*DECODE), {"scale": 0.3}),
    "decode in a shared buffer": (inputs(*SHARED), {}),
    "chunk": (inputs(3, 5, (7,), 8, batch=1), {}),
    "packed": (packed(*RAGGED), {}),
    "packed decode": (packed(*DECODE), {}),
    "as many groups as heads": (inputs(*DECODE, heads=GROUPS), {"num_heads": GROUPS}),
    "rotary prompt": (inputs(*RAGGED, rotary=16), {"do_rotary": 1}),
    "rotary decode": (inputs(*DECODE, rotary=16), {"do_rotary": 1, "rotary_interleaved": 1}),
    "part of a head is rotated": (inputs(*SHARED, size=32, rotary=16), {"do_rotary": 1}),
    "positions of a prompt": (
        inputs(*PROMPT, rotary=16, positions=np.array([[3, 4, 5, 9], [5, 6, 7, 8]])),
        {"do_rotary": 1},
    ),
    "positions of a prompt in a shared buffer": (
        inputs(4, 8, (3, 3), 4, rotary=16, positions=np.array([[3, 4, 5, 9], [5, 6, 7, 8]])),
        {"do_rotary": 1},
    ),
    "positions": (
        inputs(*DECODE, rotary=16, positions=np.array([[4], [9]])),
        {"do_rotary": 1},
    ),
    "window of a prompt": (inputs(*PROMPT), {"local_window_size": 2}),
    "window": (inputs(*DECODE), {"local_window_size": 3, "softcap": 2.0}),
    "soft cap": (inputs(*RAGGED), {"softcap": 1.5}),
    "smooth softmax": (inputs(*DECODE), {"smooth_softmax": 1}),
    "sinks": (inputs(*SHARED, sink=NUMBERS.f32(HEADS)), {"local_window_size": 3}),
    "sinks of a prompt": (inputs(*PROMPT, sink=NUMBERS.f32(HEADS)), {"softcap": 2.0}),
    "bias": (inputs(*RAGGED, bias=NUMBERS.f32(2, HEADS, 4, 4)), {"softcap": 1.5}),
    "bias of all heads": (inputs(*DECODE, bias=NUMBERS.f32(1, 1, 1, 6)), {}),
    "bias and sinks in a shared buffer": (
        inputs(*SHARED, bias=NUMBERS.f32(2, 1, 1, 6), sink=NUMBERS.f32(HEADS)),
        {},
    ),
    "both directions": (inputs(*RAGGED), {"causal": 0}),
}
COMPILED = ("prompt of unequal length", "bias and sinks in a shared buffer")


@pytest.mark.parametrize("name", CASES)
def test_as_onnx_runtime(name):
    operands, attrs = CASES[name]
    attrs = {"num_heads": HEADS, "kv_num_heads": GROUPS, **attrs}
    check(OP, operands, outputs=3, is_compiled=name in COMPILED, **attrs)


def test_chunks_of_which_a_part_is_padding():
    """`query_seqlens`: results of padding are unspecified."""
    operands = inputs(3, 8, (6, 4), 8)
    operands += [None] * (16 - len(operands)) + [i32(3, 2)]
    attrs = {"num_heads": HEADS, "kv_num_heads": GROUPS}
    data, feeds = one_node(OP, operands, 3, **attrs)
    got = list(farrier.compile(data, verify=False, threads=1).run(feeds).values())
    want = by_onnx_runtime(data, feeds)
    same([got[0][0], got[0][1, :2], *got[1:]], [want[0][0], want[0][1, :2], *want[1:]])


def test_one_artifact_serves_all_batches_pasts_and_lengths():
    """Also where `total_sequence_length` is a number that only the run knows."""
    cache = ("batch", GROUPS, "past", SIZE)
    width = GROUPS * SIZE
    dims = {0: ("batch", "new", HEADS * SIZE), 1: ("batch", "new", width)}
    dims |= {2: dims[1], 3: cache, 4: cache, 5: ("batch",), 9: ("batch", "new")}
    attrs = {"num_heads": HEADS, "kv_num_heads": GROUPS, "do_rotary": 1}
    angles = NUMBERS.f32(32, 8), NUMBERS.f32(32, 8)
    artifact = None
    for new, past, last, total in (
        (4, 8, (3, 1), 4),
        (1, 5, (5, 3), 6),
        (1, 8, (7, 2, 4), 8),
        (3, 5, (7,), 8),
    ):
        operands = inputs(new, past, last, total, batch=len(last))
        operands[7:9] = angles
        operands[9] = np.maximum(np.array(last)[:, None] + np.arange(1 - new, 1), 0)
        data, feeds = one_node(OP, operands, 3, fixed=(7, 8), dims=dims, **attrs)
        artifact = artifact or farrier.compile(data, verify=False, threads=1)
        same(list(artifact.run(feeds).values()), by_onnx_runtime(data, feeds))


def test_what_only_other_providers_know_is_refused_by_name():
    operands = inputs(*DECODE)
    attrs = {"num_heads": HEADS, "kv_num_heads": GROUPS, "local_window_size": 3}
    data, _ = one_node(OP, operands, 3, sliding_window_cache=1, **attrs)
    with pytest.raises(UnsupportedOperatorError, match="sliding_window_cache"):
        import_model(data)
    operands += [None] * (14 - len(operands)) + [NUMBERS.f32(SIZE), NUMBERS.f32(SIZE)]
    data, _ = one_node(OP, operands, 3, **attrs)
    with pytest.raises(UnsupportedOperatorError, match="q_norm_weight"):
        import_model(data)
