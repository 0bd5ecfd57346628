"""The products of bytes by MVE, as tile products of one row and four lanes.

    c[n] += sum(a[k] * b[n, k] for k in group)        one VMLADAVA for each lane n

The totals are in four core registers. A vector holds a group of 16 bytes; groups of eight or four
bytes are extended to 16 or 32 bits as they are loaded.
"""

from __future__ import annotations

import functools

from farrier.intrinsics import RowRegisters, TileProduct
from farrier.intrinsics.declare import Writer
from farrier.intrinsics.tile_product import declared
from farrier.ir import instr
from farrier.ir.instr import I8, I32, Operand, array_of
from farrier.ir.types import DType
from farrier.space.machine import Ints, Machine
from farrier.space.space import Floats
from farrier.targets.bare.cores import MVE
from farrier.targets.cpu.target import CpuTarget
from farrier.targets.cpu.units.tile_unit import TileUnit

_LANES = 4
_TOTALS = array_of(I32, _LANES)
_WORDS = I32.of(_LANES)
_REGISTER_BITS = 128
_DEPTHS = {16: (64, 32, 16), 8: (8,), 4: (4,)}
"""The depths of a product by the bytes of its groups."""


def _address(
    writer: Writer, rows: int, row_bytes: int, pointer: Operand, pitch: Operand
) -> Operand:
    """Return the address of a tile of bytes, since the product loads each group when it needs
    it."""
    return pointer


def _store(
    writer: Writer, rows: int, row_bytes: int, pointer: Operand, pitch: Operand, value: Operand
) -> None:
    totals: Operand = instr.poison(_WORDS)
    for lane in range(_LANES):
        totals = writer.insert(totals, writer.part(value, lane), lane)
    writer.store(totals, pointer, 4)


def _zero(writer: Writer, rows: int) -> Operand:
    return instr.zero(_TOTALS)


def _add(
    group: int, writer: Writer, rows: int, depth: int, total: Operand, a: Operand, b: Operand
) -> Operand:
    bits = _REGISTER_BITS // group
    kind = instr.vector(f"i{bits}", group)
    name, zero = f"llvm.arm.mve.vmldava.v{group}i{bits}", instr.number_of(I32, 0)

    def load(pointer: Operand, offset: int) -> Operand:
        narrow = writer.load(I8.of(group), writer.offset(pointer, offset), 1)
        return narrow if kind is narrow.type else writer.convert(instr.SEXT, narrow, kind)

    for start in range(0, depth, group):
        left = load(a, start)
        for lane in range(_LANES):
            right = load(b, _LANES * start + group * lane)
            # The three flags stand for signed factors, an addition, and no exchange of pairs.
            sum_ = writer.call(name, I32, zero, zero, zero, writer.part(total, lane), left, right)
            total = writer.with_part(total, sum_, lane)
    return total


def _product(group: int) -> TileProduct:
    return TileProduct(
        family="mve",
        name=f"mve_product_{group}",
        left=DType.I8,
        right=DType.I8,
        total=DType.I32,
        rows=range(1, 2),
        lanes=_LANES,
        depths=_DEPTHS[group],
        group=group,
        features=frozenset({MVE}),
        registers=lambda rows: RowRegisters(_TOTALS, _address, _store),
        zero=_zero,
        product=functools.partial(_add, group),
    )


PRODUCTS = tuple(map(_product, _DEPTHS))
INTRINSICS = declared(PRODUCTS)


@functools.cache
def tile_units(target: CpuTarget) -> tuple[TileUnit, ...]:
    """Return the tile units of a core with MVE, that of the largest groups first. All costs are in
    instructions."""
    machine = target.machine(1)
    return tuple(_unit(machine, product) for product in PRODUCTS)


def _unit(machine: Machine, product: TileProduct) -> TileUnit:
    def cycles(rows: Floats, row_bytes: int) -> Floats:
        return rows * _LANES * row_bytes / product.group / machine.fma_ports

    def taken(rows: Ints, row_bytes: int, points: Ints, lanes: Ints) -> Ints:
        return rows * points * lanes

    return TileUnit(
        product=product,
        registers=1,  # VMLADAVA adds to registers of even numbers, which hold a single tile.
        taken=taken,
        blocks=product.depths,
        sides=(1,),
        by_lanes=True,
        cycles=cycles,
        load_cycles=1 / machine.load_ports,
        load_bytes=product.group,
        join_cycles=0.0,
        l2_bytes=machine.l2_bandwidth,
        store_cycles=2.0,
        finish_cycles=5.0,
        block_cycles=10.0,
    )
