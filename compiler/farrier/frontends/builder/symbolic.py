"""The evaluation, at import, of nodes whose operands are sizes that are known only at run time.

Such values are small arrays of numpy's object dtype, which hold numbers and dims; of a float dtype,
also quotients of dims, between the Cast to it and the rounding that ends it. Their arithmetic is
exact: `12 / h * h` is 12 at every h, where floats may come to 11.999999.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from farrier.ir.dim import Dim, Extent, bounds, ceildiv, common_factor, maximum, minimum
from farrier.ir.graph import Attribute
from farrier.ir.types import DType, TensorType
from farrier.ops.operator import Array, Operator, differ

Rule: TypeAlias = Callable[..., Any]  # It returns an element of the result, or None.

_MAX_DENOMINATOR = 1 << 10  # of a factor by which floats multiply sizes without rounding
_MAX_FACTOR = 1 << 10
_MAX_WHOLE = 1 << 24  # Up to it f32 holds every integer.


@dataclasses.dataclass(frozen=True, slots=True)
class Share:
    """A quotient `extent / denominator` as a float; the denominator is not negative."""

    extent: Extent
    denominator: Extent


def has_dims(array: Array | None) -> bool:
    """Return whether a constant depends on sizes that are known only when the model runs."""
    return array is not None and array.dtype == object


def parts(array: Array) -> tuple[Array, Array | None]:
    """Return the dividends of shares, with other elements as they are, and the divisors, or None if
    the array has no shares."""
    elements = array.reshape(-1).tolist()
    if not any(isinstance(element, Share) for element in elements):
        return array, None
    whole = np.empty(len(elements), object)
    whole[:] = [each.extent if isinstance(each, Share) else each for each in elements]
    below = np.empty(len(elements), object)
    below[:] = [each.denominator if isinstance(each, Share) else 1 for each in elements]
    return whole.reshape(array.shape), below.reshape(array.shape)


def as_array(values: Any, dtype: DType) -> Array:
    """Numbers and dims as an array: of `dtype`, or of objects where there are dims among them."""
    array = np.array(values, object)
    if any(isinstance(value, Dim | Share) for value in array.reshape(-1).tolist()):
        return array
    return array.astype(dtype.numpy)


def ints(values: Any) -> Array:
    """Return integers and dims as the operators take them."""
    return as_array(values, DType.I64)


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
        rule = _rule(op, attrs, kind.dtype)
        if rule is not None:
            results = [_each(rule, elements)]
        elif (
            op.name in _REDUCTIONS
            and kind.size == 1
            and elements[0].size
            and parts(elements[0])[1] is None
        ):
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


def _rule(op: Operator, attrs: Mapping[str, Attribute], dtype: DType) -> Rule | None:
    """The rule of an elementwise operator; None where its elements are computed by the model."""
    if op.name == "Where":
        return _choose
    if op.name == "Mod" and attrs.get("fmod") and not dtype.is_float:
        return _remainder
    return _rules(dtype).get(op.name)


def _rules(dtype: DType) -> Mapping[str, Rule]:
    return _BOOLEAN if dtype is DType.BOOL else _FLOAT if dtype.is_float else _INTEGER


# Integers ----------------------------------------------------------------------------------------


def _quotient(left: Extent, right: Extent) -> Extent:
    """The quotient, rounded towards zero."""
    if right < 0:
        left, right = -left, -right
    return -(-left // right) if left < 0 else left // right


def _remainder(left: Extent, right: Extent) -> Extent:
    """The remainder of that quotient, which has the sign of the dividend."""
    return left - right * _quotient(left, right)


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


def _compared(relation: Callable[[Any, Any], bool]) -> Rule:
    """Return the rule for a relation of numbers, dims and shares with positive denominators."""

    def rule(left: Any, right: Any) -> bool | None:
        if not isinstance(left, Share) and not isinstance(right, Share):
            return relation(left, right)
        first, second = _as_share(left), _as_share(right)
        if first is None or second is None:
            return None
        return relation(first.extent * second.denominator, second.extent * first.denominator)

    return rule


_BOOLEAN: Mapping[str, Rule] = {
    "Equal": _compared(lambda left, right: not differ(left, right)),
    "Less": _compared(operator.lt),
    "LessOrEqual": _compared(operator.le),
    "Greater": _compared(operator.gt),
    "GreaterOrEqual": _compared(operator.ge),
    "Cast": _truth,
}

# Floats ------------------------------------------------------------------------------------------


def _as_share(value: Any) -> Share | None:
    """Return a float as a quotient, or None if operations on it may round."""
    if isinstance(value, Share):
        return value
    if isinstance(value, Dim):
        return Share(value, 1)
    if not isinstance(value, int | float) or not abs(value) <= _MAX_WHOLE:
        return None
    exact = Fraction(value)
    is_simple = abs(value) <= _MAX_FACTOR and exact.denominator <= _MAX_DENOMINATOR
    return Share(exact.numerator, exact.denominator) if is_simple or value % 1 == 0 else None


def _quotient_of(extent: Extent, below: Extent) -> Any:
    """Return `extent / below` as a number, a dim or a share, or None if the sign of the divisor is
    unknown. Factors that may be 0 are not cancelled."""
    if bounds(below)[0] < 0:
        return None
    if bounds(below)[0] > 0 and extent % below == 0:
        extent, below = extent // below, 1
    if below == 1:
        return extent if isinstance(extent, Dim) else float(extent)
    if isinstance(extent, int) and isinstance(below, int):
        return extent / below
    common = common_factor((extent, below))
    return Share(extent // common, below // common)


def _operation(rule: Callable[[Share, Share], Any], plain: Callable[[Any, Any], Any]) -> Rule:
    """Return a rule that applies `rule` to shares and `plain` to numbers."""

    def applied(left: Any, right: Any) -> Any:
        if not isinstance(left, Dim | Share) and not isinstance(right, Dim | Share):
            with np.errstate(all="ignore"):
                return float(plain(np.float64(left), np.float64(right)))
        first, second = _as_share(left), _as_share(right)
        return None if first is None or second is None else rule(first, second)

    return applied


def _product(left: Share, right: Share) -> Any:
    return _quotient_of(left.extent * right.extent, left.denominator * right.denominator)


def _ratio(left: Share, right: Share) -> Any:
    above, below = left.extent * right.denominator, left.denominator * right.extent
    return _quotient_of(-above, -below) if bounds(below)[1] < 0 else _quotient_of(above, below)


def _total(left: Share, right: Share) -> Any:
    above = left.extent * right.denominator + right.extent * left.denominator
    return _quotient_of(above, left.denominator * right.denominator)


def _negative(value: Any) -> Any:
    return Share(-value.extent, value.denominator) if isinstance(value, Share) else -value


def _floor(value: Any) -> Any:
    if isinstance(value, Share):
        return value.extent // value.denominator
    return value if isinstance(value, Dim) else float(np.floor(value))


def _ceil(value: Any) -> Any:
    if isinstance(value, Share):
        return ceildiv(value.extent, value.denominator)
    return value if isinstance(value, Dim) else float(np.ceil(value))


_FLOAT: Mapping[str, Rule] = {
    "Add": _operation(_total, operator.add),
    "Sub": _operation(lambda left, right: _total(left, _negative(right)), operator.sub),
    "Mul": _operation(_product, operator.mul),
    "Div": _operation(_ratio, operator.truediv),
    "Neg": _negative,
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
