"""A lower bound of a kernel's time, which no machine of a target's kind can beat.

A device that reports a shorter time did not run the code: its clock is wrong, or the result is
invented. The bound is a roofline with the throughput of vector and tile units at a clock above that
of any processor, and with all data in the first-level cache. It therefore holds for every machine
of the kind and is far below actual times. The figures of particular cores
(`farrier.space.machine`), which rank schedules, play no part in it.
"""

from __future__ import annotations

import math

from farrier.ir.dim import typical
from farrier.ir.least_work import Products, least_products
from farrier.ir.loop import Function
from farrier.ir.tensor import TensorProgram
from farrier.targets.cpu.target import CpuTarget

# Twice the 4 GHz that most processors reach, and above the 6.2 GHz that any is sold with.
_HERTZ = 8e9
# Bits of vector multiply-adds per cycle, by vector width: large Arm cores have four units of 128
# bits, other cores two or fewer wider units.
_VECTOR_BITS_A_CYCLE = {128: 512, 256: 512}
_WIDEST = 2  # The units for wider vectors; no core has three.
# Instructions that multiply small matrices in vector registers (Arm's i8mm and bf16) do twice as
# much as a dot product of their width.
_MATRIX = 2
# Bytes per cycle stored to the first-level cache: two stores of 512 bits.
_STORED_BYTES = 128
# A problem size (lanes, rows, depth) for which a tile unit reaches its full rate.
_TILE = (64, 64, 256)


def floor_ns(program: TensorProgram | Function, target: CpuTarget, threads: int) -> int:
    """Return a lower bound in nanoseconds for the time of one call of a kernel. It is 0 if
    `program` is a loop nest (Function) instead of a tensor program, because its number of
    operations may depend on the data."""
    if not isinstance(program, TensorProgram):
        return 0
    stored = sum(
        math.prod(map(typical, buffer.shape)) * buffer.dtype.bits // 8 for buffer in program.outputs
    )
    multiplied = sum(_cycles(products, target) for products in least_products(program))
    cycles = max(multiplied, stored / _STORED_BYTES)
    return int(cycles / (threads * _HERTZ) * 1e9)


def _cycles(products: Products, target: CpuTarget) -> float:
    """The minimum number of cycles in which one core can multiply the `products` of a stage."""
    left, right = products.left, products.right
    bits = _VECTOR_BITS_A_CYCLE.get(target.vector_bits, _WIDEST * target.vector_bits)
    narrowest = max(min(left.bits, right.bits), 8)
    by_vectors = (_MATRIX if narrowest < 32 else 1) * bits / narrowest
    unit = target.unit_of(left, right)
    by_tiles = 0.0 if unit is None else unit.rate(*_TILE)
    return products.count / max(by_vectors, by_tiles)
