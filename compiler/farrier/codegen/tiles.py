"""Calls of tensor intrinsics: each operand tile as a load, the output tile as a store too."""

from __future__ import annotations

import dataclasses

from farrier.intrinsics import TensorIntrinsic, lookup, vector_axis
from farrier.ir.affine import Simplifier
from farrier.ir.expr import Const, Load, Var, add
from farrier.ir.loop import Intrinsic, Store, Tile


@dataclasses.dataclass(frozen=True, slots=True)
class TileCall:
    """What a call reads and writes. Vector tiles are indexed by the variable `lane`."""

    intrinsic: TensorIntrinsic
    lane: str
    loads: tuple[Load, ...]
    store: Store  # its value is a placeholder


def tile_call(stmt: Intrinsic, simplifier: Simplifier) -> TileCall:
    """The accesses of a call, the lane variable known to the simplifier."""
    intrinsic = lookup(stmt.name)
    lane = f"lane!{intrinsic.lanes}"  # no loop can have this name
    simplifier.ranges = {**simplifier.ranges, lane: intrinsic.lanes}
    loads = tuple(
        _load(tile, lane if param.shape else None)
        for tile, param in zip(stmt.operands, intrinsic.semantics.params, strict=True)
    )
    output = loads[0]
    store = Store(output.buffer, output.indices, Const(0, output.buffer.dtype))
    return TileCall(intrinsic, lane, loads, store)


def _load(tile: Tile, lane: str | None) -> Load:
    indices = list(tile.origin)
    if lane is not None:
        axis = vector_axis(tile.buffer)
        indices[axis] = add(indices[axis], Var(lane))
    return Load(tile.buffer, tuple(indices))
