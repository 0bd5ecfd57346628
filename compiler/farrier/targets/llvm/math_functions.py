"""The emission of elementary functions as straight-line vector code, without tables or calls of
libm.

The only branch is for the reduction of angles above one million. Each function reduces its argument
to a short interval, evaluates a polynomial that is accurate there to the last bits, and undoes the
reduction; see J.-M. Muller, "Elementary Functions" (chapters 10 and 11).

Coefficients are minimax fits, computed with 50 digits, of the function that a comment names,
relative to the function's full value: polynomials by the Remez exchange algorithm, quotients by
iteratively reweighted least squares (C. L. Lawson, 1961). The comment states the error of the fit;
tests/ops/test_accuracy.py bounds the error including rounding, in units in the last place (ulp).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from farrier.ir.instr import Operand
from farrier.targets.llvm import (
    exponentials,
    gates,
    hyperbolic,
    logarithms,
    normal,
    powers,
    trigonometry,
)
from farrier.targets.llvm.builder import Builder
from farrier.targets.llvm.float_code import FloatCode
from farrier.targets.llvm.values import Value

Expansion: TypeAlias = Callable[[FloatCode, Operand], Operand]


def expand(b: Builder, name: str, x: Value) -> Operand:
    """Emit the function `name` of `x`, and return the result. The function is a unary operator of
    the expression grammar for which machines have no instruction."""
    return _EXPANSIONS[name](FloatCode(b, x.dtype, x.lanes), x.operand)


def power(b: Builder, base: Value, exponent: Value) -> Operand:
    """Emit `base ** exponent` on floats, with C's results for zeros, infinities and NaN; return the
    result."""
    code = FloatCode(b, base.dtype, base.lanes)
    if exponent.const is not None and exponent.const in powers.SIMPLE_POWERS:
        return powers.SIMPLE_POWERS[exponent.const](code, base.operand)
    return powers.power(code, base.operand, exponent.operand)


def swish(b: Builder, x: Value, alpha: Value) -> Operand:
    """Emit `x * sigmoid(alpha * x)` on floats, and return the result."""
    factor = alpha.operand if alpha.const is None else float(alpha.const)
    return gates.swish(FloatCode(b, x.dtype, x.lanes), x.operand, factor)


_EXPANSIONS: dict[str, Expansion] = {
    "exp": exponentials.exp,
    "exp_nonpositive": exponentials.exp_nonpositive,
    "expm1": exponentials.expm1,
    "log": logarithms.log,
    "log1p": logarithms.log1p,
    "sinh": hyperbolic.sinh,
    "cosh": hyperbolic.cosh,
    "tanh": hyperbolic.tanh,
    "asinh": hyperbolic.asinh,
    "acosh": hyperbolic.acosh,
    "atanh": hyperbolic.atanh,
    "sin": trigonometry.sine(0),
    "cos": trigonometry.sine(1),
    "tan": trigonometry.tan,
    "asin": trigonometry.asin,
    "acos": trigonometry.acos,
    "atan": trigonometry.atan,
    "erf": normal.erf,
    "gelu": normal.gelu,
    "gelu_tanh": gates.gelu_tanh,
    "sigmoid": gates.sigmoid,
    "mish": gates.mish,
}
