"""Counter-based random numbers: RandomUniformLike, RandomNormalLike.

An element is a function of its position and the seed. A compiled model is therefore deterministic:
every run returns the same numbers, for any number of threads.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from farrier.ir import expr as e
from farrier.ir.expr import BinaryOp, Buffer, Expr, UnaryOp
from farrier.ir.graph import Node
from farrier.ir.types import DType, TensorType
from farrier.ops.builder import Builder, attributes_of
from farrier.ops.operator import (
    Array,
    Arrays,
    Attrs,
    Buffers,
    Constants,
    Kind,
    Mismatch,
    Operator,
    Types,
    float_attr,
    int_attr,
    present,
    required,
)
from farrier.ops.scalar import Scalar, bits, cast, log, scalar, sqrt, unary

_STRIDE = 0x9E3779B9  # The golden ratio times 2^32: it starts neighbouring elements far apart.
# Two rounds of shifts and products, whose constants C. Wellons found by search for the least bias
# (nullprogram.com/blog/2018/07/31).
_ROUND = ((16, 0x7FEB352D), (15, 0x846CA68B), (16, 1))
_WORD = (1 << 32) - 1


def _hash(counter: Scalar, key: int) -> Scalar:
    """Return 32 pseudorandom bits. The bits for different counters or keys appear to be
    independent."""
    x = counter * _STRIDE + key
    for _ in range(2):
        for shift, factor in _ROUND:
            x = bits(BinaryOp.BIT_XOR, x, bits(BinaryOp.SHR, x, shift)) * factor
    return x


def _np_hash(counter: Array, key: int) -> Array:
    x = counter * np.uint32(_STRIDE) + np.uint32(key)
    for _ in range(2):
        for shift, factor in _ROUND:
            x = (x ^ (x >> np.uint32(shift))) * np.uint32(factor)
    return x


def _keys(attrs: Attrs, count: int) -> list[int]:
    """Return one hash key for each of the `count` random numbers that an element is computed
    from."""
    seed = int_attr(attrs, "seed", 0)
    first = _np_hash(np.array([seed & _WORD], np.uint32), 0)
    return [int(_np_hash(first, i + 1)[0]) for i in range(count)]


def _unit(word: Scalar, more: Scalar, dtype: DType) -> Scalar:
    """Return a number in [0, 1) with random bits for the entire mantissa: 24 bits from `word`, or
    for f64 53 bits from `word` and `more`."""
    if dtype is not DType.F64:
        return cast(bits(BinaryOp.SHR, word, 8), dtype) * 2.0**-24
    high, low = cast(bits(BinaryOp.SHR, word, 5), dtype), cast(bits(BinaryOp.SHR, more, 6), dtype)
    return (high * 2.0**26 + low) * 2.0**-53


def _np_unit(word: Array, more: Array, dtype: Any) -> Array:
    if dtype != np.float64:
        return np.asarray((word >> np.uint32(8)).astype(dtype) * dtype(2.0**-24))
    high, low = (word >> np.uint32(5)).astype(dtype), (more >> np.uint32(6)).astype(dtype)
    return np.asarray((high * 2.0**26 + low) * 2.0**-53)


def _infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    dtype = DType(str(attrs["dtype"]))
    if not dtype.is_float:
        raise Mismatch(f"random numbers of {dtype}")
    return (TensorType(dtype, required(types, 0).shape),)


def _wide(attrs: Attrs) -> tuple[DType, DType]:
    """Return the dtype of the result, and the dtype of the computation: f64 for f64, else f32."""
    dtype = DType(str(attrs["dtype"]))
    return dtype, DType.F64 if dtype is DType.F64 else DType.F32


def _operator(name: str) -> Operator:
    """Declare RandomUniformLike or RandomNormalLike. A normal number is computed from two uniform
    ones (Box and Muller, 1958)."""
    is_normal = name == "RandomNormalLike"

    def compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
        attrs = attributes_of(node)
        shape = node.outputs[0].type.shape
        dtype, wide = _wide(attrs)
        keys = _keys(attrs, 4)

        def body(*at: Expr) -> Scalar:
            flat: Expr = e.index(0)
            for index, extent in zip(at, shape, strict=True):
                flat = e.add(e.mul(flat, extent), index)
            words = [_hash(cast(scalar(flat), DType.U32), key) for key in keys]
            first = _unit(words[0], words[1], wide)
            if not is_normal:
                low, high = float_attr(attrs, "low", 0.0), float_attr(attrs, "high", 1.0)
                return cast(first * (high - low) + low, dtype)
            turn = unary(UnaryOp.COS, _unit(words[2], words[3], wide) * (2 * math.pi))
            length = sqrt(log(1 - first) * -2)
            mean, scale = float_attr(attrs, "mean", 0.0), float_attr(attrs, "scale", 1.0)
            return cast(length * turn * scale + mean, dtype)

        return (builder.output(node, body, hint=name.lower()),)

    def reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
        x = present(arrays, 0)
        dtype, wide = (kind.numpy.type for kind in _wide(attrs))
        counter = np.arange(x.size, dtype=np.uint32)
        words = [_np_hash(counter, key) for key in _keys(attrs, 4)]
        first = _np_unit(words[0], words[1], wide)
        if is_normal:
            turn = np.cos(_np_unit(words[2], words[3], wide) * wide(2 * math.pi))
            length = np.sqrt(np.log(1 - first) * -2)
            mean, scale = float_attr(attrs, "mean", 0.0), float_attr(attrs, "scale", 1.0)
            result = length * turn * wide(scale) + wide(mean)
        else:
            low, high = float_attr(attrs, "low", 0.0), float_attr(attrs, "high", 1.0)
            result = first * wide(high - low) + wide(low)
        return (result.astype(dtype).reshape(x.shape),)

    return Operator(name, Kind.INJECTIVE, _infer, reference, compute)


OPERATORS: tuple[Operator, ...] = (_operator("RandomUniformLike"), _operator("RandomNormalLike"))
