"""Comparisons, logic on bools, and tests of floats."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from farrier.ir.types import DType
from farrier.ops import symbolic
from farrier.ops.operator import Array, Attrs, Mismatch, Operator, SymbolicRule, Types
from farrier.ops.pointwise import Formula, Numpy, boolean, function, pointwise
from farrier.ops.scalar import Scalar, both, either, equal, invert, number, unequal
from farrier.ops.traits import Trait

Relation: TypeAlias = Callable[[Any, Any], Any]


def _bools(types: Types, attrs: Attrs) -> DType:
    for position, type in enumerate(types):
        if type is None or type.dtype is not DType.BOOL:
            raise Mismatch(f"input {position} is {type and type.dtype}, and must be bool")
    return DType.BOOL


def _is_inf(attrs: Attrs, x: Scalar) -> Scalar:
    positive = equal(x, math.inf) if attrs.get("detect_positive", 1) else number(False, DType.BOOL)
    return either(positive, equal(x, -math.inf)) if attrs.get("detect_negative", 1) else positive


def _np_is_inf(attrs: Attrs, x: Array) -> Array:
    positive = np.isposinf(x) & bool(attrs.get("detect_positive", 1))
    return np.asarray(positive | (np.isneginf(x) & bool(attrs.get("detect_negative", 1))))


def _logical(name: str, formula: Formula, reference: Numpy) -> Operator:
    traits = Trait.COMMUTATIVE | Trait.TOTAL
    return pointwise(name, formula, reference, result=_bools, traits=traits)


def _comparison(name: str, scalars: Relation, arrays: Relation, sizes: SymbolicRule) -> Operator:
    return pointwise(
        name,
        lambda attrs, x, y: scalars(x, y),
        lambda attrs, x, y: arrays(x, y),
        result=boolean,
        traits=Trait.TOTAL | Trait.EXACT,
        symbolic=sizes,
    )


def _ordered(name: str, relation: Relation) -> Operator:
    return _comparison(name, relation, relation, symbolic.compared(relation))


EQUAL = _comparison("Equal", equal, operator.eq, symbolic.equal)
OPERATORS: tuple[Operator, ...] = (
    function("Not", invert, np.logical_not, result=_bools, traits=Trait.TOTAL),
    _logical("And", lambda attrs, x, y: both(x, y), lambda attrs, x, y: x & y),
    _logical("Or", lambda attrs, x, y: either(x, y), lambda attrs, x, y: x | y),
    _logical("Xor", lambda attrs, x, y: unequal(x, y), lambda attrs, x, y: x ^ y),
    EQUAL,
    _ordered("Less", operator.lt),
    _ordered("LessOrEqual", operator.le),
    _ordered("Greater", operator.gt),
    _ordered("GreaterOrEqual", operator.ge),
    function("IsNaN", lambda x: unequal(x, x), np.isnan, result=boolean, traits=Trait.EXACT),
    pointwise("IsInf", _is_inf, _np_is_inf, result=boolean, traits=Trait.EXACT),
)
