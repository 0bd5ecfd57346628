"""Elementary functions as straight-line vector code: no table, no libm, and no branch but one
before angles of more than a million.

Each reduces its argument to a short interval, where a polynomial is good to the last bits, and
puts the result together again; see J.-M. Muller, "Elementary Functions" (chapters 10 and 11).
Literal coefficients are minimax fits to the function named beside them, with 50 digits, relative to
the function's whole value: polynomials by Remez' exchange, quotients by least squares whose weights
follow the error (C. L. Lawson, 1961). The error beside them is the fit's own; with what rounding
adds, every function is within 4 units in the last place (tests/codegen/test_accuracy.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from farrier.targets.cpu.codegen import (
    exponentials,
    gates,
    hyperbolic,
    logarithms,
    normal,
    powers,
    trigonometry,
)
from farrier.targets.cpu.codegen.builder import Builder
from farrier.targets.cpu.codegen.float_code import FloatCode
from farrier.targets.cpu.codegen.text import Value

Expansion: TypeAlias = Callable[[FloatCode, str], str]


def expand(b: Builder, name: str, x: Value) -> str:
    """The SSA value of the function `name` of `x`: a unary operator of the expression grammar that
    no instruction computes."""
    return _EXPANSIONS[name](FloatCode(b, x.dtype, x.lanes), x.text)


def power(b: Builder, base: Value, exponent: Value) -> str:
    """`base ** exponent` on floats with C's conventions for zeros, infinities and NaN."""
    code = FloatCode(b, base.dtype, base.lanes)
    if exponent.const is not None and exponent.const in powers.SIMPLE_POWERS:
        return powers.SIMPLE_POWERS[exponent.const](code, base.text)
    return powers.power(code, base.text, exponent.text)


def swish(b: Builder, x: Value, alpha: Value) -> str:
    """`x * sigmoid(alpha * x)` on floats."""
    factor = alpha.text if alpha.const is None else float(alpha.const)
    return gates.swish(FloatCode(b, x.dtype, x.lanes), x.text, factor)


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
