"""Mathematical functions of one operand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

import numpy as np

from farrier.ir.expr import UnaryOp
from farrier.ir.special import erf
from farrier.ops import symbolic
from farrier.ops.operator import Array, Facts, Operator
from farrier.ops.pointwise import pointwise
from farrier.ops.scalar import Scalar, number, unary, where
from farrier.ops.traits import Trait


def _function(
    name: str,
    formula: Callable[[Scalar], Scalar],
    reference: Callable[[Array], Array],
    **facts: Unpack[Facts],
) -> Operator:
    return pointwise(name, lambda attrs, x: formula(x), lambda attrs, x: reference(x), **facts)


def _primitive(
    name: str,
    op: UnaryOp,
    reference: Callable[[Array], Array],
    **facts: Unpack[Facts],
) -> Operator:
    return _function(name, lambda x: unary(op, x), reference, **facts)


_ROUNDS_NOTHING = Trait.TOTAL | Trait.EXACT
SQRT = _primitive("Sqrt", UnaryOp.SQRT, np.sqrt)
OPERATORS: tuple[Operator, ...] = (
    _primitive("Abs", UnaryOp.ABS, np.abs, traits=_ROUNDS_NOTHING, symbolic=symbolic.absolute),
    _primitive("Neg", UnaryOp.NEG, np.negative, traits=_ROUNDS_NOTHING, symbolic=symbolic.negate),
    _primitive("Exp", UnaryOp.EXP, np.exp, instructions=15),
    _primitive("Log", UnaryOp.LOG, np.log),
    SQRT,
    _primitive("Floor", UnaryOp.FLOOR, np.floor, traits=Trait.EXACT, symbolic=symbolic.floor),
    _primitive("Ceil", UnaryOp.CEIL, np.ceil, traits=Trait.EXACT, symbolic=symbolic.ceil),
    _primitive("Round", UnaryOp.ROUND, np.rint, traits=Trait.EXACT),
    _primitive("Erf", UnaryOp.ERF, erf, instructions=15),
    _primitive("Sin", UnaryOp.SIN, np.sin),
    _primitive("Cos", UnaryOp.COS, np.cos),
    _primitive("Tan", UnaryOp.TAN, np.tan),
    _primitive("Asin", UnaryOp.ASIN, np.arcsin),
    _primitive("Acos", UnaryOp.ACOS, np.arccos),
    _primitive("Atan", UnaryOp.ATAN, np.arctan),
    _primitive("Sinh", UnaryOp.SINH, np.sinh),
    _primitive("Cosh", UnaryOp.COSH, np.cosh),
    _primitive("Tanh", UnaryOp.TANH, np.tanh, instructions=15),
    _primitive("Asinh", UnaryOp.ASINH, np.arcsinh),
    _primitive("Acosh", UnaryOp.ACOSH, np.arccosh),
    _primitive("Atanh", UnaryOp.ATANH, np.arctanh),
    _function("Reciprocal", lambda x: 1 / x, np.reciprocal),
    # Zero and NaN are their own sign.
    _function(
        "Sign",
        lambda x: where(x > 0, number(1, x.dtype), where(x < 0, number(-1, x.dtype), x)),
        np.sign,
        traits=_ROUNDS_NOTHING,
    ),
)
