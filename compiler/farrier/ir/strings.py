"""Strings as tensors of code points, the only form in which the compiler handles them.

A tensor of strings of shape S is a u32 tensor of shape S + (width,): each string's code points,
then zeros, which is how numpy's dtype `U` lies in memory. A string may not contain the character 0,
since it could not be distinguished from the padding. The width is at least 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_LAST = 0x10FFFF  # code point
_NUL = "a string contains NUL, with which Farrier fills strings up"


def codes_of(strings: npt.ArrayLike) -> Array:
    """Return the code points of an array of str, of bytes (UTF-8), or of objects of these types, as
    u32. The width is that of numpy's dtype `U` for the strings. Raises ValueError for any other
    content, and for a string that contains NUL."""
    array = np.asarray(strings)
    if array.dtype.kind not in "USOT":
        raise ValueError(f"it is {array.dtype}, not strings")
    is_array_of_codes = array.dtype.kind == "U"
    if not is_array_of_codes:
        values = array.reshape(-1).tolist()
        if not {*map(type, values)} <= {str}:
            values = list(map(_text, values))
        if "\0" in "".join(values):
            raise ValueError(_NUL)
        array = np.array(values, np.str_).reshape(array.shape)
    array = np.asarray(array, array.dtype.newbyteorder("="), order="C")
    width = array.dtype.itemsize // 4
    if not width:
        return np.zeros((*array.shape, 1), np.uint32)
    codes: Array = np.ndarray((*array.shape, width), np.uint32, array)
    if not is_array_of_codes:
        return codes  # A str has code points, and no NUL is among them.
    if codes.size and codes.max() > _LAST:
        raise ValueError(f"it contains {int(codes.max())}, which is no code point")
    if np.any((codes[..., :-1] == 0) & (codes[..., 1:] != 0)):
        raise ValueError(_NUL)
    return codes


def _text(value: Any) -> str:
    """Return `value` as a str. Raises ValueError, of which UnicodeDecodeError is a subclass."""
    text = value.decode() if isinstance(value, bytes) else value
    if not isinstance(text, str):
        raise ValueError(f"it contains {value!r}, which is no string")
    return text


def strings_of(codes: Array) -> Array:
    """Return the strings that an array of code points represents, of dtype `U`; the inverse of
    `codes_of`."""
    *shape, width = codes.shape
    return np.ndarray(tuple(shape), f"U{width}", np.ascontiguousarray(codes))


def fitted(codes: Array, width: int) -> Array:
    """Return the code points padded with zeros to `width` characters per string. Raises ValueError
    for a longer string."""
    if codes[..., width:].any():
        raise ValueError(f"a string has more than {width} characters")
    codes = codes[..., :width]
    more = width - codes.shape[-1]
    return np.pad(codes, [(0, 0)] * (codes.ndim - 1) + [(0, more)]) if more else codes


def random_strings(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return the code points of random words of lower-case letters and blanks."""
    alphabet = np.array([ord(c) for c in "aabbccdefgh   "], np.uint32)
    codes = alphabet[generator.integers(0, len(alphabet), shape)]
    lengths = generator.integers(0, shape[-1] + 1, shape[:-1])
    return np.where(np.arange(shape[-1]) < lengths[..., None], codes, 0).astype(np.uint32)
