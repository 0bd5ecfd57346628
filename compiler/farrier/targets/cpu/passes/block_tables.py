"""The rewrite of Gathers from quantized tables: the integers are gathered in their packed form, and
only the gathered rows are dequantized."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeAlias

from farrier.ir.graph import Constant, Node, Value
from farrier.ir.types import Layout, PhysicalDim, TensorType
from farrier.ops.gather import GATHER
from farrier.ops.operator import normal_axis
from farrier.ops.view import RESHAPE
from farrier.passes.block_weights import Source, is_quantized, source_of
from farrier.passes.rewriting import Replacement, Rewriter, derived

if TYPE_CHECKING:
    import numpy.typing as npt

    Array: TypeAlias = npt.NDArray[Any]

# The number of adjacent elements at the same bit position of their bytes: the lanes of the widest
# vectors.
_RUN = 16


def gathered_codes(node: Node, rewriter: Rewriter) -> tuple[Node, ...]:
    """Return the nodes that replace `node` if it is a Gather of rows from a quantized table, else
    none. If the table was dequantized, they gather from the codes (the integers) and dequantize the
    gathered rows. Codes of less than a byte are packed into shared bytes."""
    if not GATHER.matches(node):
        return ()
    table, indices = node.inputs
    assert table is not None
    codes = rewriter.constant_of(table)
    if codes is not None:
        packed = _packed(codes, rewriter)
        if packed is None:
            return ()
        return (Node("Gather", (packed, indices), node.outputs, node.attrs, (), node.origin),)
    source = source_of(table, rewriter)
    axis = normal_axis(int(node.attr("axis", 0)), table.type.rank)
    if source is None or indices is None or axis or not _is_by_rows(source, table.type):
        return ()
    return _dequantized_rows(node, source, indices, rewriter)


def _is_by_rows(source: Source, table: TensorType) -> bool:
    """Check whether each row of a quantized table has its own integers, scales and zero points."""
    codes, scales, zeros = source.constants
    kind = codes.value.type
    if not is_quantized(kind.dtype) or not all(map(RESHAPE.matches, source.path)):
        return False
    # A table of bytes with at most one scale for each row is not worth the rewrite.
    if kind.dtype.bits == 8 and kind.rank == table.rank:
        return False
    parameters = [scales] if zeros is None or not zeros.value.type.shape else [scales, zeros]
    rows = table.shape[0]
    return all(part.value.type.shape[:1] == (rows,) for part in (codes, *parameters))


def _dequantized_rows(
    node: Node, source: Source, indices: Value, rewriter: Rewriter
) -> tuple[Node, ...]:
    codes, scales, zeros = source.constants
    output, lead = node.outputs[0].type, indices.type.shape
    replacement = Replacement(node, rewriter)

    def rows_of(constant: Constant, hint: str) -> Value:
        kind = constant.value.type
        flat = _flat(constant, rewriter)
        packed = _packed(flat, rewriter) or flat.value
        rows = TensorType(kind.dtype, (*lead, *flat.value.type.shape[1:]))
        gathered = replacement.add("Gather", (packed, indices), rows, hint, axis=0)
        return replacement.reshape(gathered, (*lead, *kind.shape[1:]), f"{hint}_blocks")

    operands = [rows_of(codes, "codes"), rows_of(scales, "scales")]
    if zeros is not None:
        operands.append(zeros.value if not zeros.value.type.shape else rows_of(zeros, "zeros"))
    kind = TensorType(output.dtype, operands[0].type.shape)
    attrs = dict(source.node.attrs)
    real = replacement.add("DequantizeLinear", operands, kind, "real", **attrs)
    replacement.reshape(real, output.shape, "rows")
    return replacement.finish()


def _flat(constant: Constant, rewriter: Rewriter) -> Constant:
    """Return a table reshaped to two axes: [rows, elements of a row]."""
    kind = constant.value.type
    if kind.rank == 2:
        return constant
    rows, *rest = kind.static_shape
    flat = TensorType(kind.dtype, (rows, math.prod(rest)))

    def flatten(array: Array) -> Array:
        return array.reshape(flat.static_shape).view()

    content = derived(flat, (constant,), flatten, f"flat {flat}")
    return Constant(rewriter.constant(content, f"{constant.value.name}_flat"), content)


def _packed(codes: Constant, rewriter: Rewriter) -> Value | None:
    """Return a constant of integers with less than 8 bits in a layout in which several elements
    share a byte; None for any other constant."""
    kind = codes.value.type
    if not (kind.dtype.is_integer and kind.dtype.bits < 8 and kind.rank and kind.layout is None):
        return None
    last, count = kind.static_shape[-1], 8 // kind.dtype.bits
    axis = kind.rank - 1
    dims: tuple[PhysicalDim, ...] = tuple(PhysicalDim(other) for other in range(axis))
    if last % (_RUN * count) == 0:
        dims += (
            PhysicalDim(axis, _RUN * count),
            PhysicalDim(axis, 1, _RUN),
            PhysicalDim(axis, _RUN, count),
        )
    elif last % count == 0:
        dims += (PhysicalDim(axis),)
    else:
        return None
    layout = Layout(dims, (), count)
    value = Value(
        rewriter.fresh(f"{codes.value.name}_packed"),
        TensorType(kind.dtype, kind.shape, layout),
    )
    rewriter.define(value, codes.content)
    return value
