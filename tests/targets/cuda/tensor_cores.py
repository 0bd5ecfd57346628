"""Instructions that the 32 threads of a warp run together: shfl, ldmatrix and mma.

Where the elements of a fragment lie is that of the PTX ISA, section "Matrix multiply-accumulate
operation using mma instruction". A lane is in group `lane // 4`, and has number `lane % 4` there.
"""

from __future__ import annotations

import re

import numpy as np

from tests.targets.cuda.traffic import LANES

_LANE = np.arange(LANES)
_GROUP, _NUMBER = _LANE // 4, _LANE % 4
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
_BITS = {"f16": 16, "bf16": 16, "tf32": 32, "s8": 8, "u8": 8}


def bf16(bits):
    """Return the numbers that 16 bits of bfloat16 are."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def tf32(bits):
    """Return the numbers that tensor cores take words for: the lowest 13 bits do not count."""
    return (bits & np.uint32(0xFFFFE000)).view(np.float32)


def _elements(words, kind):
    """Return the elements of a lane's words, [..., words, elements of a word], to compute with."""
    words = np.ascontiguousarray(words)
    parts = words[..., None].view(f"u{_BITS[kind] // 8}")
    if kind in ("s8", "u8"):
        return parts.view(np.int8 if kind == "s8" else np.uint8).astype(np.int32)
    if kind == "f16":
        return parts.view(np.float16).astype(np.float32)
    return bf16(parts) if kind == "bf16" else tf32(parts)


def multiply(shape, kinds, a, b, c):
    """Return a * b + c as the words of fragments, [warps, lanes, words]; `kinds` are the names of
    the types of a and b."""
    rows, columns, depth = map(int, _SHAPE.fullmatch(shape).groups())
    a, b = (_elements(each, kind) for each, kind in zip((a, b), kinds, strict=True))
    each = a.shape[-1]
    left = np.zeros((len(a), rows, depth), a.dtype)
    right = np.zeros((len(a), depth, columns), b.dtype)
    for word in range(a.shape[2]):
        for part in range(each):
            k = each * _NUMBER + part
            left[:, _GROUP + 8 * (word % 2), k + 4 * each * (word // 2)] = a[:, :, word, part]
    for word in range(b.shape[2]):
        for part in range(each):
            k = each * _NUMBER + part
            right[:, k + 4 * each * word, _GROUP] = b[:, :, word, part]
    product = left @ right
    result = np.empty_like(c)
    for word in range(c.shape[2]):
        rows_of, columns_of = _GROUP + 8 * (word // 2), 2 * _NUMBER + word % 2
        result[:, :, word] = c[:, :, word] + product[:, rows_of, columns_of]
    return result


def transposed_rows(rows, is_transposed):
    """Return the words that lanes get of a matrix of 8 by 8 pairs of bytes, [warps, 8, 8]."""
    pairs = [
        rows[:, 2 * _NUMBER + part, _GROUP]
        if is_transposed
        else rows[:, _GROUP, 2 * _NUMBER + part]
        for part in range(2)
    ]
    return pairs[0].astype(np.uint32) | pairs[1].astype(np.uint32) << np.uint32(16)


def shuffled(mode, value, operand):
    """Return what each lane gets of another one, [warps, lanes]."""
    lanes = np.broadcast_to(_LANE, value.shape)
    source = {
        "bfly": lanes ^ operand,
        "down": lanes + operand,
        "up": lanes - operand,
        "idx": operand,
    }[mode]
    inside = (source >= 0) & (source < LANES)
    return np.take_along_axis(value, np.where(inside, source, lanes), 1)
