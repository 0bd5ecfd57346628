"""Mathematical functions of one operand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from farrier.ir.expr import UnaryOp
from farrier.ir.special import erf as numpy_erf
from farrier.ops.operator import Array, Operator
from farrier.ops.pointwise import pointwise
from farrier.ops.scalar import Scalar, exp, number, unary, where


def _function(
    name: str, formula: Callable[[Scalar], Scalar], reference: Callable[[Array], Array]
) -> Operator:
    return pointwise(name, lambda attrs, x: formula(x), lambda attrs, x: reference(x))


def _primitive(name: str, op: UnaryOp, reference: Callable[[Array], Array]) -> Operator:
    return _function(name, lambda x: unary(op, x), reference)


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
)
