"""Mathematical functions of one operand, and conversions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from farrier.ir.expr import UnaryOp
from farrier.ir.special import convert
from farrier.ir.special import erf as numpy_erf
from farrier.ir.types import DType
from farrier.ops.operator import Array, Attrs, Operator, Types
from farrier.ops.pointwise import pointwise
from farrier.ops.scalar import Scalar, cast, exp, number, unary, unequal, where


def _function(
    name: str, formula: Callable[[Scalar], Scalar], reference: Callable[[Array], Array]
) -> Operator:
    return pointwise(name, lambda attrs, x: formula(x), lambda attrs, x: reference(x))


def _primitive(name: str, op: UnaryOp, reference: Callable[[Array], Array]) -> Operator:
    return _function(name, lambda x: unary(op, x), reference)


def _target(types: Types, attrs: Attrs) -> DType:
    return DType(str(attrs["to"]))


def _convert(attrs: Attrs, x: Scalar) -> Scalar:
    dtype = DType(str(attrs["to"]))
    return unequal(x, 0) if dtype is DType.BOOL and x.dtype is not dtype else cast(x, dtype)


OPERATORS: tuple[Operator, ...] = (
    _primitive("Abs", UnaryOp.ABS, np.abs),
    _primitive("Neg", UnaryOp.NEG, np.negative),
    _primitive("Exp", UnaryOp.EXP, np.exp),
    _primitive("Log", UnaryOp.LOG, np.log),
    _primitive("Sqrt", UnaryOp.SQRT, np.sqrt),
    _primitive("Floor", UnaryOp.FLOOR, np.floor),
    _primitive("Ceil", UnaryOp.CEIL, np.ceil),
    _primitive("Round", UnaryOp.ROUND, np.rint),
    _primitive("Sin", UnaryOp.SIN, np.sin),
    _primitive("Cos", UnaryOp.COS, np.cos),
    _primitive("Erf", UnaryOp.ERF, numpy_erf),
    _primitive("Tanh", UnaryOp.TANH, np.tanh),
    _function("Tan", lambda x: unary(UnaryOp.SIN, x) / unary(UnaryOp.COS, x), np.tan),
    _function("Sinh", lambda x: (exp(x) - exp(-x)) * 0.5, np.sinh),
    _function("Cosh", lambda x: (exp(x) + exp(-x)) * 0.5, np.cosh),
    _function("Reciprocal", lambda x: 1 / x, np.reciprocal),
    # Zero and NaN are their own sign.
    _function(
        "Sign",
        lambda x: where(x > 0, number(1, x.dtype), where(x < 0, number(-1, x.dtype), x)),
        np.sign,
    ),
    pointwise("Cast", _convert, lambda attrs, x: convert(x, DType(attrs["to"])), result=_target),
)
