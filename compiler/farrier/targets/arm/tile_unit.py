"""The tile products of NEON and their costs: matrix products with 2 × 2 totals (FEAT_I8MM,
FEAT_BF16), and products in half precision (FEAT_FP16)."""

from __future__ import annotations

import functools

from farrier.intrinsics import TileProduct
from farrier.space.machine import Ints, Machine
from farrier.space.space import Floats
from farrier.targets.arm.intrinsics import HALF_PRODUCT, MATRIX_PRODUCTS, REGISTER_BYTES, ROW_BYTES
from farrier.targets.cpu.target import CpuTarget
from farrier.targets.cpu.units.tile_unit import Cycles, Registers, TileUnit

_BLOCK = 16  # The largest number of channels in a block.
_PASSING = 3  # The registers for the operands in use and for the next operand.
# The cost of adding a row of half-precision sums to totals of f32, in multiply-adds: two FCVTL,
# each of two operations on one pipe of Neoverse N1, and two FADD.
_WIDENING = 9.0


@functools.cache
def tile_units(target: CpuTarget) -> tuple[TileUnit, ...]:
    """Return the tile units of a core, which work in its vector registers. A core issues
    matrix-product instructions at the rate of multiply-adds (Arm's software optimization guides for
    Neoverse N2, V1 and V2)."""
    machine = target.machine(1)

    def matrix(rows: Floats, row_bytes: int) -> Floats:
        return 0 * rows + row_bytes / ROW_BYTES / machine.fma_ports

    def half(rows: Floats, row_bytes: int) -> Floats:
        depth = row_bytes / HALF_PRODUCT.left.nbytes
        return rows * (depth + _WIDENING) / machine.fma_ports

    join = 1 / ROW_BYTES / machine.fma_ports
    return (
        *(_unit(machine, product, matrix, _of_matrices, join) for product in MATRIX_PRODUCTS),
        _unit(machine, HALF_PRODUCT, half, _of_halves, 0.0),
    )


def _of_matrices(rows: Ints, row_bytes: int, points: Ints, lanes: Ints) -> Ints:
    return points * lanes + points * -(-row_bytes // ROW_BYTES) + _PASSING


def _of_halves(rows: Ints, row_bytes: int, points: Ints, lanes: Ints) -> Ints:
    """Return the number of vector registers that a product in f16 uses. Each row needs two
    registers of f32 totals for every vector of results, one register for its f16 sums, and
    registers for its own operand."""
    return rows * (2 * points * lanes + 1 + points * (row_bytes // REGISTER_BYTES)) + _PASSING - 1


def _unit(
    machine: Machine, product: TileProduct, cycles: Cycles, taken: Registers, join: float
) -> TileUnit:
    return TileUnit(
        product=product,
        registers=machine.registers,
        taken=taken,
        blocks=(min(product.depths[0], _BLOCK),),
        sides=(1, 2, 3, 4, 6),
        by_lanes=True,
        cycles=cycles,
        load_cycles=1 / machine.load_ports,
        load_bytes=REGISTER_BYTES,
        join_cycles=join,
        l2_bytes=machine.l2_bandwidth,
        store_cycles=2.0,
        finish_cycles=1.5,
        block_cycles=30.0,
    )
