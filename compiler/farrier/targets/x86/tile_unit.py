"""The AMX tile unit, which multiplies tile registers, and its costs."""

from __future__ import annotations

import numpy as np

from farrier.space.machine import Ints
from farrier.space.space import Floats
from farrier.targets.cpu.units.tile_unit import TileUnit
from farrier.targets.x86.intrinsics import TILE_PRODUCTS

# Cycles on a Sapphire Rapids (bench/notes/2026-11-25-bf16.md).
_ROW_CYCLES = 1.0  # The time of a product for each row of its tile, whole or not.
_PRODUCT_CYCLES = 9.3  # The least time of a product.


def _cycles(rows: Floats, row_bytes: int) -> Floats:
    return np.maximum(rows * _ROW_CYCLES, _PRODUCT_CYCLES)


def _taken(rows: Ints, row_bytes: int, points: Ints, lanes: Ints) -> Ints:
    return points * lanes + points + lanes


UNITS = tuple(
    TileUnit(
        product=product,
        registers=8,
        taken=_taken,
        blocks=tuple(depth for depth in product.depths if depth >= product.lanes),
        sides=(1, 2, 3),
        by_lanes=False,
        cycles=_cycles,
        load_cycles=0.52,
        load_bytes=64,
        join_cycles=0.0,
        l2_bytes=48.0,
        store_cycles=16.0,
        finish_cycles=2.0,
        block_cycles=60.0,
    )
    for product in TILE_PRODUCTS
)
