"""Rules of sorts, and of the largest elements of an axis."""

from __future__ import annotations

from farrier.frontends.stablehlo.ops import bodies
from farrier.frontends.stablehlo.scope import Scope
from farrier.frontends.stablehlo.table import hlo
from farrier.ops import NotSupported


@hlo("stablehlo.sort")
def sort(s: Scope, *operands: str) -> tuple[str, ...]:
    """Convert a sort, in which one operand is the key by which all are sorted. The sort is
    stable."""
    [region] = s.operation.regions
    operation = bodies.definitions(region).get(region.returned[0])
    direction = "" if operation is None else bodies.direction_of(operation)
    if operation is None or direction not in ("LT", "GT"):
        raise NotSupported("a sort by a function other than a comparison of one key")
    names = [name for name, _, _ in region.arguments]
    compared = [bodies.argument_of(region, value) for value in operation.operands]
    key = names.index(compared[0]) // 2 if compared[0] in names else -1
    if key < 0 or compared != names[2 * key : 2 * key + 2]:
        raise NotSupported("a sort by a function other than a comparison of one key")
    axis = s.attr("dimension", s.rank(operands[0]) - 1)
    size = s.shape(operands[0])[axis]
    by, places = s.nodes(
        "TopK", [operands[key], [size]], 2, axis=axis, largest=int(direction == "GT")
    )
    return tuple(
        by if place == key else s.node("GatherElements", x, places, axis=axis)
        for place, x in enumerate(operands)
    )


@hlo("chlo.top_k")
def top_k(s: Scope, x: str) -> tuple[str, str]:
    values, places = s.nodes("TopK", [x, [s.attr("k")]], 2, axis=s.rank(x) - 1, largest=1)
    dtype = s.result_of(1).dtype
    return values, places if dtype is None else s.cast(places, dtype)
