"""Fourier transforms along axes that are long or symbolic, as matrix products.

A signal is a matrix [signals, numbers] of real parts and another one of imaginary parts. A
transform of length a·b consists of transforms of length a, a multiplication by twiddle factors, and
transforms of length b (Cooley and Tukey): two products with small matrices. If the length has no
suitable factors, the transform is a convolution with a chirp whose length is a power of two
(Bluestein).
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from farrier.frontends.builder.builder import Builder
from farrier.frontends.builder.rewrites.known import check_made
from farrier.frontends.builder.rewrites.ranges import places
from farrier.frontends.builder.symbolic import ints
from farrier.ir.dim import Extent
from farrier.ir.types import DType

Complex = npt.NDArray[np.complex128]

# Up to this number of results a transform is one product; its matrices take 2 MiB in f32.
LONGEST_PLAIN = 512
# Up to this count, if it has no factors, a transform is one product; its matrices take 32 MiB in
# f32.
_LONGEST_MATRIX = 2048
# A smaller factor saves too few multiplications to pay for two products and their transpositions.
_LEAST_FACTOR = 8


@dataclasses.dataclass(frozen=True, slots=True)
class Signal:
    """The names of a signal's real and imaginary parts; `imaginary` is "" for a real signal."""

    real: str
    imaginary: str = ""


