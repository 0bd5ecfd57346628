"""Nodes that compute element by element."""

from __future__ import annotations

from typing import Any

import numpy as np
from draft import (
    ALL_FLOATS,
    ANY,
    BOOL,
    DOUBLE,
    FLOAT,
    FLOATS,
    HALF,
    INT8,
    INT32,
    INT64,
    NUMBERS,
    UINT8,
    WHOLE,
    Call,
    Draft,
    Tensor,
)
from onnx import helper

_MOVING = ("Identity", "Dropout")
_EXACT = ("Abs", "Neg", "Relu", *_MOVING)
_STEPS = ("Floor", "Ceil", "Round", "Sign", "Shrink", "ThresholdedRelu", "IsInf", "IsNaN")
_SMOOTH = (
    *("Atan", "Celu", "Cos", "Elu", "Erf", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu"),
    *("Mish", "Selu", "Sigmoid", "Sin", "Softplus", "Softsign", "Tanh", "Asinh"),
)
# Results may be infinite or NaN: nothing is computed from them.
_PARTIAL = ("Acos", "Acosh", "Asin", "Atanh", "Log", "Reciprocal", "Sqrt", "Tan")
_GROWING = ("Cosh", "Exp", "Sinh")
_ONLY_F32 = frozenset(
    ("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Celu", "Cosh", "HardSwish", "Mish")
)
_ONLY_F32 |= {"Sinh", "Tan"}


def _float(d: Draft, op: str, **wanted: Any) -> Tensor:
    return d.pick((FLOAT,) if op in _ONLY_F32 else ALL_FLOATS, op=op, **wanted)


def unary(d: Draft) -> Call:
    kind = d.rng.random()
    if kind < 0.2:
        op = d.choice(_EXACT)
        return Call(op, [d.pick(ANY, op=op)], exact=True)
    if kind < 0.35:
        op = d.choice(_STEPS)
        return Call(op, [_float(d, op, exact=True)], exact=op not in ("Shrink",))
    if kind < 0.5:
        op = d.choice(_PARTIAL)
        return Call(op, [_float(d, op, exact=True)], magnitude=np.inf)
    if kind < 0.6:
        op = d.choice(_GROWING)
        x = _float(d, op, most=4.0)
        return Call(op, [x], magnitude=float(np.exp(x.magnitude)))
    op = d.choice(_SMOOTH)
    return Call(op, [_float(d, op)])


def _pair(d: Draft, a: Tensor) -> Tensor | np.ndarray[Any, Any]:
    return d.other(d.broadcast_to(a.shape) if d.rng.random() < 0.6 else a.shape, a.dtype)


def _magnitude(operand: Any) -> float:
    return operand.magnitude if isinstance(operand, Tensor) else 2.0


def binary(d: Draft) -> Call:
    op = d.choice(("Add", "Sub", "Mul", "Max", "Min", "PRelu"))
    a = d.pick(ANY, op=op, most=100.0)
    b = _pair(d, a)
    left, right = a.magnitude, _magnitude(b)
    magnitude = left * right + left if op in ("Mul", "PRelu") else left + right
    swapped = d.rng.random() < 0.3 and op != "PRelu"
    return Call(op, [b, a] if swapped else [a, b], exact=op != "PRelu", magnitude=magnitude)


def _divisor(d: Draft, a: Tensor) -> np.ndarray[Any, Any]:
    """A constant without zeros."""
    array = d.array(d.broadcast_to(a.shape), a.dtype)
    return np.where(array == 0, array.dtype.type(3), array)


def divide(d: Draft) -> Call:
    op = d.choice(("Div", "Mod"))
    a = d.pick((*ALL_FLOATS, *WHOLE), op=op, exact=op == "Mod", most=100.0)
    attrs = {"fmod": 1} if op == "Mod" and (a.is_float or d.rng.random() < 0.3) else {}
    magnitude = 8 * a.magnitude if op == "Div" else a.magnitude
    exact = not a.is_float or op == "Mod"
    return Call(op, [a, _divisor(d, a)], attrs=attrs, exact=exact, magnitude=magnitude)


def power(d: Draft) -> Call:
    a = d.pick((FLOAT, FLOAT, DOUBLE), exact=True, most=20.0)
    exponent = np.array(d.choice((0.0, 1.0, 2.0, 3.0, 0.5, -1.0)), _numpy(a.dtype))
    return Call("Pow", [a, exponent], magnitude=np.inf)


def many(d: Draft) -> Call:
    op = d.choice(("Sum", "Mean", "Max", "Min"))
    a = d.pick((FLOAT, FLOAT, DOUBLE), op=op, most=100.0)
    others = [d.other(d.broadcast_to(a.shape), a.dtype) for _ in range(d.between(0, 3))]
    magnitude = a.magnitude + sum(map(_magnitude, others))
    return Call(op, [a, *others], exact=op != "Mean", magnitude=magnitude)


def compare(d: Draft) -> Call:
    op = d.choice(("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"))
    a = d.pick((*NUMBERS, *WHOLE), op=op, exact=True)
    b = _pair(d, a)
    if isinstance(b, Tensor) and not b.exact:
        b = d.array(b.shape, b.dtype)
    return Call(op, [a, b], exact=True, magnitude=1.0)


def logic(d: Draft) -> Call:
    a = d.pick((BOOL,))
    if d.rng.random() < 0.3:
        return Call("Not", [a], exact=True)
    return Call(d.choice(("And", "Or", "Xor")), [a, _pair(d, a)], exact=True)


def bitwise(d: Draft) -> Call:
    op = d.choice(("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "BitShift"))
    a = d.pick(WHOLE, op=op)
    if op == "BitwiseNot":
        return Call(op, [a], exact=True)
    if op == "BitShift":
        bits = d.arrays.integers(0, 8, d.broadcast_to(a.shape)).astype(_numpy(a.dtype))
        way = d.choice(("LEFT", "RIGHT"))
        return Call(op, [a, bits], attrs={"direction": way}, exact=True)
    return Call(op, [a, _pair(d, a)], exact=True)


def where(d: Draft) -> Call:
    a = d.pick(ANY)
    condition = d.other(d.broadcast_to(a.shape), BOOL)
    b = d.other(d.broadcast_to(a.shape), a.dtype)
    exact = not isinstance(b, Tensor) or b.exact
    return Call("Where", [condition, *((a, b) if d.rng.random() < 0.5 else (b, a))], exact=exact)


def cast(d: Draft) -> Call:
    to = d.choice(ANY)
    x = d.pick(ANY, exact=True, most=100.0)
    if to in (UINT8, INT8) or (to in WHOLE and x.is_float):
        x = d.pick((*NUMBERS, BOOL), exact=True, most=100.0)
    if to not in (*FLOATS, HALF, INT32, INT64, BOOL) and (x.is_float or x.magnitude > 100):
        to = INT32  # The conversion of a value outside an integer type's range is undefined.
    return Call("Cast", [x], attrs={"to": to}, exact=True)


def clip(d: Draft) -> Call:
    a = d.pick((*ALL_FLOATS, *WHOLE), op="Clip")
    kind = _numpy(a.dtype)
    low = np.array(-0.5 if a.is_float else 3, kind) if d.rng.random() < 0.7 else None
    return Call("Clip", [a, low, np.array(1.5 if a.is_float else 50, kind)], exact=True)


def quantize(d: Draft) -> Call:
    """To bytes and back, by steps that eighths are multiples of."""
    x = d.pick((FLOAT,), exact=True, most=16.0)
    kind = d.choice((np.uint8, np.int8))
    scale, zero = np.array(d.choice((0.125, 0.25, 0.5)), np.float32), np.array(3, kind)
    (q,) = d.add(Call("QuantizeLinear", [x, scale, zero], exact=True, magnitude=100.0))
    return Call("DequantizeLinear", [q, scale, zero], exact=True, magnitude=16.0)


def _numpy(dtype: int) -> Any:
    return helper.tensor_dtype_to_np_dtype(dtype)
