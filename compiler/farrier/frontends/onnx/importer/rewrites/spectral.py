"""Rewrite Fourier transforms to products with matrices of cosines and sines, and compute the mel
scale."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from farrier.frontends.builder.node import RawNode
from farrier.frontends.builder.rewrites.fourier import LONGEST_PLAIN, Fourier, Signal
from farrier.frontends.builder.rewrites.known import check_made, constant
from farrier.frontends.builder.rewrites.numbers import Numbers
from farrier.frontends.builder.rewrites.ranges import places
from farrier.frontends.builder.symbolic import has_dims, ints
from farrier.frontends.onnx.importer.scope import ImportScope
from farrier.frontends.onnx.importer.tensors import dtype_of
from farrier.ir.dim import Extent, number
from farrier.ir.dim import product as product_of
from farrier.ops import Mismatch, NotSupported
from farrier.ops.operator import normal_axis, to_extents

Array = npt.NDArray[np.float64]


def dft(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite DFT. Before opset 20 the axis was an attribute."""
    x, shape = node.inputs[0], scope.shape(node.inputs[0])
    rank = len(shape)
    if opset < 20:
        axis = int(node.attrs.get("axis", 1))
    else:
        axis = int(constant(scope, node.inputs[2], "axis").item()) if node.input(2) else -2
    axis = normal_axis(axis, rank)
    if axis == rank - 1 or shape[-1] not in (1, 2):
        raise Mismatch(f"axis {axis} of {shape}, whose last axis holds real and imaginary parts")
    inverse, onesided = (bool(node.attrs.get(name, 0)) for name in ("inverse", "onesided"))
    count, parts = shape[axis], number(shape[-1])
    length = 2 * (count - 1) if inverse and onesided else count
    if node.input(1):
        (length,) = to_extents(scope.sizes(node.inputs[1]).reshape(-1))
    order = [a for a in range(rank) if a not in (axis, rank - 1)]
    turned = scope.add("Transpose", x, perm=(*order, axis, rank - 1))
    lead = [shape[a] for a in order]
    if isinstance(count, int) and isinstance(length, int) and length <= LONGEST_PLAIN:
        matrix = _matrix(count, parts, length, inverse, onesided)
        flat = scope.add("Reshape", turned, [*lead, count * parts])
        weights = scope.constant(matrix.reshape(-1, matrix[0, 0].size).astype(scope.dtype(x).numpy))
        product = scope.add("MatMul", flat, weights)
        results = matrix.shape[2:]
    else:
        flat = scope.add("Reshape", turned, [product_of(lead), count, parts])
        product, results = _long(flat, length, inverse, onesided, scope)
    back = scope.constant(ints([*lead, *results]))
    spread = scope.add("Reshape", product, back)
    perm = tuple(int(a) for a in np.argsort([*order, axis, rank - 1]))
    return [RawNode("Transpose", [spread], node.outputs, {"perm": perm}, node.origin)]


