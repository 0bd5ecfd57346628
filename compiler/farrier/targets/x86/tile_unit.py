"""AMX: products in tile registers, and their costs."""

from __future__ import annotations

from farrier.targets.cpu.space.tile_unit import TileUnit
from farrier.targets.x86.intrinsics import TILE_PRODUCTS

AMX = TileUnit(  # cycles on a Sapphire Rapids (docs/performance.md, "bf16")
    products=TILE_PRODUCTS,
    registers=8,
    row_bytes=64,
    sides=(1, 2, 3),
    by_lanes=False,
    row_cycles=1.0,
    product_cycles=9.3,
    depth_cycles=0.0,
    load_cycles=0.52,
    join_cycles=0.0,
    l2_bytes=48.0,
    store_cycles=16.0,
    finish_cycles=2.0,
    block_cycles=60.0,
)
