"""Rules that evaluate operators on arrays of symbolic sizes, known only when the model runs.

Such an array has numpy's object dtype and holds numbers and dims. Between a Cast to floats and the
rounding back to integers, it may also hold quotients of dims. Arithmetic on them is exact: `12 / h
* h` is 12 for every h, where floats may give 11.999999.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from farrier.ir.dim import Dim, Extent, bounds, ceildiv, common_factor, maximum, minimum
from farrier.ir.types import DType, TensorType
from farrier.ops.operator import Array, Arrays, Attrs, SymbolicRule, differ, present

# A function of one element of each operand; it returns None if the model must compute the result.
Rule: TypeAlias = Callable[..., Any]

# Floats multiply sizes without rounding by factors of at most this numerator and denominator.
_MAX_FACTOR = _MAX_DENOMINATOR = 1 << 10
_MAX_WHOLE = 1 << 24  # Up to it f32 holds every integer.


@dataclasses.dataclass(frozen=True, slots=True)
class Share:
    """A float that is the exact quotient `extent / denominator` of two sizes. The denominator is
    not negative."""

    extent: Extent
    denominator: Extent

    def __add__(self, other: Share) -> Any:
        above = self.extent * other.denominator + other.extent * self.denominator
        return _quotient_of(above, self.denominator * other.denominator)

    def __sub__(self, other: Share) -> Any:
        return self + -other

    def __mul__(self, other: Share) -> Any:
        return _quotient_of(self.extent * other.extent, self.denominator * other.denominator)

    def __truediv__(self, other: Share) -> Any:
        above, below = self.extent * other.denominator, self.denominator * other.extent
        return _quotient_of(-above, -below) if bounds(below)[1] < 0 else _quotient_of(above, below)

    def __neg__(self) -> Share:
        return Share(-self.extent, self.denominator)


def _as_share(value: Any) -> Share | None:
    """Return a float as an exact quotient, or None if float operations on it may round."""
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
    """Return `extent / below` as a number, a dim or a `Share`; None if the divisor may be negative.
    Common factors that may be 0 are not cancelled."""
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


def by_element(
    integers: Rule | None = None, floats: Rule | None = None, bools: Rule | None = None
) -> SymbolicRule:
    """Return the symbolic rule of an elementwise operator. `integers`, `floats` and `bools` compute
    an element of a result of that type; for a type without function, the rule returns None, and the
    model computes the result at run time."""

    def rule(arrays: Arrays, attrs: Attrs, kinds: Sequence[TensorType]) -> list[Array] | None:
        dtype = kinds[0].dtype
        function = bools if dtype is DType.BOOL else floats if dtype.is_float else integers
        if function is None:
            return None
        operands = [np.asarray(array, object) for array in arrays if array is not None]
        result = np.empty(np.broadcast_shapes(*(array.shape for array in operands)), object)
        result[...] = np.frompyfunc(function, len(operands), 1)(*operands)
        return [result]

    return rule


def to_one(combine: Rule) -> SymbolicRule:
    """Return the symbolic rule of a reduction over all elements to a single element."""

    def rule(arrays: Arrays, attrs: Attrs, kinds: Sequence[TensorType]) -> list[Array] | None:
        elements, result = present(arrays, 0).reshape(-1).tolist(), kinds[0]
        has_shares = any(isinstance(element, Share) for element in elements)
        if result.size != 1 or not elements or has_shares:
            return None
        return [np.full(result.static_shape, functools.reduce(combine, elements), object)]

    return rule


def _quotient(left: Extent, right: Extent) -> Extent:
    """Return the quotient of two integers, rounded towards zero."""
    if right < 0:
        left, right = -left, -right
    return -(-left // right) if left < 0 else left // right


def _whole(value: Any) -> Any:
    """Return a number, dim or `Share` rounded towards zero to an integer."""
    if isinstance(value, Share):
        return _quotient(value.extent, value.denominator)
    return value if isinstance(value, Dim) else int(value)


def _truth(value: Any) -> bool:
    return bool(value.extent if isinstance(value, Share) else value)


def _floor(value: Any) -> Any:
    if isinstance(value, Share):
        return value.extent // value.denominator
    return value if isinstance(value, Dim) else float(np.floor(value))


def _ceil(value: Any) -> Any:
    if isinstance(value, Share):
        return ceildiv(value.extent, value.denominator)
    return value if isinstance(value, Dim) else float(np.ceil(value))


def _exact(operation: Callable[[Any, Any], Any]) -> Rule:
    """Return a rule that applies `operation` to floats: exactly if an operand is a symbolic size or
    quotient (None if that is not possible), else with numpy's rounding."""

    def rule(left: Any, right: Any) -> Any:
        if not isinstance(left, Dim | Share) and not isinstance(right, Dim | Share):
            with np.errstate(all="ignore"):
                return float(operation(np.float64(left), np.float64(right)))
        first, second = _as_share(left), _as_share(right)
        return None if first is None or second is None else operation(first, second)

    return rule


def compared(relation: Callable[[Any, Any], bool]) -> SymbolicRule:
    """Return the symbolic rule of a comparison of numbers, dims and quotients."""

    def rule(left: Any, right: Any) -> bool | None:
        if not isinstance(left, Share) and not isinstance(right, Share):
            return relation(left, right)
        first, second = _as_share(left), _as_share(right)
        if first is None or second is None:
            return None
        return relation(first.extent * second.denominator, second.extent * first.denominator)

    return by_element(bools=rule)


def _choose(condition: Any, left: Any, right: Any) -> Any:
    return left if condition else right


def modulo(arrays: Arrays, attrs: Attrs, kinds: Sequence[TensorType]) -> Sequence[Array] | None:
    """Evaluate Mod on symbolic sizes. The remainder has the sign of the divisor, or with the
    attribute `fmod` that of the dividend."""
    truncated = by_element(lambda left, right: left - right * _quotient(left, right))
    return (truncated if attrs.get("fmod") else by_element(operator.mod))(arrays, attrs, kinds)


add = by_element(operator.add, _exact(operator.add))
subtract = by_element(operator.sub, _exact(operator.sub))
multiply = by_element(operator.mul, _exact(operator.mul))
divide = by_element(_quotient, _exact(operator.truediv))
negate = by_element(operator.neg, operator.neg)
absolute = by_element(lambda size: maximum(size, -size))
least = by_element(lambda *sizes: functools.reduce(minimum, sizes))
greatest = by_element(lambda *sizes: functools.reduce(maximum, sizes))
floor = by_element(floats=_floor)
ceil = by_element(floats=_ceil)
convert = by_element(_whole, lambda value: value, _truth)
choose = by_element(_choose, _choose, _choose)
equal = compared(lambda left, right: not differ(left, right))
