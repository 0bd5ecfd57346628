"""Extents that the data decides: the count of nonzero elements, of boxes that stay.

Such an operator has one more output than ONNX's, an i64 scalar: the extent. Its other outputs have
that extent as a symbol, named by the attribute `extent`; they have memory for its upper bound, of
which the elements up to the extent are used.
"""

from __future__ import annotations

from farrier.ir.dim import Extent, dim, typical
from farrier.ir.types import DType, TensorType
from farrier.ops.operator import Attrs, NotStatic

COUNT = TensorType(DType.I64, ())


def data_extent(attrs: Attrs, bound: Extent, constant: int | None = None) -> Extent:
    """Return the extent, up to `bound`, or the value `constant` that constants determine. Raises
    NotStatic if the extent has no name."""
    if constant is not None:
        return constant
    if "extent" not in attrs:
        raise NotStatic("the extent of its output depends on data known only at run time", ())
    return dim(str(attrs["extent"]), 0, bound, typical(bound))
