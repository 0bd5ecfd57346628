"""Attention in its forms, against ONNX Runtime, and against numpy where it has no kernel."""

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

NUMBERS = Numbers(20261202)
f32 = NUMBERS.f32
BATCH, NEW, HEADS, SIZE, SLOTS = 2, 3, 2, 4, 6
WIDTH = HEADS * SIZE
MASKED, SEEN = [1, 1, 1, 0], [1, 1, 0, 0]


def split(x):
    return x.reshape(BATCH, -1, HEADS, SIZE).transpose(0, 2, 1, 3)


def attended(q, k, v, mask=0):
    """Queries, keys and values as [batch, heads, length, size]."""
    scores = q.astype(np.float64) @ k.swapaxes(2, 3) / np.sqrt(SIZE) + mask
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    context = weights / weights.sum(-1, keepdims=True) @ v
    return context.transpose(0, 2, 1, 3).reshape(BATCH, -1, WIDTH).astype(np.float32)


def cache(slots=SLOTS):
    return f32(BATCH, HEADS, slots, SIZE)


def projection(*rest):
    """The inputs of Attention of four tokens."""
    return [f32(BATCH, 4, WIDTH), f32(WIDTH, 3 * WIDTH), f32(3 * WIDTH), *rest]


def heads_of(queries, keys, *rest):
    return [f32(BATCH, queries, WIDTH), *(f32(BATCH, keys, WIDTH) for _ in range(2)), *rest]


PAST = f32(2, BATCH, HEADS, 2, SIZE)
SELF = {
    "plain": (projection(), 1, {}),
    "without a bias": ([*projection()[:2]], 1, {"scale": 0.3}),
    "lengths": (projection(i32(4, 2)), 1, {}),
    "ends and beginnings": (projection(i32(4, 3, 0, 1)), 1, {}),
    "lengths before a packed form": (projection(i32(4, 2, 0, 4, 8, 0, 4, 6)), 1, {}),
    "keys": (projection(i32(MASKED, SEEN)), 1, {"mask_filter_value": -5000.0}),
    "no key of a row": (projection(i32([0] * 4, SEEN)), 1, {}),
    "pairs": (projection(np.tril(np.ones((BATCH, 4, 4), np.int32))), 1, {}),
    "only the past": (projection(i32(MASKED, SEEN)), 1, {"unidirectional": 1}),
    "a past": (
        projection(np.ones((BATCH, 6), np.int32), PAST),
        2,
        {"unidirectional": 1},
    ),
    "a bias of the scores": (projection(None, None, f32(BATCH, 1, 4, 4)), 1, {}),
    "other widths": (
        [f32(BATCH, 4, WIDTH), f32(WIDTH, 20), f32(20)],
        1,
        {"qkv_hidden_sizes": [8, 8, 4]},
    ),
}
CROSS = {
    "plain": (heads_of(3, 5), 1, {"scale": 0.3}),
    "lengths": (heads_of(3, 5, f32(3 * WIDTH), i32(5, 2)), 1, {}),
    "keys": (heads_of(3, 5, None, i32([1, 1, 1, 1, 0], [1, 1, 0, 0, 0])), 1, {}),
    "pairs": (heads_of(3, 5, None, NUMBERS.below(2, BATCH, 3, 5)), 1, {}),
    "cached keys": ([f32(BATCH, 3, WIDTH), cache(), cache()], 1, {}),
    "cached keys and a bias": ([f32(BATCH, 3, WIDTH), cache(), cache(), f32(3 * WIDTH)], 1, {}),
    "wide values": ([*heads_of(3, 5)[:2], f32(BATCH, 5, 4)], 1, {}),
    "only the past": (heads_of(3, 3), 1, {"unidirectional": 1}),
    "a past": (
        heads_of(3, 3, f32(3 * WIDTH), None, f32(1, HEADS, 3, 5), cache(2), cache(2)),
        3,
        {"unidirectional": 1},
    ),
    "a shared buffer": (heads_of(3, 3, None, None, None, cache(), cache(), i32(2)), 3, {}),
    "a shared buffer, masked": (
        heads_of(3, 3, None, NUMBERS.below(2, BATCH, 5), None, cache(), cache(), i32(2)),
        3,
        {},
    ),
    "an empty shared buffer": (
        heads_of(3, 3, None, None, None, cache(), cache(), i32(0)),
        3,
        {"unidirectional": 1},
    ),
}
SOURCES = NUMBERS.below(BATCH, 1, BATCH, SLOTS)
SHARED = {"past_present_share_buffer": 1}
DECODER = {
    "no past": (heads_of(1, 1), 1, {}),
    "cross": ([f32(BATCH, 1, WIDTH), cache(), cache(), NUMBERS.below(2, BATCH, SLOTS)], 1, {}),
    "a shared buffer": (heads_of(1, 1, None, None, cache(), cache(), i32(3)), 3, SHARED),
    "a mask, a bias of the scores, and one of the operands": (
        heads_of(1, 1, NUMBERS.below(2, BATCH, 4), f32(1, HEADS, 1, 4), cache(), cache(), i32(3),
                 None, None, f32(3 * WIDTH)),
        3,
        SHARED,
    ),
    "beams": (
        heads_of(1, 1, None, None, cache(), cache(), i32(3), i32(BATCH), SOURCES),
        3,
        SHARED,
    ),
}  # fmt: skip
OPERATORS = {
    "Attention": SELF,
    "MultiHeadAttention": CROSS,
    "DecoderMaskedMultiHeadAttention": DECODER,
}


