"""The results of PTX's instructions, by name, on numpy arrays over threads."""

from __future__ import annotations

import numpy as np


def _quotient(a, b):
    if np.issubdtype(a.dtype, np.floating):
        return a / b
    safe = np.where(b == 0, np.ones_like(b), b)
    return (a - np.fmod(a, safe)) // safe


def _remainder(a, b):
    return np.fmod(a, np.where(b == 0, np.ones_like(b), b))


def _fma(a, b, c):
    wide = np.longdouble if a.dtype == np.float64 else np.float64
    return (a.astype(wide) * b.astype(wide) + c.astype(wide)).astype(a.dtype)


def _upper(a, b):
    """The upper half of a product, of 32 or 64 bits."""
    bits = 8 * a.dtype.itemsize
    product = a.astype(object) * b.astype(object)
    return (product >> bits).astype(a.dtype)


def as_bf16(value):
    """Return floats of 32 bits as the 16 bits of bfloat16, rounded to even."""
    bits = value.astype(np.float32).view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    rounded = (bits + np.uint32(0x7FFF) + odd) >> np.uint32(16)
    return np.where(np.isnan(value), np.uint32(0x7FFF), rounded).astype(np.uint16)


def as_tf32(value):
    """Return floats as words of tf32: 11 significant bits, halves away from zero."""
    bits = (value.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    return np.where(np.isnan(value), np.uint32(0x7FFFFFFF), bits)


BINARY = {
    "div": _quotient,
    "rem": _remainder,
    "min": np.fmin,
    "max": np.fmax,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "copysign": lambda sign, size: np.copysign(size, sign),
}
OF_NAN = {"min": np.minimum, "max": np.maximum}


def _leading_zeros(a):
    """The zeros above the highest bit that is set."""
    bits = 8 * a.dtype.itemsize
    return np.array([bits - int(each).bit_length() for each in a], np.uint32)


UNARY = {
    "clz": _leading_zeros,
    "not": np.invert,
    "neg": np.negative,
    "abs": np.abs,
    "sqrt": np.sqrt,
    "rcp": np.reciprocal,
    "ex2": np.exp2,
    "rsqrt": lambda x: np.reciprocal(np.sqrt(x)),
}
UPPER = _upper
FMA = _fma
_ORDERS = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}
JOINED = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
ROUNDED = {"rni": np.rint, "rmi": np.floor, "rpi": np.ceil, "rzi": np.trunc}


def compare(order, a, b):
    """Return a comparison; of floats `ne` is ordered, and an order that ends in u holds of NaN."""
    if not np.issubdtype(a.dtype, np.floating):
        return _ORDERS[order](a, b)
    either = np.isnan(a) | np.isnan(b)
    if order in ("nan", "num"):
        return either if order == "nan" else ~either
    if order.endswith("u"):
        return _ORDERS[order[:-1]](a, b) | either
    return _ORDERS[order](a, b) & ~either


def shift(name, a, amount):
    """Shift; an amount beyond the width leaves nothing but the sign."""
    bits = 8 * a.dtype.itemsize
    most = np.minimum(amount, bits - 1).astype(a.dtype)
    shifted = a << most if name == "shl" else a >> most
    is_signed = name == "shr" and np.issubdtype(a.dtype, np.signedinteger)
    return shifted if is_signed else np.where(amount < bits, shifted, np.zeros_like(a))


def convert(value, to, suffixes):
    """Convert by the rounding that the suffixes name; floats to integers saturate."""
    rounding = next((ROUNDED[each] for each in suffixes if each in ROUNDED), None)
    is_float = np.issubdtype(value.dtype, np.floating)
    if rounding is not None and is_float:
        value = rounding(value)
    if not is_float or np.issubdtype(to, np.floating):
        return value.astype(to)
    limits = np.iinfo(to)
    wide = value.astype(np.longdouble)
    inside = np.clip(np.where(np.isnan(wide), 0, wide), limits.min, limits.max)
    return inside.astype(to)