def _long(
    x: str, length: Extent, inverse: bool, onesided: bool, scope: ImportScope
) -> tuple[str, tuple[Extent, int]]:
    """Transform signals [signals, count, 1 or 2] of symbolic or great length; the last axis has the
    real and imaginary parts. Return the result and the extents of its last two axes."""
    count, parts = scope.shape(x)[1:]
    fourier = Fourier(scope, scope.dtype(x), inverse)
    signal = Signal(*(scope.add("Gather", x, part, axis=2) for part in range(number(parts))))
    if isinstance(count, int) and isinstance(length, int):
        if inverse and onesided:
            signal = _whole_spectrum(signal, count, length, fourier, scope)
        elif count != length:
            signal = _fitted(signal, count, length, fourier, scope)
        result = fourier(signal, length)
    elif inverse and onesided:
        result = fourier.open_real(signal, count, length)
    else:
        result = fourier.open(signal, count, length, length // 2 + 1 if onesided else length)
    if inverse:
        result = fourier.scaled(result, length)
    if inverse and onesided:
        return result.real, (length, 1)
    if onesided:
        half = (scope.constant(ints([bound])) for bound in (0, length // 2 + 1, 1))
        result = fourier.each(result, "Slice", *half)
    last = scope.constant(ints([2]))
    columns = (scope.add("Unsqueeze", part, last) for part in (result.real, result.imaginary))
    return scope.add("Concat", *columns, axis=2), (scope.shape(result.real)[1], 2)


def _fitted(
    signal: Signal, count: int, length: int, fourier: Fourier, scope: ImportScope
) -> Signal:
    """Cut a signal, or pad it with zeros, to `length` numbers."""
    last = scope.constant(ints([1]))
    if count < length:
        pads = scope.constant(ints([0, length - count]))
        return fourier.each(signal, "Pad", pads, "", last)
    bounds = (scope.constant(ints([bound])) for bound in (0, length))
    return fourier.each(signal, "Slice", *bounds, last)


def _whole_spectrum(
    signal: Signal, count: int, length: int, fourier: Fourier, scope: ImportScope
) -> Signal:
    """Return the spectrum of `length` numbers of a real signal, from its first half. The second
    half is the mirror image of the first: the same numbers in reverse order with negated imaginary
    parts."""
    half = length // 2 + 1
    signal = _fitted(signal, count, half, fourier, scope)
    mirrored = scope.constant(ints(np.arange((length - 1) // 2, 0, -1)))
    other = fourier.each(signal, "Gather", mirrored, axis=1)
    real = scope.add("Concat", signal.real, other.real, axis=1)
    if not signal.imaginary:
        return Signal(real)
    # The first number of such a spectrum is real, and so is the middle one of an even length.
    # Imaginary parts there are ignored.
    is_own = np.ones(half, scope.dtype(real).numpy)
    is_own[0], is_own[-1] = 0, length % 2
    own = scope.add("Mul", signal.imaginary, scope.constant(is_own))
    negative = scope.add("Neg", other.imaginary)
    return Signal(real, scope.add("Concat", own, negative, axis=1))


def _matrix(count: int, parts: int, length: int, inverse: bool, onesided: bool) -> Array:
    """Return the matrix of a transform, [count, parts, results, result parts]; parts are real and
    imaginary."""
    used = min(count, length)
    check_made(count, parts, length, 2)
    if inverse and onesided:
        return _real_inverse(count, parts, length)
    results = length // 2 + 1 if onesided else length
    angle = 2 * np.pi * (np.outer(np.arange(used), np.arange(results)) % length) / length
    turn = np.exp(1j * angle if inverse else -1j * angle) / (length if inverse else 1)
    matrix = np.zeros((count, parts, results, 2))
    matrix[:used, 0, :, 0], matrix[:used, 0, :, 1] = turn.real, turn.imag
    if parts == 2:
        matrix[:used, 1, :, 0], matrix[:used, 1, :, 1] = -turn.imag, turn.real
    return matrix


def _real_inverse(count: int, parts: int, length: int) -> Array:
    """Return the matrix of the inverse transform from half of a spectrum to a real signal, [count,
    parts, length, 1]; parts are real and imaginary. Every number counts twice, for itself and its
    omitted mirror image, except the first one and, for an even length, the middle one."""
    used = min(count, length // 2 + 1)
    k = np.arange(used)
    angle = 2 * np.pi * (np.outer(k, np.arange(length)) % length) / length
    twice = np.where((k == 0) | (2 * k == length), 1.0, 2.0)[:, None] / length
    matrix = np.zeros((count, parts, length, 1))
    matrix[:used, 0, :, 0] = twice * np.cos(angle)
    if parts == 2:
        matrix[:used, 1, :, 0] = -twice * np.sin(angle)
    return matrix


def stft(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite STFT: cut the signal into frames, and transform each frame times the window."""
    signal, shape = node.inputs[0], scope.shape(node.inputs[0])
    if len(shape) == 2:
        signal = scope.add("Unsqueeze", signal, [-1])
        shape = (*shape, 1)
    if len(shape) != 3 or shape[-1] not in (1, 2):
        raise Mismatch(f"a signal {shape}, and not [batch, length, 1 or 2]")
    parts = number(shape[-1])
    (step,), numbers = scope.elements(node.inputs[1]), Numbers(scope)
    if node.input(3):
        length = int(constant(scope, node.inputs[3], "frame_length").item())
    else:
        length = number(scope.shape(node.inputs[2])[0] if node.input(2) else shape[1])
    if step == 0 or length < 1 or shape[1] < length:
        raise Mismatch(f"frames of {length}, one every {step}, of a signal of {shape[1]}")
    count = numbers("Add", numbers("Div", shape[1] - length, step), 1)
    count = numbers("Where", numbers("Less", step, 1), -1, count)
    frames = numbers.size(count, shape[1] - length + 1)
    if frames == -1:
        raise Mismatch(f"frames one every {step}")
    onesided = bool(node.attrs.get("onesided", 1))
    if onesided and parts == 2:
        raise NotSupported("half of a complex signal's spectrum")
    first = scope.add("Mul", places(frames, scope), step)
    first = scope.add("Unsqueeze", first, [1])
    taken = scope.add("Gather", signal, scope.add("Add", first, places(length, scope)), axis=1)
    matrix = _matrix(length, parts, length, False, onesided)
    window = scope.data(node.inputs[2]) if node.input(2) else np.ones(1)
    if window is None:
        column = scope.add("Unsqueeze", node.inputs[2], [-1])
        taken = scope.add("Mul", taken, column)
    else:
        matrix = matrix * window.astype(np.float64).reshape(-1, 1, 1, 1)
    flat = scope.constant(ints([shape[0], frames, length * parts]))
    rows = scope.add("Reshape", taken, flat)
    weights = matrix.reshape(-1, matrix[0, 0].size).astype(scope.dtype(signal).numpy)
    product = scope.add("MatMul", rows, scope.constant(weights))
    back = scope.constant(ints([shape[0], frames, *matrix.shape[2:]]))
    return [RawNode("Reshape", [product, back], node.outputs, {}, node.origin)]


def mel_weight_matrix(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite MelWeightMatrix: a constant if its five parameters are constants, else nodes."""
    dtype = dtype_of(node.attrs.get("output_datatype", 1), f"the result of node {node.origin!r}")
    parameters = [scope.data(name) for name in node.inputs]
    if any(value is None or has_dims(value) for value in parameters):
        return [RawNode("Cast", [_mel(node, scope)], node.outputs, {"to": str(dtype)}, node.origin)]
    values = [value.item() for value in parameters if value is not None]
    weights = _mel_weights(int(values[0]), int(values[1]), *map(float, values[2:]))
    matrix = scope.constant(weights.astype(dtype.numpy))
    return [RawNode("Identity", [matrix], node.outputs, {}, node.origin)]


def _mel(node: RawNode, scope: ImportScope) -> str:
    """Return the name of the matrix of `_mel_weights`, in f64, for parameters known only at run
    time."""

    def p(op: str, *operands: str | float, **attrs: Any) -> str:
        names = (x if isinstance(x, str) else scope.constant(np.array(x)) for x in operands)
        return scope.add(op, *names, **attrs)

    bands, length, rate, low, high = (
        p("Cast", p("Reshape", name, scope.constant(ints([]))), to="f64") for name in node.inputs
    )
    columns = p("Cast", bands, to="i64")
    rows = p("Add", p("Cast", p("Floor", p("Div", length, 2.0)), to="i64"), 1)
    logarithm = 1 / np.log(10)
    first, last = (
        p("Mul", p("Log", p("Add", p("Div", hertz, 700.0), 1.0)), 2595 * logarithm)
        for hertz in (low, high)
    )
    step = p("Div", p("Sub", last, first), p("Add", bands, 2.0))
    band = p("Cast", places(scope.sizes(columns).item(), scope), to="f64")

    def corner(shift: float) -> str:
        mel = p("Add", p("Mul", p("Add", band, shift), step), first)
        hertz = p("Mul", p("Sub", p("Exp", p("Mul", mel, np.log(10) / 2595)), 1.0), 700.0)
        return p("Floor", p("Div", p("Mul", p("Add", length, 1.0), hertz), rate))

    left, middle, right = map(corner, (0.0, 1.0, 2.0))
    row = p("Cast", places(scope.sizes(rows).item(), scope), to="f64")
    k = p("Unsqueeze", row, scope.constant(ints([1])))
    up = p("Div", p("Sub", k, left), p("Max", p("Sub", middle, left), 1.0))
    up = p("Where", p("Equal", left, middle), 1.0, up)
    down = p("Div", p("Sub", right, k), p("Max", p("Sub", right, middle), 1.0))
    rises = p("And", p("GreaterOrEqual", k, left), p("LessOrEqual", k, middle))
    falls = p("And", p("GreaterOrEqual", k, middle), p("Less", k, right))
    return p("Where", falls, down, p("Where", rises, up, 0.0))


def _mel_weights(bands: int, length: int, rate: float, low: float, high: float) -> Array:
    """Return triangular filters [length/2 + 1, bands], whose corners are evenly spaced on the mel
    scale from `low` to one step below `high`."""
    check_made(length // 2 + 1, bands + 2)
    first, last = (2595 * np.log10(1 + hertz / 700) for hertz in (low, high))
    mel = first + np.arange(bands + 2) * (last - first) / (bands + 2)
    corners = 700 * (10 ** (mel / 2595) - 1)
    at = ((length + 1) * corners // rate).astype(np.int64)
    matrix = np.zeros((length // 2 + 1, bands))
    for band in range(bands):
        left, middle, right = at[band : band + 3]
        if left == middle:
            matrix[middle, band] = 1
        else:
            matrix[left : middle + 1, band] = np.arange(middle + 1 - left) / (middle - left)
        if right != middle:
            matrix[middle:right, band] = np.arange(right - middle, 0, -1) / (right - middle)
    return matrix
