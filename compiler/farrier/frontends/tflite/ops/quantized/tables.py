"""Rules of functions of one byte: a table of the results for all 256 bytes, computed as in
TFLite."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from farrier.frontends.builder import Builder
from farrier.frontends.tflite.call import Call, Rule
from farrier.frontends.tflite.ops.quantized.hard_swish import hard_swish
from farrier.frontends.tflite.ops.quantized.scales import Factor, Target, quantized
from farrier.frontends.tflite.schema import DTYPES, INT8, UINT8, Array
from farrier.ops import NotSupported

_FAR = 1 << 30  # This is beyond every integer of a result.
_BYTES = np.arange(256, dtype=np.uint8)


def _lookup(call: Call, b: Builder, results: Callable[[Array], Array]) -> str:
    """Return a lookup of each byte in a table of 256 results. `results` is a function of all input
    integers minus their zero point. It returns the output integers, to which the zero point is
    added before they are clamped."""
    source, target = call.tensor(0), call.outputs[0]
    if source.type not in (INT8, UINT8) or target.type not in (INT8, UINT8):
        raise NotSupported(f"{call.op} of quantized integers of 16 bits")
    integers = _BYTES.view(DTYPES[source.type].numpy).astype(np.int64)
    aim = Target.of(target)
    entries = results(integers - quantized(source).zero) + aim.zero
    entries = np.clip(entries, aim.low, aim.high).astype(aim.dtype.numpy)
    return b.add("ByteTable", call.value(0), entries=entries.tobytes().hex(), to=str(aim.dtype))


def _function(call: Call, b: Builder, *, function: Callable[[Array], Array]) -> str:
    """Convert an operator that applies a real function in f32 to the dequantized bytes."""
    scale, inverse = quantized(call.tensor(0)).scale[0], np.float32(1) / _scale(call)

    def results(integers: Array) -> Array:
        with np.errstate(all="ignore"):
            real = function(scale * integers.astype(np.float32)).astype(np.float32) * inverse
        whole = np.sign(real) * np.floor(np.abs(real.astype(np.float64)) + 0.5)
        finite = np.nan_to_num(whole, nan=0, posinf=_FAR, neginf=-_FAR)
        return np.asarray(finite.astype(np.int64))

    return _lookup(call, b, results)


def _scale(call: Call) -> np.float32:
    return np.float32(quantized(call.outputs[0]).scale[0])


def scaled(integers: Array, real: float) -> Array:
    """Return integers multiplied by a real factor, in numpy, as `Requantize` computes it."""
    factor = Factor.of(real)
    shifted = integers * 2 ** max(factor.shift, 0)
    product = (shifted * factor.multiplier + (1 << 30)) >> 31
    places = max(-factor.shift, 0)
    half = (1 << places) >> 1
    return np.asarray(np.sign(product) * ((np.abs(product) + half) >> places))


def _limited(call: Call, b: Builder, *, activation: int) -> str:
    """Convert RELU, RELU6 and similar operators: convert to the result's scale, and clamp."""
    x, aim = quantized(call.tensor(0)), Target.of(call.outputs[0], activation)
    real = x.real / quantized(call.outputs[0]).real

    def results(integers: Array) -> Array:
        return np.clip(scaled(integers, real), aim.low - aim.zero, aim.high - aim.zero)

    return _lookup(call, b, results)


def _leaky(call: Call, b: Builder) -> str:
    """Convert LEAKY_RELU, which has one factor for each sign of x."""
    real = quantized(call.tensor(0)).real / quantized(call.outputs[0]).real
    slope = real * float(call.option("alpha"))
    return _lookup(
        call,
        b,
        lambda x: np.where(x >= 0, scaled(x, real), scaled(x, slope)),
    )


def requantized_bytes(call: Call, b: Builder) -> str:
    """Convert QUANTIZE from bytes to another scale."""
    real = quantized(call.tensor(0)).real / quantized(call.outputs[0]).real
    return _lookup(call, b, lambda integers: scaled(integers, real))


def _logistic(x: Array) -> Array:
    return np.float32(1) / (np.float32(1) + np.exp(-x))


def _magnitude(call: Call, b: Builder) -> str:
    """Convert ABS: the distance from the zero point, converted to the result's scale."""
    real = quantized(call.tensor(0)).real / quantized(call.outputs[0]).real
    return _lookup(call, b, lambda integers: scaled(np.abs(integers), real))


def _hard_swish(call: Call, b: Builder) -> str:
    scale, result = quantized(call.tensor(0)).scale[0], _scale(call)
    return _lookup(call, b, lambda integers: hard_swish(integers, scale, result))


_FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "COS": np.cos,
    "ELU": lambda x: np.where(x < 0, np.expm1(x), x),
    "EXP": np.exp,
    "LOG": np.log,
    "LOGISTIC": _logistic,
    "RSQRT": lambda x: np.float32(1) / np.sqrt(x),
    "SIN": np.sin,
    "SQRT": np.sqrt,
    "TANH": np.tanh,
}
RULES: dict[str, Rule] = {
    **{
        name: functools.partial(_function, function=function)
        for name, function in _FUNCTIONS.items()
    },
    "ABS": _magnitude,
    "HARD_SWISH": _hard_swish,
    "LEAKY_RELU": _leaky,
    "RELU": functools.partial(_limited, activation=1),
    "RELU6": functools.partial(_limited, activation=3),
    "RELU_N1_TO_1": functools.partial(_limited, activation=2),
}
