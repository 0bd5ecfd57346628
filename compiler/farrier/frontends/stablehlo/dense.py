"""Parse the constants of a module: `dense<…>`."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import numpy.typing as npt

from farrier.errors import InvalidModelError, UnsupportedOperatorError
from farrier.frontends.stablehlo.module import Dense, TensorType
from farrier.ir.types import DType

_ELEMENT = re.compile(r"true|false|-?0x[0-9A-Fa-f]+|-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")
_MOST_RANK = 64


def dense_of(content: str, kind: TensorType) -> Dense:
    """Parse the text within `dense<…>`, a constant of type `kind`. Raises FarrierError."""
    dtype = kind.dtype
    if dtype is None:
        raise UnsupportedOperatorError(
            f"a constant has the element type {kind.element}, which Farrier does not have",
            hint="export a model of real numbers",
        )
    if None in kind.sizes or kind.rank > _MOST_RANK:
        raise InvalidModelError(f"a constant has the type {kind}")
    sizes = [size or 0 for size in kind.sizes]
    count = math.prod(sizes)
    if content.startswith('"'):
        elements = _of_hex(content[1:-1], dtype, kind)
    else:
        try:
            elements = _of_words(_ELEMENT.findall(content), dtype)
        except (ValueError, OverflowError):
            raise InvalidModelError(
                f"a constant of type {kind} has elements that are not of that type"
            ) from None
    if elements.size == 1:
        return Dense(elements.reshape(()), kind)
    if elements.size != count:
        raise InvalidModelError(f"a constant of type {kind} has {elements.size} elements")
    return Dense(elements.reshape(sizes), kind)


def _of_hex(digits: str, dtype: DType, kind: TensorType) -> npt.NDArray[Any]:
    """Return the elements encoded in a string of hexadecimal digits that begins with 0x."""
    try:
        data = bytes.fromhex(digits[2:])
    except ValueError:
        raise InvalidModelError(
            f"a constant of type {kind} has digits that are not hexadecimal"
        ) from None
    if len(data) % dtype.numpy.itemsize:
        raise InvalidModelError(f"a constant of type {kind} has {len(data)} bytes")
    return np.frombuffer(data, dtype.numpy)


def _of_words(words: list[str], dtype: DType) -> npt.NDArray[Any]:
    if dtype is DType.BOOL:
        return np.array([word in ("true", "1") for word in words], bool)
    if not dtype.is_float:
        return np.array([int(word, 0) for word in words], object).astype(dtype.numpy)
    return np.concatenate([_float(word, dtype) for word in words] or [np.empty(0, dtype.numpy)])


def _float(word: str, dtype: DType) -> npt.NDArray[Any]:
    """Parse a float and return it as an array of one element; hexadecimal digits are its bits."""
    if "x" not in word:
        return np.array([float(word)]).astype(dtype.numpy)
    nbytes = dtype.numpy.itemsize
    bits = int(word, 16) & ((1 << (8 * nbytes)) - 1)
    return np.frombuffer(bits.to_bytes(nbytes, "little"), dtype.numpy)
