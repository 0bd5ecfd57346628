"""Rules of functions of one tensor, elementwise or along its last axis."""

from __future__ import annotations

import functools

import numpy as np

from farrier.frontends.builder import Builder
from farrier.frontends.tflite.call import Call, Rule
from farrier.frontends.tflite.ops.activations import limited
from farrier.frontends.tflite.schema import COMPLEX64, DTYPES
from farrier.ops import NotSupported


def _function(call: Call, b: Builder, *, op: str) -> str:
    return b.add(op, call.value(0))


def _limit(call: Call, b: Builder, *, low: float, high: float | None) -> str:
    return limited(b, call.value(0), low, high)


def _square(call: Call, b: Builder) -> str:
    x = call.value(0)
    return b.add("Mul", x, x)


def _rsqrt(call: Call, b: Builder) -> str:
    return b.add("Reciprocal", b.add("Sqrt", call.value(0)))


def _leaky(call: Call, b: Builder) -> str:
    return b.add("LeakyRelu", call.value(0), alpha=float(call.option("alpha")))


def _prelu(call: Call, b: Builder) -> str:
    return b.add("PRelu", call.value(0), call.value(1))


def _gelu(call: Call, b: Builder) -> str:
    approximate = "tanh" if call.option("approximate") else "none"
    return b.add("Gelu", call.value(0), approximate=approximate)


def _softmax(call: Call, b: Builder) -> str:
    x, beta = call.value(0), float(call.option("beta"))
    if beta != 1.0:
        x = b.add("Mul", x, b.constant(np.array(beta, np.float32)))
    return b.add("Softmax", x, axis=-1)


def _log_softmax(call: Call, b: Builder) -> str:
    return b.add("LogSoftmax", call.value(0), axis=-1)


def _l2_normalized(call: Call, b: Builder) -> str:
    """Convert L2_NORMALIZATION: x / √max(Σ x², 1e-6), with the sum along the last axis and TFLite's
    lower bound."""
    x = call.value(0)
    total = b.add("ReduceSumSquare", x, [-1], keepdims=1)
    least = b.constant(np.array(1e-6, np.float32))
    return b.add("Div", x, b.add("Sqrt", b.add("Max", total, least)))


def _cast(call: Call, b: Builder) -> str:
    """Convert CAST. A complex number is converted to its real part."""
    x, to = call.value(0), call.outputs[0].type
    if to == COMPLEX64:
        raise NotSupported("a cast to complex numbers")
    if call.is_complex(0):
        x = b.add("Gather", x, b.constant(np.array(0)), axis=len(b.shape(x)) - 1)
    return b.add("Cast", x, to=str(DTYPES[to]))


def _zeros(call: Call, b: Builder) -> str:
    x = call.value(0)
    zero = b.constant(np.zeros((), b.dtype(x).numpy))
    return b.add("Expand", zero, list(b.shape(x)))


_OPS = {
    "ABS": "Abs",
    "CEIL": "Ceil",
    "COS": "Cos",
    "ELU": "Elu",
    "EXP": "Exp",
    "FLOOR": "Floor",
    "HARD_SWISH": "HardSwish",
    "LOG": "Log",
    "LOGICAL_NOT": "Not",
    "LOGISTIC": "Sigmoid",
    "NEG": "Neg",
    "RELU": "Relu",
    "ROUND": "Round",
    "SIGN": "Sign",
    "SIN": "Sin",
    "SQRT": "Sqrt",
    "TANH": "Tanh",
}
RULES: dict[str, Rule] = {
    **{name: functools.partial(_function, op=op) for name, op in _OPS.items()},
    "CAST": _cast,
    "GELU": _gelu,
    "L2_NORMALIZATION": _l2_normalized,
    "LEAKY_RELU": _leaky,
    "LOG_SOFTMAX": _log_softmax,
    "PRELU": _prelu,
    "RELU6": functools.partial(_limit, low=0.0, high=6.0),
    "RELU_0_TO_1": functools.partial(_limit, low=0.0, high=1.0),
    "RELU_N1_TO_1": functools.partial(_limit, low=-1.0, high=1.0),
    "RSQRT": _rsqrt,
    "SOFTMAX": _softmax,
    "SQUARE": _square,
    "ZEROS_LIKE": _zeros,
}
