"""Small random ONNX models of every operator family, with shapes that no tile divides."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, TypeAlias

import elementwise_makers as elementwise
import moving_makers as moving
import numpy as np
import onnx
import summing_makers as summing
from draft import FLOAT, Call, Draft, Refused, drawn

Maker: TypeAlias = Callable[[Draft], Call]

MAKERS: tuple[tuple[int, Maker], ...] = (
    (12, summing.conv), (8, elementwise.unary), (6, elementwise.binary), (6, moving.residual),
    (5, summing.matmul), (4, summing.pool), (4, summing.norm), (5, moving.transpose),
    (5, moving.reshape), (5, moving.concat), (3, summing.softmax), (4, summing.reduce),
    (5, moving.slice_), (3, moving.split), (2, moving.gated), (2, moving.pad),
    (2, moving.gather), (2, summing.gemm), (3, summing.conv_transpose), (2, moving.resize),
    (2, moving.expand), (2, summing.global_pool), (1, summing.arg), (1, elementwise.compare),
    (1, elementwise.logic), (2, elementwise.where), (2, elementwise.cast), (1, elementwise.clip),
    (2, elementwise.divide), (1, elementwise.power), (1, elementwise.many), (2, summing.einsum),
    (1, moving.blocks), (1, summing.running), (1, moving.trilu), (1, moving.one_hot),
    (1, elementwise.bitwise), (1, elementwise.quantize), (1, moving.scatter), (1, moving.top_k),
    (1, summing.product), (1, summing.attention), (1, moving.reverse_sequence),
    (1, moving.pad_to_multiple), (1, moving.rows), (1, moving.half),
)  # fmt: skip


def random_model(rng: random.Random, most: int = 8, empty: float = 0.0) -> bytes:
    """A valid model of 1 to `most` nodes, or a few more where a form has several; with axes of no
    elements by the chance `empty`."""
    draft = Draft(rng, empty)
    first = rng.random()
    draft.new_input(draft.shape(4 if first < 0.6 else None), FLOAT)
    weights, makers = zip(*MAKERS, strict=True)
    wanted = rng.randint(1, most)
    for _ in range(4 * wanted):
        (maker,) = rng.choices(makers, weights)
        grown = (draft.inputs, draft.values, draft.constants, draft.nodes)
        sizes = [len(part) for part in grown]
        try:
            draft.add(maker(draft))
        except (IndexError, ValueError, Refused):  # The maker found no way to extend this draft.
            for part, size in zip(grown, sizes, strict=True):
                del part[size:]
        if len(draft.nodes) >= wanted:
            break
    if not draft.nodes:
        draft.add(Call("Relu", [draft.inputs[0]], exact=True))
    return draft.model()


def random_feeds(model: bytes, rng: np.random.Generator) -> dict[str, Any]:
    """Inputs as the model declares them."""
    feeds = {}
    for info in onnx.load_from_string(model).graph.input:
        kinds = info.type.tensor_type
        feeds[info.name] = drawn(rng, [d.dim_value for d in kinds.shape.dim], kinds.elem_type)
    return feeds
