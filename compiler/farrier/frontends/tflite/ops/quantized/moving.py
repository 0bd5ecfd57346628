"""Rules of operators that move or compare integers, which require that all tensors have the same
scale."""

from __future__ import annotations

import functools

from farrier.frontends.builder.images import ImageBuilder
from farrier.frontends.tflite.call import Call, Rule
from farrier.frontends.tflite.ops import (
    arithmetic,
    indexing,
    logic,
    moving,
    reductions,
    shapes,
)
from farrier.frontends.tflite.ops.quantized.pooling import check_same_scale

_NAMES = (
    "BATCH_TO_SPACE_ND", "BROADCAST_TO", "CONCATENATION", "DEPTH_TO_SPACE", "EQUAL", "EXPAND_DIMS",
    "GATHER", "GATHER_ND", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "MAXIMUM", "MINIMUM",
    "MIRROR_PAD", "NOT_EQUAL", "PACK", "PAD", "PADV2", "REDUCE_MAX", "REDUCE_MIN", "RESHAPE",
    "RESIZE_NEAREST_NEIGHBOR", "REVERSE_V2", "SLICE", "SPACE_TO_BATCH_ND", "SPACE_TO_DEPTH",
    "SPLIT", "SPLIT_V", "SQUEEZE", "STRIDED_SLICE", "TILE", "TRANSPOSE", "UNPACK",
)  # fmt: skip
_UNSCALED = ("ARG_MAX", "ARG_MIN", "RANK", "SHAPE")  # Their results are indices or sizes.
_PLAIN: dict[str, Rule] = {
    **arithmetic.RULES,
    **indexing.RULES,
    **logic.RULES,
    **moving.RULES,
    **reductions.RULES,
    **shapes.RULES,
}


def _moved(call: Call, b: ImageBuilder, *, name: str) -> object:
    check_same_scale(call)
    return _PLAIN[name](call, b)


RULES: dict[str, Rule] = {
    **{name: functools.partial(_moved, name=name) for name in _NAMES},  # type: ignore[misc]
    **{name: _PLAIN[name] for name in _UNSCALED},
}
