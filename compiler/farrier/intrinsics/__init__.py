"""The registry of instructions on tiles (tensor intrinsics) and on groups of products (dot
products). Backends declare their own; other packages declare tensor intrinsics as entry points of
the group `farrier.intrinsics`."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from farrier.errors import UsageError
from farrier.intrinsics.declare import (
    RowRegisters,
    TensorIntrinsic,
    expand,
    physical_shape,
    place,
    vector_axis,
)
from farrier.intrinsics.dot import Dot
from farrier.intrinsics.table import TableLookup
from farrier.intrinsics.tile_product import TileProduct
from farrier.plugins import INTRINSICS, plugins
from farrier.targets.registry import backends

__all__ = [
    "Dot",
    "RowRegisters",
    "TableLookup",
    "TensorIntrinsic",
    "TileProduct",
    "expand",
    "lookup",
    "physical_shape",
    "place",
    "vector_axis",
]


def lookup(name: str) -> TensorIntrinsic:
    """Return the tensor intrinsic with that name. Raises KeyError if none is declared."""
    return _by_name()[name]


@functools.cache
def _by_name() -> Mapping[str, TensorIntrinsic]:
    by_name = {
        intrinsic.name: intrinsic for backend in backends() for intrinsic in backend.intrinsics
    }
    for plugin in plugins(INTRINSICS, "intrinsic", TensorIntrinsic, "TensorIntrinsic"):
        name = plugin.loaded.name
        if name in by_name:
            raise UsageError(
                f"{plugin} is called {name}, as is another intrinsic", hint=plugin.way_out
            )
        by_name[name] = plugin.loaded
    return by_name
