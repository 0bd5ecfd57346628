"""RotaryEmbedding in its forms, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontends.onnx.importer.microsoft.against import Numbers, check

NUMBERS = Numbers(20261203)
f32 = NUMBERS.f32
ANGLES = f32(16, 4), f32(16, 4)  # Heads have 8 elements.
EACH, FIRST = NUMBERS.below(16, 2, 5, dtype=np.int64), np.array([3])


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("positions", [EACH, FIRST])
@pytest.mark.parametrize(
    ("shape", "attrs"),
    [
        ((2, 5, 24), {}),
        ((2, 5, 24), {"num_heads": 3, "scale": 0.5}),
        ((2, 3, 5, 8), {"is_packed_batching": 1}),
        ((2, 5, 48), {"num_heads": 3, "rotary_embedding_dim": 8}),
        ((2, 3, 5, 16), {"num_heads": 3, "rotary_embedding_dim": 8}),
    ],
)
def test_as_onnx_runtime(shape, attrs, positions, interleaved):
    """`scale` and `is_packed_batching` change nothing there."""
    inputs = [f32(*shape), positions, *ANGLES]
    is_compiled = shape[-1] == 16 and positions is FIRST
    options = {"is_compiled": is_compiled, "interleaved": interleaved}
    check("RotaryEmbedding", inputs, fixed=(2, 3), **options, **attrs)
