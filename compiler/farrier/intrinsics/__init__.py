"""What machines can do to whole tiles and to groups of products, declared one target a file."""

from __future__ import annotations

from farrier.intrinsics import x86
from farrier.intrinsics.declare import (
    RowRegisters,
    TensorIntrinsic,
    expand,
    physical_shape,
    place,
    vector_axis,
)
from farrier.intrinsics.dot import Dot
from farrier.ir.types import DType
from farrier.targets import Target

_BY_NAME = {intrinsic.name: intrinsic for intrinsic in x86.INTRINSICS}

__all__ = [
    "Dot",
    "RowRegisters",
    "TensorIntrinsic",
    "dot_of",
    "expand",
    "has_tiles",
    "lookup",
    "physical_shape",
    "place",
    "vector_axis",
]


def lookup(name: str) -> TensorIntrinsic:
    """The intrinsic of that name; raises KeyError where none is declared."""
    return _BY_NAME[name]


def dot_of(left: DType, right: DType, total: DType, target: Target) -> Dot | None:
    """The dot product of the target that multiplies these; None where it has none."""
    for dot in x86.DOTS:
        fits = (dot.left, dot.right, dot.total) == (left, right, total)
        if fits and dot.feature in target.required_features:
            return dot
    return None


def has_tiles(operands: DType, target: Target) -> bool:
    """Whether the target multiplies whole tiles of such operands, in registers of their own."""
    return operands is DType.BF16 and set(target.features) >= x86.AMX_FEATURES
