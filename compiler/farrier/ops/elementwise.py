"""Mathematical functions of one operand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Unpack

import numpy as np

from farrier.ir.expr import UnaryOp
from farrier.ir.special import erf
from farrier.ops import symbolic
from farrier.ops.derivative import Adjoint, Slope
from farrier.ops.operator import Array, Facts, Operator
from farrier.ops.pointwise import function
from farrier.ops.scalar import number, unary, where
from farrier.ops.traits import Trait


def _primitive(
    name: str,
    op: UnaryOp,
    reference: Callable[[Array], Array],
    slope: Slope | None = None,
    **facts: Unpack[Facts],
) -> Operator:
    return function(name, lambda x: unary(op, x), reference, slope, **facts)


def _reciprocal_slope(s: Adjoint, x: str, y: str) -> str:
    return s("Neg", s.square(y))


def _erf_slope(s: Adjoint, x: str, y: str) -> str:
    return s("Mul", 2.0 / math.sqrt(math.pi), s("Exp", s("Neg", s.square(x))))


_ROUNDS_NOTHING = Trait.TOTAL | Trait.EXACT
EXP = _primitive("Exp", UnaryOp.EXP, np.exp, slope=lambda s, x, y: y, instructions=15)
SQRT = _primitive("Sqrt", UnaryOp.SQRT, np.sqrt, slope=lambda s, x, y: s("Div", 0.5, y))
RECIPROCAL = function("Reciprocal", lambda x: 1 / x, np.reciprocal, slope=_reciprocal_slope)
OPERATORS: tuple[Operator, ...] = (
    _primitive(
        "Abs",
        UnaryOp.ABS,
        np.abs,
        slope=lambda s, x, y: s("Sign", x),
        traits=_ROUNDS_NOTHING,
        symbolic=symbolic.absolute,
    ),
    _primitive(
        "Neg",
        UnaryOp.NEG,
        np.negative,
        traits=_ROUNDS_NOTHING,
        symbolic=symbolic.negate,
        derivative=lambda s: [s("Neg", s.by)],
    ),
    EXP,
    _primitive("Log", UnaryOp.LOG, np.log, derivative=lambda s: [s("Div", s.by, s.operands[0])]),
    SQRT,
    _primitive("Floor", UnaryOp.FLOOR, np.floor, traits=Trait.EXACT, symbolic=symbolic.floor),
    _primitive("Ceil", UnaryOp.CEIL, np.ceil, traits=Trait.EXACT, symbolic=symbolic.ceil),
    _primitive("Round", UnaryOp.ROUND, np.rint, traits=Trait.EXACT),
    _primitive("Erf", UnaryOp.ERF, erf, slope=_erf_slope, instructions=15),
    _primitive("Sin", UnaryOp.SIN, np.sin, slope=lambda s, x, y: s("Cos", x)),
    _primitive("Cos", UnaryOp.COS, np.cos, slope=lambda s, x, y: s("Neg", s("Sin", x))),
    _primitive("Tan", UnaryOp.TAN, np.tan),
    _primitive("Asin", UnaryOp.ASIN, np.arcsin),
    _primitive("Acos", UnaryOp.ACOS, np.arccos),
    _primitive("Atan", UnaryOp.ATAN, np.arctan),
    _primitive("Sinh", UnaryOp.SINH, np.sinh),
    _primitive("Cosh", UnaryOp.COSH, np.cosh),
    _primitive(
        "Tanh",
        UnaryOp.TANH,
        np.tanh,
        slope=lambda s, x, y: s("Sub", 1.0, s.square(y)),
        instructions=15,
    ),
    _primitive("Asinh", UnaryOp.ASINH, np.arcsinh),
    _primitive("Acosh", UnaryOp.ACOSH, np.arccosh),
    _primitive("Atanh", UnaryOp.ATANH, np.arctanh),
    RECIPROCAL,
    # Zero and NaN are their own sign.
    function(
        "Sign",
        lambda x: where(x > 0, number(1, x.dtype), where(x < 0, number(-1, x.dtype), x)),
        np.sign,
        traits=_ROUNDS_NOTHING,
    ),
)
