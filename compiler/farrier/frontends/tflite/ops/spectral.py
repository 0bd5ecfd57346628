"""Rules of Fourier transforms. Complex numbers are pairs along a last axis."""

from __future__ import annotations

import functools

import numpy as np

from farrier.frontends.builder import Builder
from farrier.frontends.builder.rewrites.fourier import Fourier, Signal
from farrier.frontends.tflite.call import Call, Rule
from farrier.ir.types import DType
from farrier.ops import Mismatch

_MOST = 1 << 20  # A transform takes this many numbers at most.


def _spectrum(call: Call, b: Builder) -> str:
    """Convert RFFT2D: transform the last two axes, cut or padded with zeros to the lengths in the
    second operand. Only half of the spectrum is returned along the last axis."""
    lengths = call.ints(1)
    if len(lengths) != 2 or not all(0 < length <= _MOST for length in lengths):
        raise Mismatch(f"the lengths of its transform are {lengths}")
    x = call.value(0)
    for axis, length in zip((-2, -1), lengths, strict=True):
        x = _fitted(b, x, axis, length)
    height, width = lengths
    outer = b.shape(x)[:-2]
    fourier = Fourier(b, DType.F32, inverse=False)
    half = width // 2 + 1
    signal = fourier(Signal(b.add("Reshape", x, [-1, width])), width)
    signal = fourier.each(signal, "Slice", *(b.constant(np.array([v])) for v in (0, half, 1)))
    if height > 1:
        signal = _along_rows(b, fourier, signal, height, half)
    parts = [
        b.add("Unsqueeze", b.add("Reshape", part, [*outer, height, half]), [-1])
        for part in (signal.real, signal.imaginary)
    ]
    return b.add("Concat", *parts, axis=-1)


def _along_rows(b: Builder, fourier: Fourier, signal: Signal, height: int, half: int) -> Signal:
    """Transform a signal along the height of its images. It was transformed along its rows before,
    and has the shape [images · height, half]."""
    images, rows = (b.constant(np.array([-1, *sizes])) for sizes in ((height, half), (height,)))
    columns = b.constant(np.array([-1, half, height]))
    flat = b.constant(np.array([-1, half]))
    turned = fourier.each(fourier.each(signal, "Reshape", images), "Transpose", perm=(0, 2, 1))
    turned = fourier(fourier.each(turned, "Reshape", rows), height)
    turned = fourier.each(fourier.each(turned, "Reshape", columns), "Transpose", perm=(0, 2, 1))
    return fourier.each(turned, "Reshape", flat)


def _fitted(b: Builder, x: str, axis: int, length: int) -> str:
    extent = b.shape(x)[axis]
    if extent == length:
        return x
    if extent > length:
        return b.add("Slice", x, [0], [length], [axis])
    return b.add("Pad", x, [0, length - extent], "", [axis], mode="constant")


def _part(call: Call, b: Builder, *, place: int) -> str:
    """Convert REAL (`place` 0) and IMAG (`place` 1): the real or the imaginary part of complex
    numbers."""
    x = call.value(0)
    return b.add("Gather", x, b.constant(np.array(place)), axis=len(b.shape(x)) - 1)


def _magnitude(call: Call, b: Builder) -> str:
    return b.add("ReduceL2", call.value(0), [-1], keepdims=0)


RULES: dict[str, Rule] = {
    "COMPLEX_ABS": _magnitude,
    "IMAG": functools.partial(_part, place=1),
    "REAL": functools.partial(_part, place=0),
    "RFFT2D": _spectrum,
}
