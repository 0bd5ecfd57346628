"""Rules of operators that create tensors from sizes and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from farrier.frontends.builder import Number
from farrier.frontends.torch.scope import Scope
from farrier.frontends.torch.table import aten
from farrier.ir.types import DType
from farrier.ops import NotSupported

_CONSTANT = {"zeros": 0, "empty": 0, "ones": 1}


@aten("aten.zeros.default", "aten.ones.default", "aten.empty.memory_format")
def constant(s: Scope, size: Sequence[Number], **_: Any) -> str:
    return s.full(size, _CONSTANT[s.call.target.split(".")[1]], s.result)


@aten("aten.zeros_like.default", "aten.ones_like.default", "aten.empty_like.default")
def constant_like(s: Scope, x: str, *arguments: Any, **_: Any) -> str:
    name = s.call.target.split(".")[1].removesuffix("_like")
    return s.full(s.shape(x), _CONSTANT[name], s.result)


@aten("aten.new_zeros.default", "aten.new_ones.default", "aten.new_empty.default")
def new_constant(s: Scope, x: str, size: Sequence[Number], **_: Any) -> str:
    name = s.call.target.split(".")[1].removeprefix("new_")
    return s.full(size, _CONSTANT[name], s.result)


@aten("aten.full.default")
def full(s: Scope, size: Sequence[Number], value: Any, **_: Any) -> str:
    return s.full(size, value, s.result)


@aten("aten.full_like.default")
def full_like(s: Scope, x: str, value: Any, **_: Any) -> str:
    return s.full(s.shape(x), value, s.result)


@aten("aten.new_full.default")
def new_full(s: Scope, x: str, size: Sequence[Number], value: Any, **_: Any) -> str:
    return s.full(size, value, s.result)


@aten("aten.scalar_tensor.default")
def scalar_tensor(s: Scope, value: Any, **_: Any) -> str:
    return s.tensor(value, s.result)


@aten("aten.arange.default")
def arange(s: Scope, end: Any, **_: Any) -> str:
    return _range(s, 0, end, 1)


@aten("aten.arange.start")
def arange_start(s: Scope, start: Any, end: Any, **_: Any) -> str:
    return _range(s, start, end, 1)


@aten("aten.arange.start_step")
def arange_step(s: Scope, start: Any, end: Any, step: Any = 1, **_: Any) -> str:
    return _range(s, start, end, step)


def _range(s: Scope, *bounds: Any) -> str:
    if any(isinstance(bound, float) for bound in bounds):
        if not all(isinstance(bound, int | float) for bound in bounds):
            raise NotSupported("arange of floats and sizes that are open")
        return s.b.constant(np.arange(*bounds).astype(s.result.numpy), s.result)
    return s.cast(s.node("Range", *bounds), s.result)


@aten("aten.linspace.default")
def linspace(s: Scope, start: Any, end: Any, steps: Any, **_: Any) -> str:
    dtype = s.result
    if all(isinstance(value, int | float) for value in (start, end, steps)):
        return s.b.constant(np.linspace(start, end, steps).astype(dtype.numpy), dtype)
    places = s.cast(s.node("Range", 0, steps, 1), dtype)
    width = s.node("Sub", s.tensor(end, dtype), s.tensor(start, dtype))
    parts = s.node("Max", s.tensor(s.numbers("Sub", steps, 1), dtype), s.scalar(1, dtype))
    return s.node("Add", s.node("Div", s.node("Mul", places, width), parts), s.tensor(start, dtype))


@aten("aten.eye.default", "aten.eye.m")
def eye(s: Scope, rows: Any, columns: Any = None, **_: Any) -> str:
    row = s.unsqueeze(s.node("Range", 0, rows, 1), 1)
    column = s.node("Range", 0, rows if columns is None else columns, 1)
    return s.cast(s.node("Equal", row, column), s.result)


@aten("aten.tril_indices.default", "aten.triu_indices.default")
def triangle(s: Scope, rows: Any, columns: Any, offset: int = 0, **_: Any) -> str:
    if not (isinstance(rows, int) and isinstance(columns, int)):
        raise NotSupported("indices of a triangle whose size is open")
    indices = np.tril_indices if "tril" in s.call.target else np.triu_indices
    return s.b.constant(np.stack(indices(rows, offset, columns)).astype(np.int64), DType.I64)
