"""Computes at import what a model computes from sizes that are known only when it runs.

Such values are small arrays of numpy's object dtype, which hold numbers and dims; of a float dtype,
also dims times a simple fraction, between the Cast to it and the rounding that ends it.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from farrier.ir.dim import Dim, Extent, ceildiv, maximum, minimum
from farrier.ir.graph import Attribute
from farrier.ir.types import DType, TensorType
from farrier.ops.operator import Array, Operator, differ

Rule: TypeAlias = Callable[..., Any]  # an element of the result; None for what is not computed

_MAX_DENOMINATOR = 1 << 10  # of a factor by which floats multiply sizes without rounding
_MAX_FACTOR = 1 << 10


@dataclasses.dataclass(frozen=True, slots=True)
class Share:
    """`extent / denominator` as a float."""

    extent: Dim
    denominator: int


def has_dims(array: Array | None) -> bool:
    """Whether a constant's value depends on sizes that are known only when the model runs."""
    return array is not None and array.dtype == object


def parts(array: Array) -> tuple[Array, Array | None]:
    """What shares are shares of, other elements as they are, and what to divide by; None where
    there are no shares."""
    elements = array.reshape(-1).tolist()
    if not any(isinstance(element, Share) for element in elements):
        return array, None
    whole = np.empty(len(elements), object)
    whole[:] = [one.extent if isinstance(one, Share) else one for one in elements]
    below = [one.denominator if isinstance(one, Share) else 1 for one in elements]
    return whole.reshape(array.shape), np.array(below).reshape(array.shape)


def as_array(values: Any, dtype: DType) -> Array:
    """Numbers and dims as an array: of `dtype`, or of objects where there are dims among them."""
    array = np.array(values, object)
    if any(isinstance(value, Dim | Share) for value in array.reshape(-1).tolist()):
        return array
    return array.astype(dtype.numpy)


def fold(
    op: Operator,
    arrays: Sequence[Array | None],
    attrs: Mapping[str, Attribute],
    kinds: Sequence[TensorType],
) -> list[Array] | None:
    """The results of a node with sizes among its operands; None where it must compute them.

    Raises Undecided where a result depends on which of its values a symbol has.
    """
    kind = kinds[0]
    if op.name in _MOVES:
        if op.name != "Concat" and any(map(has_dims, arrays[1:])):
            return None
        results = list(op.reference(arrays, attrs))
    else:
        elements = [np.asarray(array, object) for array in arrays if array is not None]
        rule = _choose if op.name == "Where" else _rules(kind.dtype).get(op.name)
        if rule is not None:
            results = [_each(rule, elements)]
        elif op.name in _REDUCTIONS and kind.size == 1 and elements[0].size:
            whole = functools.reduce(_REDUCTIONS[op.name], elements[0].reshape(-1).tolist())
            results = [np.full(kind.static_shape, whole, object)]
        else:
            return None
    if any(value is None for result in results for value in result.reshape(-1).tolist()):
        return None
    return [as_array(result, kind.dtype) for result, kind in zip(results, kinds, strict=False)]


def _each(rule: Rule, arrays: Sequence[Array]) -> Array:
    result = np.empty(np.broadcast_shapes(*(array.shape for array in arrays)), object)
    result[...] = np.frompyfunc(rule, len(arrays), 1)(*arrays)
    return result


def _choose(condition: Any, left: Any, right: Any) -> Any:
    return left if condition else right


def _rules(dtype: DType) -> Mapping[str, Rule]:
    return _BOOLEAN if dtype is DType.BOOL else _FLOAT if dtype.is_float else _INTEGER


# Integers ----------------------------------------------------------------------------------------


def _quotient(left: Extent, right: Extent) -> Extent:
    """Towards zero."""
    return -(-left // right) if left < 0 else left // right


def _whole(value: Any) -> Any:
    """A number of any dtype as an integer, towards zero."""
    if isinstance(value, Share):
        return _quotient(value.extent, value.denominator)
    return value if isinstance(value, Dim) else int(value)


_INTEGER: Mapping[str, Rule] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "Div": _quotient,
    "Mod": operator.mod,
    "Min": lambda *values: functools.reduce(minimum, values),
    "Max": lambda *values: functools.reduce(maximum, values),
    "Neg": operator.neg,
    "Abs": lambda value: maximum(value, -value),
    "Cast": _whole,
}
_REDUCTIONS: Mapping[str, Callable[[Extent, Extent], Extent]] = {
    "ReduceSum": operator.add,
    "ReduceProd": operator.mul,
    "ReduceMin": minimum,
    "ReduceMax": maximum,
}

# Conditions --------------------------------------------------------------------------------------


def _truth(value: Any) -> bool:
    return bool(value.extent if isinstance(value, Share) else value)


_BOOLEAN: Mapping[str, Rule] = {
    "Equal": lambda left, right: not differ(left, right),
    "Less": operator.lt,
    "LessOrEqual": operator.le,
    "Greater": operator.gt,
    "GreaterOrEqual": operator.ge,
    "Cast": _truth,
}

# Floats ------------------------------------------------------------------------------------------


def _fraction(value: Any) -> Fraction | None:
    """A float that multiplies sizes without rounding, exactly; None for another."""
    if not isinstance(value, int | float) or not abs(value) <= _MAX_FACTOR:
        return None
    exact = Fraction(value)
    return exact if exact.denominator <= _MAX_DENOMINATOR else None


def _scaled(value: Any, factor: Fraction | None) -> Any:
    extent, below = (value.extent, value.denominator) if isinstance(value, Share) else (value, 1)
    if factor is None or not isinstance(extent, Dim):
        return None
    factor /= below
    scaled = extent * factor.numerator
    if not isinstance(scaled, Dim) or scaled % factor.denominator == 0:
        return scaled // factor.denominator
    return Share(scaled, factor.denominator)


def _product(left: Any, right: Any) -> Any:
    size, number = (left, right) if isinstance(left, Dim | Share) else (right, left)
    return _scaled(size, _fraction(number))


def _ratio(left: Any, right: Any) -> Any:
    factor = _fraction(right)
    return _scaled(left, None if not factor else 1 / factor)


def _floor(value: Any) -> Any:
    if isinstance(value, Share):
        return value.extent // value.denominator
    return value if isinstance(value, Dim) else float(np.floor(value))


def _ceil(value: Any) -> Any:
    if isinstance(value, Share):
        return ceildiv(value.extent, value.denominator)
    return value if isinstance(value, Dim) else float(np.ceil(value))


_FLOAT: Mapping[str, Rule] = {
    "Mul": _product,
    "Div": _ratio,
    "Floor": _floor,
    "Ceil": _ceil,
    "Cast": lambda value: value,
}

# Operators whose reference moves the elements of the first operand alone, or of all (Concat).
_MOVES = frozenset(
    (
        *("Concat", "Expand", "Flatten", "Gather", "Reshape", "Slice", "Split", "Squeeze", "Tile"),
        *("Transpose", "Unsqueeze"),
    )
)
