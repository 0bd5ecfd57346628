"""Extents that depend on data, such as the number of nonzero elements.

An operator with such an extent has one output more than ONNX's: the extent as an i64 scalar. Its
other outputs have the extent as a symbol in their shape, named by the attribute `extent`. Their
memory is allocated for the extent's upper bound, and only the elements up to the extent are used.
"""

from __future__ import annotations

from farrier.ir.dim import Extent, dim, typical
from farrier.ir.types import DType, TensorType
from farrier.ops.operator import Attrs, NotStatic

COUNT = TensorType(DType.I64, ())


def data_extent(attrs: Attrs, bound: Extent, constant: int | None = None) -> Extent:
    """Return the data-dependent extent of an output: a symbol of at most `bound` named by the
    attribute `extent`, or `constant` if constants determine the value. Raises NotStatic without the
    attribute.
    """
    if constant is not None:
        return constant
    if "extent" not in attrs:
        raise NotStatic("the extent of its output depends on data known only at run time", ())
    return dim(str(attrs["extent"]), 0, bound, typical(bound))
