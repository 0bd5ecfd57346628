"""The functional simulator, which computes the results of a program bit by bit: instructions
execute sequentially, as numpy operations on scratchpads.

Hardware executes instructions concurrently with the same results, as `tokens.prove` shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from farrier.targets.dae.description import Accelerator
from farrier.targets.dae.instructions import (
    ALU_LOOPS,
    GEMM_LOOPS,
    Alu,
    Form,
    Instruction,
    Kind,
    Pad,
    quantized_by,
)
from farrier.targets.dae.tokens import bytes_of

Array: TypeAlias = npt.NDArray[Any]
Ints: TypeAlias = npt.NDArray[np.int64]
_I32 = (-(1 << 31), (1 << 31) - 1)
_NAN = np.int32(0x7FC00000)


class Functional:
    """A functional simulator with its scratchpads, which are initialized with random data."""

    def __init__(self, accelerator: Accelerator) -> None:
        matrix = accelerator.matrix
        rng = np.random.default_rng(0)

        def noise(elements: int, *shape: int, dtype: Any = np.int8) -> Array:
            size = (elements, *shape)
            return rng.integers(-128, 128, size, np.int8).astype(dtype)

        self.accelerator = accelerator
        self._inputs = noise(accelerator.inputs, matrix.batch, matrix.inner)
        self._weights = noise(accelerator.weights, matrix.outer, matrix.inner)
        self._sums = noise(accelerator.sums, matrix.batch, matrix.outer, dtype=np.int32)

    def run(self, program: Sequence[Instruction], arguments: Sequence[memoryview]) -> None:
        """Run a program on `arguments`, whose bytes it modifies."""
        memories = [np.frombuffer(each, np.uint8) for each in arguments]
        steps = {
            Kind.LOAD: self._load,
            Kind.STORE: self._store,
            Kind.GEMM: self._gemm,
            Kind.ALU: self._alu,
        }
        for instruction in program:
            if instruction.kind is not Kind.FINISH:
                steps[instruction.kind](instruction, memories)

    # -- DRAM

    def _load(self, step: Instruction, memories: Sequence[Array]) -> None:
        pad = Pad(step["pad"])
        rows, columns = step["rows"], step["columns"]
        nbytes = bytes_of(pad, self.accelerator)
        source = _rows(memories[step["argument"]], step, columns * nbytes)
        padded = ((step["top"], step["bottom"]), (step["left"], step["right"]), (0, 0))
        content = source.reshape(rows, columns, nbytes)
        if any(map(any, padded)):
            content = np.pad(content, padded, constant_values=np.uint8(step["fill"] & 255))
        content = np.ascontiguousarray(content.reshape(-1, nbytes))
        match pad:
            case Pad.INPUT:
                target, values = self._inputs, content.view(np.int8)
            case Pad.WEIGHT:
                target, values = self._weights, content.view(np.int8)
            case Pad.SUM:
                target, values = self._sums, content.view(np.int32)
            case Pad.SIGNED:
                target, values = self._sums, content.view(np.int8)
            case Pad.UNSIGNED:
                target, values = self._sums, content
        first = step["index"]
        target[first : first + len(content)] = values.reshape(-1, *target.shape[1:])

    def _store(self, step: Instruction, memories: Sequence[Array]) -> None:
        rows, columns = step["rows"], step["columns"]
        first = step["index"]
        sums = self._sums[first : first + rows * columns].reshape(rows * columns, -1)
        sums = sums[:, : sums.shape[1] - step["omitted"]]
        if step["form"] == Form.BYTE:
            content = sums.astype(np.uint8)  # The lowest byte, as numpy's conversion wraps.
        else:
            content = np.ascontiguousarray(sums).view(np.uint8)
        content = content.reshape(rows, -1)
        _rows(memories[step["argument"]], step, content.shape[1])[...] = content

    # -- products

    def _gemm(self, step: Instruction, memories: Sequence[Array]) -> None:
        kept = [n for n in range(GEMM_LOOPS) if step[f"sum{n}"] or step[f"count{n}"] <= 1]
        summed = [n for n in range(GEMM_LOOPS) if n not in kept]
        outer = [n for n in kept if step[f"weight{n}"] and step[f"count{n}"] > 1]
        points = [n for n in kept if n not in outer]
        for weights, sums, inputs in zip(
            _places(step, "weight", outer),
            _places(step, "sum", outer),
            _places(step, "input", outer),
            strict=True,
        ):
            at = step["input"] + inputs + _places(step, "input", points)[:, None]
            left = self._inputs[at + _places(step, "input", summed)]
            right = self._weights[step["weight"] + weights + _places(step, "weight", summed)]
            products = _products(left, right)
            np.add.at(self._sums, step["sum"] + sums + _places(step, "sum", points), products)

    # -- sums

    def _alu(self, step: Instruction, memories: Sequence[Array]) -> None:
        """Execute a vector instruction for all points at once, except for loops that update the
        same sum repeatedly."""
        again = [n for n in range(ALU_LOOPS) if step[f"count{n}"] > 1 and not step[f"to{n}"]]
        points = [n for n in range(ALU_LOOPS) if n not in again]
        to = step["to"] + _places(step, "to", points)
        sources = step["from"] + _places(step, "from", points)
        factors = step["by"] + _places(step, "by", points)
        moved = zip(_places(step, "from", again), _places(step, "by", again), strict=True)
        with np.errstate(all="ignore"):
            for source, factor in moved:
                self._sums[to] = self._replaced(step, to, sources + source, factors + factor)

    def _replaced(self, step: Instruction, to: Ints, sources: Ints, factors: Ints) -> Array:
        operation, immediate = Alu(step["operation"]), np.array(step["immediate"], np.int32)
        sums = self._sums[to]
        other: Array = immediate if step["is_immediate"] else self._sums[sources]
        match operation:
            case Alu.ACCUMULATE:
                return _multiply_add(other, self._sums[factors], sums)
            case Alu.MULTIPLY_ADD:
                return _multiply_add(sums, immediate, other)
            case Alu.SCALE_ADD:
                return _multiply_add(_bits(sums.astype(np.float32)), immediate, other)
        return OPERATIONS[operation](sums, other)


def _rows(memory: Array, step: Instruction, nbytes: int) -> Array:
    """Return the rows in DRAM that a load or store accesses, as a view [rows, bytes]."""
    rows, stride = step["rows"], step["stride"]
    part = memory[step["offset"] :]
    assert (rows - 1) * stride + nbytes <= part.size, "an instruction reaches beyond its argument"
    return np.lib.stride_tricks.as_strided(part, (rows, nbytes), (stride, 1))


def _places(step: Instruction, name: str, loops: Sequence[int]) -> Ints:
    """Return the offsets of an operand in all iterations of the loops, the last loop varying
    fastest."""
    places = np.zeros(1, np.int64)
    for n in loops:
        steps = np.arange(max(1, step[f"count{n}"])) * step[f"{name}{n}"]
        places = (places[:, None] + steps).reshape(-1)
    return places


def _products(left: Array, right: Array) -> Array:
    """Return sums of products: inputs [points, terms, batch, inner] and weights [terms, outer,
    inner] → i32 [points, batch, outer]. They are computed in f64, which represents products of
    bytes and their sums exactly."""
    points, terms, batch, inner = left.shape
    rows = left.transpose(0, 2, 1, 3).reshape(points * batch, terms * inner)
    columns = right.transpose(0, 2, 1).reshape(terms * inner, -1)
    exact = np.float32 if terms * inner * (1 << 14) < 1 << 24 else np.float64
    sums: Array = rows.astype(exact) @ columns.astype(exact)
    return sums.astype(np.int64).astype(np.int32).reshape(points, batch, -1)


def _floats(bits: Array) -> Array:
    return bits.view(np.float32)


def _bits(floats: Array) -> Array:
    """Return the bits of floats, with every NaN replaced by the accelerator's only NaN."""
    bits = np.asarray(floats, np.float32).view(np.int32)
    is_nan = np.isnan(floats)
    return np.where(is_nan, _NAN, bits) if is_nan.any() else bits


