"""The steps of an epilogue on tiles of sums, and the fusion of steps."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Sequence

from farrier.ir.types import Layout
from farrier.targets.dae.images import Image
from farrier.targets.dae.instructions import (
    QUANTIZE_BITS,
    Alu,
    Pad,
    quantized_by,
    quantizing,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Sums:
    """The tile with the sums of the product."""


@dataclasses.dataclass(frozen=True, slots=True)
class Tensor:
    """A tile of another tensor with the same points as the output, loaded in a given form."""

    image: Image
    form: Pad


@dataclasses.dataclass(frozen=True, slots=True)
class Channels:
    """A constant with one 32-bit word for each channel, used for all points. `layout` is the layout
    to which it must be transformed; None if it lies in whole blocks already."""

    position: int
    layout: Layout | None = None


Tile = Sums | Tensor
Operand = Sums | Tensor | Channels | int  # An integer is an immediate.


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """An in-place operation on a tile. For operations with both an operand and an immediate,
    `factor` has the bits of the immediate."""

    operation: Alu
    tile: Tile
    operand: Operand
    factor: int = 0


def fused(steps: Sequence[Step]) -> list[Step]:
    """Return an equivalent, shorter sequence of steps. Two steps on the same tile are fused even if
    steps on other tiles come between them.

    TO_FLOAT, FLOAT_SUBTRACT of a zero point    →  ADD, TO_FLOAT, where integers are exact as f32
    QUANTIZE, ADD                               →  QUANTIZE
    TO_FLOAT, FLOAT_MULTIPLY                    →  SCALE
    TO_FLOAT, MULTIPLY_ADD                      →  SCALE_ADD
    """
    fewer: list[Step] = []
    for step in steps:
        waiting = [step]
        while waiting:
            each = waiting.pop(0)
            at = _last(fewer, each.tile)
            before = None if at is None else _last(fewer[:at], each.tile)
            joined = None
            if at is not None:
                joined = _joined(None if before is None else fewer[before], fewer[at], each)
            if at is None or joined is None:
                fewer.append(each)
            else:
                del fewer[at]
                waiting = [*joined, *waiting]
    return fewer


def _last(steps: Sequence[Step], tile: Tile) -> int | None:
    """Return the index of the last step on a tile. Return None if there is none, or if another step
    reads the tile after it."""
    for number in reversed(range(len(steps))):
        if steps[number].tile == tile:
            return number
        if steps[number].operand == tile:
            return None
    return None


def _joined(before: Step | None, first: Step, second: Step) -> list[Step] | None:
    """Return the steps that replace `first` and `second`, two successive steps on a tile; None if
    they cannot be fused. `before` is the preceding step on the tile."""
    tile, operand = first.tile, second.operand
    match first.operation, second.operation:
        case Alu.TO_FLOAT, Alu.FLOAT_MULTIPLY if isinstance(operand, Channels | int):
            return [Step(Alu.SCALE, tile, operand)]
        case Alu.TO_FLOAT, Alu.MULTIPLY_ADD:
            return [Step(Alu.SCALE_ADD, tile, operand, second.factor)]
        case Alu.TO_FLOAT, Alu.FLOAT_ADD | Alu.FLOAT_SUBTRACT if isinstance(operand, int):
            (point,) = struct.unpack("<f", struct.pack("<i", operand))
            if _is_byte(before, tile) and point == int(point) and abs(point) <= _BYTE:
                sign = 1 if second.operation is Alu.FLOAT_ADD else -1
                return [Step(Alu.ADD, tile, sign * int(point)), first]
        case Alu.QUANTIZE, Alu.ADD if isinstance(operand, int) and isinstance(first.operand, int):
            zero, low, high = (part + operand for part in quantized_by(first.operand))
            half = 1 << (QUANTIZE_BITS - 1)
            if all(-half <= part < half for part in (zero, low, high)):
                return [Step(Alu.QUANTIZE, tile, quantizing(zero, low, high))]
    return None


_BYTE = 255  # The largest zero point.


def _is_byte(before: Step | None, tile: Tile) -> bool:
    """Check whether a tile contains bytes after the step `before`, the last step on it."""
    if before is not None:
        return before.operation is Alu.QUANTIZE
    return isinstance(tile, Tensor) and tile.form in (Pad.SIGNED, Pad.UNSIGNED)