class Fourier:
    """Forward or inverse transforms of signals of one dtype, without the factor 1/n of the
    inverse."""

    def __init__(self, scope: Builder, dtype: DType, inverse: bool) -> None:
        self._scope, self._dtype, self._sign = scope, dtype, 1 if inverse else -1

    def __call__(self, signal: Signal, count: int) -> Signal:
        """Transform the last axis, of constant length `count`."""
        if count <= LONGEST_PLAIN:
            return self._product(signal, self._turns(count, count))
        first = next(a for a in range(math.isqrt(count), 0, -1) if count % a == 0)
        if first >= _LEAST_FACTOR:
            return self._split(signal, first, count // first)
        if count <= _LONGEST_MATRIX:
            return self._product(signal, self._turns(count, count))
        return self._chirped(signal, count)

    def open(self, signal: Signal, count: Extent, length: Extent, results: Extent) -> Signal:
        """Return the first `results` numbers of the transform of period `length` of a signal's
        first `count` numbers. All three may be symbolic: the matrix of the transform is computed at
        run time."""
        return self._times(signal, *self._open_matrix(count, length, results))

    def open_real(self, signal: Signal, count: Extent, length: Extent) -> Signal:
        """Return the real signal of `length` numbers whose spectrum has `signal` as its first half,
        which consists of `count` numbers. All numbers of the half except the first and the middle
        one count twice, because each also stands for its mirror image in the second half."""
        add, constant = self._scope.add, self._scope.constant
        k = places(count, self._scope)
        end = self._scope.unknown(constant(ints(length)))
        is_first = add("Equal", k, constant(ints(0)))
        is_middle = add("Equal", add("Add", k, k), end)
        unit, two = (constant(np.array(value, self._dtype.numpy)) for value in (1, 2))
        twice = add("Where", add("Or", is_first, is_middle), unit, two)
        result = self.open(self.each(signal, "Mul", twice), count, length, length)
        return Signal(result.real)

    def _open_matrix(self, count: Extent, length: Extent, results: Extent) -> tuple[str, str]:
        """Return the matrix [count, results] of exp(±2πi · row · column / length), with zeros in
        rows from `length` on."""
        scope = self._scope
        end = scope.unknown(scope.constant(ints(length)))
        rows = scope.add("Unsqueeze", places(count, scope), [1])
        steps = scope.add("Mod", scope.add("Mul", rows, places(results, scope)), end)
        share = scope.add("Div", *(scope.add("Cast", name, to="f64") for name in (steps, end)))
        turn = scope.constant(np.array(2 * np.pi * self._sign))
        angle = scope.add("Mul", share, turn)
        parts = [scope.add(op, angle) for op in ("Cos", "Sin")]
        if count != length:
            within = scope.add("Less", rows, end)
            zero = scope.constant(np.array(0.0))
            parts = [scope.add("Where", within, part, zero) for part in parts]
        real, imaginary = (scope.add("Cast", part, to=str(self._dtype)) for part in parts)
        return real, imaginary

    def _turns(self, rows: int, columns: int, period: int = 0) -> Complex:
        """Return the matrix [rows, columns] with the elements exp(±2πi · row · column / period). By
        default, `period` is `columns`."""
        check_made(rows, columns, 2)
        period = period or columns
        steps = np.outer(np.arange(rows), np.arange(columns)) % period
        turns: Complex = np.exp(self._sign * 2j * np.pi * steps / period)
        return turns

    def _constant(self, values: npt.NDArray[Any]) -> str:
        return self._scope.constant(np.ascontiguousarray(values).astype(self._dtype.numpy))

    def _product(self, signal: Signal, matrix: Complex) -> Signal:
        """Multiply the signal's last axis by a complex matrix."""
        return self._times(signal, self._constant(matrix.real), self._constant(matrix.imag))

    def _times(self, signal: Signal, real: str, imaginary: str, op: str = "MatMul") -> Signal:
        """Multiply the signal by a complex tensor with these parts, as matrices or (with `op`
        "Mul") elementwise."""
        add = self._scope.add
        if not signal.imaginary:
            return Signal(add(op, signal.real, real), add(op, signal.real, imaginary))
        return Signal(
            add("Sub", add(op, signal.real, real), add(op, signal.imaginary, imaginary)),
            add("Add", add(op, signal.real, imaginary), add(op, signal.imaginary, real)),
        )

    def scaled(self, signal: Signal, length: Extent) -> Signal:
        """Divide the signal by a length, which may be symbolic."""
        name = self._scope.unknown(self._scope.constant(ints(length)))
        return self.each(signal, "Div", self._scope.add("Cast", name, to=str(self._dtype)))

    def turned(self, signal: Signal, turns: Complex) -> Signal:
        """Multiply the signal elementwise by complex constants."""
        parts = (self._constant(turns.real), self._constant(turns.imag))
        return self._times(signal, *parts, op="Mul")

    def each(self, signal: Signal, op: str, *operands: str, **attrs: Any) -> Signal:
        """Apply an operator to the real and to the imaginary part."""
        real = self._scope.add(op, signal.real, *operands, **attrs)
        if not signal.imaginary:
            return Signal(real)
        return Signal(real, self._scope.add(op, signal.imaginary, *operands, **attrs))

    def _split(self, signal: Signal, first: int, second: int) -> Signal:
        """Transform first · second numbers by transforms of length `first` and of length `second`:
        input n = second · i + j contributes to result k = p + first · q."""

        def reshaped(value: Signal, *shape: int) -> Signal:
            return self.each(value, "Reshape", self._scope.constant(ints([-1, *shape])))

        rows = self.each(reshaped(signal, first, second), "Transpose", perm=(0, 2, 1))
        turned = self._product(rows, self._turns(first, first))  # Its last axes are [j, p].
        turned = self.turned(turned, self._turns(second, first, first * second))
        turned = self.each(turned, "Transpose", perm=(0, 2, 1))
        inner = self(reshaped(turned, second), second)  # Its axes are [p, q].
        ordered = self.each(reshaped(inner, first, second), "Transpose", perm=(0, 2, 1))
        return reshaped(ordered, first * second)

    def _chirped(self, signal: Signal, count: int) -> Signal:
        """Transform by Bluestein's algorithm, a convolution, using nk = (n² + k² - (k - n)²) /
        2."""
        scope = self._scope
        size = 1 << (2 * count - 2).bit_length()
        squares = np.arange(count) ** 2 % (2 * count)
        chirp = np.exp(self._sign * 1j * np.pi * squares / count)
        kernel = np.zeros(size, np.complex128)
        kernel[:count] = chirp.conj()
        kernel[size - count + 1 :] = chirp[:0:-1].conj()
        spectrum = np.fft.ifft(kernel) * size if self._sign > 0 else np.fft.fft(kernel)
        pads = scope.constant(ints([0, size - count]))
        last = scope.constant(ints([1]))
        padded = self.each(self.turned(signal, chirp), "Pad", pads, "", last)
        product = self.turned(self(padded, size), spectrum)
        back = Fourier(scope, self._dtype, inverse=self._sign < 0)
        bounds = (scope.constant(ints([value])) for value in (0, count, 1))
        return self.turned(self.each(back(product, size), "Slice", *bounds), chirp / size)
