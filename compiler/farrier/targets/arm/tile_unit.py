"""NEON's products of 2 × 2 tiles (FEAT_I8MM, FEAT_BF16), and their costs."""

from __future__ import annotations

from farrier.space.machine import Machine
from farrier.targets import Target
from farrier.targets.arm.intrinsics import ROW_BYTES, TILE_PRODUCTS
from farrier.targets.cpu.space.tile_unit import TileUnit


def tile_unit(target: Target) -> TileUnit:
    """The vector registers of a core. It begins as many products of tiles a cycle as multiply-adds
    (Arm's software optimization guides for Neoverse N2, V1 and V2)."""
    machine = Machine.of(target, 1)
    return TileUnit(
        products=TILE_PRODUCTS,
        registers=target.registers,
        row_bytes=ROW_BYTES,
        sides=(1, 2, 3, 4, 6),
        by_lanes=True,
        row_cycles=0.0,
        product_cycles=0.0,
        depth_cycles=1 / machine.fma_ports / ROW_BYTES,
        load_cycles=1 / machine.load_ports,
        join_cycles=1 / machine.fma_ports / ROW_BYTES,
        l2_bytes=machine.l2_bandwidth,
        store_cycles=2.0,
        finish_cycles=1.5,
        block_cycles=30.0,
    )
