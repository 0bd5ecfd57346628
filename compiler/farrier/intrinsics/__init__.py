"""Tensor intrinsics: what machines can do to whole tiles, declared one target a file."""

from __future__ import annotations

from farrier.intrinsics import x86
from farrier.intrinsics.declare import TensorIntrinsic, expand, vector_axis

_BY_NAME = {intrinsic.name: intrinsic for intrinsic in x86.INTRINSICS}

__all__ = ["TensorIntrinsic", "expand", "lookup", "vector_axis"]


def lookup(name: str) -> TensorIntrinsic:
    """The intrinsic of that name; raises KeyError where none is declared."""
    return _BY_NAME[name]
