"""Find axes that must not be empty, because an operator reads elements from them by position.

A symbolic axis may have length 0. Most operators then have an empty result, and reductions have an
identity, but a position on an empty axis does not exist. Compiled code must not read there; ONNX
Runtime reports an error in this case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from farrier.ir.dim import Dim, Extent, Symbol, maximum, minimum, substitute
from farrier.ir.graph import Attribute
from farrier.ir.types import TensorType
from farrier.ops import Operator


def shortfall(
    operator: Operator,
    types: Sequence[TensorType | None],
    kinds: Sequence[TensorType],
    attrs: Mapping[str, Attribute],
) -> Iterator[tuple[Extent, Extent]]:
    """Yield a pair (extent, enough) for each axis that may be empty although the operator reads
    elements from it by position. `enough` is an expression over the sizes: 1 if the axis is not
    empty or no element is read from it, otherwise 0."""
    rule, x = operator.positions, types[0] if types else None
    if rule is None or x is None:
        return
    for extent, count in rule(x, types[1] if len(types) > 1 else None, kinds[0], attrs):
        enough = maximum(minimum(extent, 1), 1 - minimum(count, 1))
        if enough != 1 and not _is_taken_of_itself(extent, count):
            yield extent, enough


def _is_taken_of_itself(extent: Extent, count: Extent) -> bool:
    """Check whether `count`, the number of elements that are read, is 0 whenever the axis is empty,
    because `count` is a multiple of the axis's extent."""
    match extent:
        case Dim(terms=(((Symbol() as symbol,), _),)):
            return substitute(count, {symbol: 0}) == 0
    return False