def _of_floats(operation: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    return lambda a, b: _bits(operation(_floats(a), _floats(b)))


def _shift(a: Array, b: Array) -> Array:
    right = np.clip(b, 0, 31).astype(np.int32)
    left = np.clip(-b.astype(np.int64), 0, 31).astype(np.int32)
    shifted: Array = (a >> right) << left
    return shifted


def _quantize(a: Array, b: Array) -> Array:
    zero, low, high = quantized_by(int(b) & 0xFFFFFFFF)
    nearest = np.rint(_floats(a).astype(np.float64))
    whole = np.clip(np.nan_to_num(nearest, nan=0.0), *_I32).astype(np.int64) + zero
    bounded: Array = np.clip(whole, low, high).astype(np.int32)
    return bounded


def _multiply_add(a: Array, b: Array, c: Array) -> Array:
    """Return a · b + c of floats, rounded once.

    The product is exact in f64. Its sum with c is rounded to odd in f64, whose mantissa has more
    than two bits beyond that of f32; the final rounding to f32 then has the same result as a single
    rounding.
    """
    product = _floats(a).astype(np.float64) * _floats(b)
    addend = _floats(c).astype(np.float64)
    total = product + addend
    part = total - product
    rest = (product - (total - part)) + (addend - part)
    bits = total.view(np.int64)
    is_inexact = (rest != 0) & np.isfinite(total) & (bits & 1 == 0)
    away = np.where((rest > 0) == (total > 0), 1, -1)
    odd = np.where(is_inexact, bits + away, bits).view(np.float64)
    return _bits(odd.astype(np.float32))


OPERATIONS: Mapping[Alu, Callable[[Array, Array], Array]] = {
    Alu.MOVE: lambda a, b: np.broadcast_to(b, a.shape),
    Alu.ADD: lambda a, b: a + b,
    Alu.MIN: np.minimum,
    Alu.MAX: np.maximum,
    Alu.MULTIPLY: lambda a, b: a * b,
    Alu.SHIFT: _shift,
    Alu.TO_FLOAT: lambda a, b: _bits(a.astype(np.float32)),
    Alu.SCALE: lambda a, b: _bits(a.astype(np.float32) * _floats(b)),
    Alu.FLOAT_ADD: _of_floats(np.add),
    Alu.FLOAT_SUBTRACT: _of_floats(np.subtract),
    Alu.FLOAT_MULTIPLY: _of_floats(np.multiply),
    Alu.FLOAT_MIN: _of_floats(np.minimum),
    Alu.FLOAT_MAX: _of_floats(np.maximum),
    Alu.QUANTIZE: _quantize,
}
