"""Internal operators, which passes insert; no ONNX model contains them."""

from __future__ import annotations

import numpy as np

from farrier.ir.expr import BYTES, Buffer
from farrier.ir.graph import Node
from farrier.ir.types import DType, TensorType
from farrier.ops import layout
from farrier.ops.builder import Builder
from farrier.ops.operator import (
    Array,
    Arrays,
    Attrs,
    Buffers,
    Constants,
    Kind,
    Mismatch,
    Operator,
    Types,
    present,
    required,
)
from farrier.ops.pointwise import pointwise
from farrier.ops.scalar import Scalar, entry
from farrier.ops.traits import Trait


def _infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    """Return the type of the input without a layout; the pass that inserts the node sets the
    output's layout."""
    x = required(types, 0)
    return (TensorType(x.dtype, x.shape),)


def _reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    return (present(arrays, 0),)


def _compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    x = builder.operand(node, inputs, 0)
    return (builder.output(node, x),)


def _entry(attrs: Attrs, x: Scalar) -> Scalar:
    return entry(bytes.fromhex(str(attrs["entries"])), DType(str(attrs["to"])), x)


def _np_entry(attrs: Attrs, x: Array) -> Array:
    entries = np.frombuffer(bytes.fromhex(str(attrs["entries"])), DType(str(attrs["to"])).numpy)
    return np.asarray(entries[x.view(np.uint8)])


def _byte(types: Types, attrs: Attrs) -> DType:
    source, to = required(types, 0).dtype, DType(str(attrs["to"]))
    if not {source, to} <= {DType.U8, DType.I8}:
        raise Mismatch(f"a table of {to} at a {source}; both must be bytes")
    if len(str(attrs["entries"])) != 2 * BYTES:
        raise Mismatch(f"a table has {BYTES} entries of two hexadecimal digits")
    return to


# A copy of a tensor to another layout, for places where it cannot be fused.
RELAYOUT = Operator(
    "Relayout",
    Kind.ELEMENTWISE,
    _infer,
    _reference,
    _compute,
    traits=Trait.EXACT | Trait.READS_ONCE,
    layout=layout.elementwise,
)
OPERATORS: tuple[Operator, ...] = (
    RELAYOUT,
    # Any function of one byte: `entries` are its 256 results in hexadecimal digits.
    pointwise("ByteTable", _entry, _np_entry, result=_byte),
)
