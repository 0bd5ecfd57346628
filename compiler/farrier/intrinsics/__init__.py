"""What machines can do to whole tiles and to groups of products. Backends declare their own, and
other packages tensor intrinsics as entry points of the group `farrier.intrinsics`."""

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
from farrier.ir.types import DType
from farrier.plugins import INTRINSICS, plugins
from farrier.targets import Target, backend_of, backends

__all__ = [
    "Dot",
    "RowRegisters",
    "TableLookup",
    "TensorIntrinsic",
    "TileProduct",
    "dot_of",
    "dots_of",
    "expand",
    "integer_dot",
    "lookup",
    "physical_shape",
    "place",
    "table_lookup",
    "vector_axis",
]


def lookup(name: str) -> TensorIntrinsic:
    """The intrinsic of that name; raises KeyError where nobody declares one."""
    return _by_name()[name]


@functools.cache
def _by_name() -> Mapping[str, TensorIntrinsic]:
    found = {one.name: one for backend in backends() for one in backend.intrinsics}
    for plugin in plugins(INTRINSICS, "intrinsic", TensorIntrinsic, "TensorIntrinsic"):
        name = plugin.made.name
        if name in found:
            raise UsageError(
                f"{plugin} is called {name}, as is another intrinsic", hint=plugin.way_out
            )
        found[name] = plugin.made
    return found


def dots_of(target: Target) -> tuple[Dot, ...]:
    """The dot products of the target, the best first."""
    dots = backend_of(target).dots
    return tuple(dot for dot in dots if dot.feature in target.required_features)


def dot_of(left: DType, right: DType, total: DType, target: Target) -> Dot | None:
    """The dot product of the target that multiplies these; None where it has none."""
    for dot in dots_of(target):
        if (dot.left, dot.right, dot.total) == (left, right, total):
            return dot
    return None


def integer_dot(target: Target) -> Dot | None:
    """Return the dot product of the target that multiplies bytes by i8: directly, whatever the
    signedness of the bytes, or as i16; None where it has none."""
    kinds = ((DType.U8, DType.I8), (DType.I8, DType.I8), (DType.I16, DType.I16))
    dots = (dot_of(*pair, DType.I32, target) for pair in kinds)
    return next((dot for dot in dots if dot is not None), None)


def table_lookup(target: Target) -> TableLookup | None:
    """How the target looks bytes up in a table, many at once; None where it takes one by one."""
    for found in backend_of(target).table_lookups:
        if found.feature in target.required_features:
            return found
    return None
