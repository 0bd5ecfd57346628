"""The memory accesses of tensor intrinsics. Each operand tile becomes a load, and the output tile
also a store; a tile of rows becomes an address and a row pitch."""

from __future__ import annotations

import dataclasses
import math

from farrier.errors import CompilerError
from farrier.intrinsics import RowRegisters, TensorIntrinsic, lookup, physical_shape, place
from farrier.ir.affine import Simplifier
from farrier.ir.dim import Extent
from farrier.ir.expr import Buffer, Const, Load, Var, add
from farrier.ir.linear import Linear
from farrier.ir.loop import Intrinsic, Store, Tile


@dataclasses.dataclass(frozen=True, slots=True)
class TileCall:
    """The loads and the store of one intrinsic call. Tiles that are vectors are indexed by the
    variable `lane`."""

    intrinsic: TensorIntrinsic
    lane: str
    loads: tuple[Load, ...]
    store: Store  # The value is a placeholder.


@dataclasses.dataclass(frozen=True, slots=True)
class RowsOperand:
    """An operand tile of `rows` rows. `place` is the offset of the first row in bytes, `pitch` the
    distance between rows in bytes."""

    buffer: Buffer
    registers: RowRegisters
    rows: int
    row_bytes: int
    place: Linear
    pitch: Extent


@dataclasses.dataclass(frozen=True, slots=True)
class RowsCall:
    """The operands of an intrinsic call on tiles of rows, the output first."""

    intrinsic: TensorIntrinsic
    operands: tuple[RowsOperand, ...]


def tile_call(stmt: Intrinsic, simplifier: Simplifier) -> TileCall | RowsCall:
    """Return the memory accesses of an intrinsic call, and declare the range of its lane variable
    to the simplifier."""
    intrinsic = lookup(stmt.name)
    params = intrinsic.semantics.params
    if intrinsic.rows is not None:
        pairs = zip(stmt.operands, params, strict=True)
        registers = intrinsic.rows
        operands = (_rows(tile, param, registers, simplifier) for tile, param in pairs)
        return RowsCall(intrinsic, tuple(operands))
    lane = f"lane!{intrinsic.lanes}"  # No loop can have this name.
    simplifier.ranges = {**simplifier.ranges, lane: intrinsic.lanes}
    loads = tuple(
        _load(tile, lane if param.shape else None)
        for tile, param in zip(stmt.operands, params, strict=True)
    )
    output = loads[0]
    store = Store(output.buffer, output.indices, Const(0, output.buffer.dtype))
    return TileCall(intrinsic, lane, loads, store)


def _load(tile: Tile, lane: str | None) -> Load:
    indices = list(tile.origin)
    if lane is not None:
        (axis,) = tile.axes
        indices[axis] = add(indices[axis], Var(lane))
    return Load(tile.buffer, tuple(indices))


def _rows(
    tile: Tile, declared: Buffer, registers: RowRegisters, simplifier: Simplifier
) -> RowsOperand:
    place_and_pitch = place(tile, declared, simplifier)
    if place_and_pitch is None:
        raise CompilerError(
            f"the rows of a tile of {tile.buffer.name} do not lie at even distances",
            hint="transform its layout before tensorize",
        )
    rows, *run = physical_shape(declared)
    row_bytes = math.prod(run) * declared.dtype.nbytes
    return RowsOperand(tile.buffer, registers, rows, row_bytes, *place_and_pitch)
