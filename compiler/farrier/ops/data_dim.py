"""Extents that the data decides: how many elements are not zero, which boxes stay.

Such an operator has one more output than ONNX's, an i64 scalar: the extent. Its other outputs have
that extent as a symbol, named by the attribute `extent`, and lie in memory of its upper bound,
packed by what it is.
"""

from __future__ import annotations

from farrier.ir.dim import Extent, dim, typical
from farrier.ir.types import DType, TensorType
from farrier.ops.operator import Attrs, NotStatic

COUNT = TensorType(DType.I64, ())


def data_extent(attrs: Attrs, bound: Extent, known: int | None = None) -> Extent:
    """The extent, up to `bound`: `known` where constants say it. NotStatic where it has no name."""
    if known is not None:
        return known
    if "extent" not in attrs:
        raise NotStatic("the extent of its output depends on data known only at run time", ())
    return dim(str(attrs["extent"]), 0, bound, typical(bound))
