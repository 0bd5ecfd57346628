"""Rules for neutral elements, cheaper operators, and chains of constants."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from farrier.ir.graph import Node, Value
from farrier.ir.narrow import FORMATS
from farrier.ir.types import DType
from farrier.ops import Trait, lookup
from farrier.ops.broadcast import ADD, DIV, MUL, POW
from farrier.ops.pointwise import broadcast_shapes
from farrier.passes.rewriting import Rewriter, is_value, join_origins
from farrier.passes.rules.rule import Replacement

Array: TypeAlias = npt.NDArray[Any]


def put_constant_second(node: Node, rewriter: Rewriter) -> Replacement | None:
    """`c + x` → `x + c` for a constant c, and likewise for other commutative operators."""
    if not lookup(node.op).has(Trait.COMMUTATIVE) or len(node.inputs) != 2:
        return None
    left, right = node.inputs
    if rewriter.data(left) is None or rewriter.data(right) is not None:
        return None
    return (dataclasses.replace(node, inputs=(right, left)),)


def drop_neutral_element(node: Node, rewriter: Rewriter) -> Replacement | None:
    """`x * 1`, `x / 1`, `x ** 1`, `x + 0`, `x - 0` → `x`, unless the constant broadcasts x."""
    neutral = lookup(node.op).neutral
    if neutral is None:
        return None
    x, constant = node.inputs
    if x is None or x.type != node.outputs[0].type:
        return None
    return x if is_value(rewriter.data(constant), neutral) else None


def multiply_by_reciprocal(node: Node, rewriter: Rewriter) -> Replacement | None:
    """`x / c` → `x * (1 / c)` for finite floats c ≠ 0 whose reciprocal is finite and a normal
    number of the dtype.

    Two kinds of division stay. One is division by a scalar constant, because a value that is
    quantized with that constant may depend on the last bit. The other is division by 16-bit
    constants whose reciprocal is not exact: operators compute in f32, and the rounding of the
    reciprocal would dominate their error.
    """
    y = node.outputs[0]
    if not DIV.matches(node) or not y.type.dtype.is_float or y.type.size == 1:
        return None
    data = rewriter.data(node.inputs[1])
    if data is None or node.inputs[1] is None:
        return None
    with np.errstate(all="ignore"):
        exact = 1 / data.astype(np.float64)
        inverse = exact.astype(data.dtype)
    if not _normal(inverse).all() or not _keeps(inverse, exact):
        return None
    factor = rewriter.constant(inverse, f"{node.inputs[1].name}_inverse", exact)
    return (dataclasses.replace(node, op="Mul", inputs=(node.inputs[0], factor)),)


def expand_small_power(node: Node, rewriter: Rewriter) -> Replacement | None:
    """`x ** 2` → `x * x`, `x ** 3` → `x * x * x`, `x ** -1` → Reciprocal. `x ** 0.5` is not
    rewritten to Sqrt, because the power of -inf is inf."""
    x, y = node.inputs[0] if node.inputs else None, node.outputs[0]
    if not POW.matches(node) or x is None or x.type != y.type or not x.type.dtype.is_float:
        return None
    exponent = rewriter.data(node.inputs[1])
    if is_value(exponent, 2):
        return (Node("Mul", (x, x), (y,), origin=node.origin),)
    if is_value(exponent, 3):
        square = Value(rewriter.fresh(f"{y.name}_square"), y.type)
        return (
            Node("Mul", (x, x), (square,), origin=node.origin),
            Node("Mul", (square, x), (y,), origin=node.origin),
        )
    if is_value(exponent, -1):
        return (Node("Reciprocal", (x,), (y,), origin=node.origin),)
    return None


def merge_constant_chain(node: Node, rewriter: Rewriter) -> Replacement | None:
    """`(x * a) * b` → `x * (a * b)` and `(x + a) + b` → `x + (a + b)` for floats, if the merged
    constant neither overflows nor loses bits.

    The merged constant is rounded once from the exact values of a and b. A constant of 16 bits must
    be exact.
    """
    is_product = MUL.matches(node)
    if not is_product and not ADD.matches(node):
        return None
    if not node.outputs[0].type.dtype.is_float:
        return None
    inner = rewriter.producer(node.inputs[0])
    if inner is None or inner.op != node.op or not rewriter.single_use(inner.outputs[0]):
        return None
    first, second = rewriter.exact(inner.inputs[1]), rewriter.exact(node.inputs[1])
    if first is None or second is None:
        return None
    x, y = inner.inputs[0], node.outputs[0]
    if x is None or broadcast_shapes(first.shape, second.shape, x.type.shape) != y.type.shape:
        return None
    with np.errstate(all="ignore"):
        exact = np.asarray(first * second if is_product else first + second)
        merged = exact.astype(y.type.dtype.numpy)
    is_sound = _is_sound(is_product, merged, first, second)
    if merged.size > max(first.size, second.size) or not is_sound or not _keeps(merged, exact):
        return None
    constant = rewriter.constant(merged, f"{y.name}_constant", exact)
    origin = join_origins((inner, node))
    return (dataclasses.replace(node, inputs=(x, constant), origin=origin),)


def _is_sound(is_product: bool, merged: Array, first: Array, second: Array) -> bool:
    """Check whether one operation with the constant `merged` computes the same as two operations
    with `first` and `second`."""
    finite = np.isfinite(first) & np.isfinite(second)
    if not is_product:
        return bool((np.isfinite(merged) | ~finite).all())
    return bool((_normal(merged) | ~finite | (first == 0) | (second == 0)).all())


def _keeps(rounded: Array, exact: Array) -> bool:
    """Check that a constant has the same value after it was rounded to the narrow type in which
    operators read it."""
    is_narrow = DType.from_numpy(rounded.dtype).is_narrow_float
    return not is_narrow or np.array_equal(rounded.astype(np.float64), exact, equal_nan=True)


def _normal(x: Array) -> npt.NDArray[np.bool_]:
    """Return a mask of the normal numbers: zeros, subnormal numbers, infinities and NaN are
    False."""
    dtype, size = DType.from_numpy(x.dtype), np.abs(x.astype(np.float64))
    form = FORMATS.get(dtype)
    plain = np.float64 if dtype is DType.F64 else np.float32  # BF16 has the exponents of f32
    least = float(np.finfo(plain).tiny) if form is None else form.least_normal
    return (size >= least) & (size < np.inf)