@pytest.mark.parametrize(
    ("op", "case"), [(op, case) for op, cases in OPERATORS.items() for case in cases]
)
def test_as_onnx_runtime(op, case):
    inputs, outputs, attrs = OPERATORS[op][case]
    is_compiled = case in ("ends and beginnings", "beams", "a past")
    check(op, inputs, outputs=outputs, num_heads=HEADS, is_compiled=is_compiled, **attrs)


@pytest.mark.parametrize("scale", [(), (3 * WIDTH,)])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_quantized_projections(scale, dtype):
    codes = NUMBERS.codes
    product = [codes(np.uint8, BATCH, 4, WIDTH), codes(dtype, WIDTH, 3 * WIDTH), f32(3 * WIDTH)]
    scales = [np.float32(0.02), NUMBERS.positive(*scale) / 10]
    zeros = [codes(np.uint8), codes(dtype, *scale)]
    inputs = [*product, *scales, i32(MASKED, SEEN), *zeros]
    check("QAttention", inputs, num_heads=HEADS, fixed=(1, 4, 7))
    inputs = [*product, *scales, None, *zeros, PAST]
    check("QAttention", inputs, outputs=2, num_heads=HEADS, unidirectional=1, fixed=(1, 4, 7))


def test_masks_of_all_pairs_of_positions():
    """[batch, 1, most, most], of which the rows of the new tokens count."""
    x, weights, bias = projection()
    mask = NUMBERS.below(2, BATCH, 1, 8, 8)
    q, k, v = (split(part) for part in np.split(x @ weights + bias, 3, axis=-1))
    k, v = (np.concatenate(pair, axis=2) for pair in zip(PAST, (k, v), strict=True))
    added = np.where(mask[:, :, 2:6, :6] == 1, 0, -10000.0)
    inputs = [x, weights, bias, mask, PAST]
    check("Attention", inputs, expected=[attended(q, k, v, added)], num_heads=HEADS)


def test_scores_are_an_output():
    q, k, v = heads_of(3, 5)
    scores = split(q) @ split(k).swapaxes(2, 3) / np.sqrt(SIZE)
    want = [attended(*map(split, (q, k, v))), scores.astype(np.float32)]
    check("MultiHeadAttention", [q, k, v], expected=want, outputs=[1, 0, 0, 1], num_heads=HEADS)


def test_packed_operands():
    three, two, q = f32(BATCH, 3, HEADS, 3, SIZE), f32(BATCH, 5, HEADS, 2, SIZE), f32(BATCH, 3, 8)
    want = attended(*(three[:, :, :, i].transpose(0, 2, 1, 3) for i in range(3)))
    check("MultiHeadAttention", [three], expected=[want], num_heads=HEADS)
    want = attended(split(q), *(two[:, :, :, i].transpose(0, 2, 1, 3) for i in range(2)))
    check("MultiHeadAttention", [q, two], expected=[want], num_heads=HEADS)
    row = f32(BATCH, 1, 3 * WIDTH)
    want = attended(*map(split, np.split(row, 3, axis=-1)))
    op = "DecoderMaskedMultiHeadAttention"
    check(op, [row], expected=[want], num_heads=HEADS)


def test_one_query_with_a_projection_of_its_own():
    _, weights, bias = projection()
    x, mask = f32(BATCH, 1, WIDTH), i32([1, 0, 1], [1, 1, 1])
    inputs = [x, weights, bias, mask, PAST]
    want = by_onnx_runtime(*one_node("Attention", inputs, 2, num_heads=HEADS))
    inputs += [None, i32(2)]
    op = "DecoderMaskedSelfAttention"
    check(op, inputs, expected=want, outputs=2, num_heads=HEADS)
    data, _ = one_node(op, inputs, 2, num_heads=HEADS, past_present_share_buffer=1)
    with pytest.raises(UnsupportedOperatorError, match="order is that of a GPU"):
        import_model(data)


def test_one_artifact_serves_all_batches_and_lengths():
    past = ("batch", HEADS, "past", SIZE)
    dims = dict.fromkeys(range(3), ("batch", "new", WIDTH))
    dims |= {4: ("batch", "keys"), 6: past, 7: past}
    artifact = None
    for batch, new, slots in ((2, 3, 4), (1, 1, 7), (3, 2, 1)):
        mask = NUMBERS.below(2, batch, slots + new)
        inputs = [*(f32(batch, new, WIDTH) for _ in range(3)), None, mask, None]
        inputs += [f32(batch, HEADS, slots, SIZE) for _ in range(2)]
        data, feeds = one_node("MultiHeadAttention", inputs, 3, dims=dims, num_heads=HEADS)
        options = {"shapes": {"x4": ("batch", "past+new")}}
        artifact = artifact or farrier.compile(data, verify=False, threads=1, **options)
        same(list(artifact.run(feeds).values()), by_onnx_runtime(data, feeds))
