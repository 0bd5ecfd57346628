"""Products with weights that are packed in words, as tensor programs."""

from __future__ import annotations

from farrier.ir.graph import Graph, Node, Value, attributes
from farrier.ir.types import DType, TensorType
from farrier.lower.program import to_program
from farrier.ops.packed import RUN, WORDS, group_of

# Bits of a code, and the zero points: one of all, packed in words, or floats.
KINDS = {1: (4, "one"), 2: (8, "words"), 3: (4, "words"), 5: (2, "floats"), 7: (8, "one")}


def packed_product(rows, blocks, runs, columns, kind=1):
    """Return x @ w of weights in `blocks` blocks of `runs` runs of terms."""
    bits, zeros = KINDS[kind]
    group = group_of(bits)
    groups = -(-columns // group)
    of_scales = TensorType(DType.F32, (groups, blocks, group))
    kinds = {
        "x": TensorType(DType.F32, (rows, blocks * runs * RUN)),
        "words": TensorType(DType.U32, (groups, blocks * runs, WORDS)),
        "scales": of_scales,
    }
    if zeros != "one":
        of_words = TensorType(DType.U32, (groups, blocks))
        kinds["zeros"] = of_words if zeros == "words" else of_scales
    inputs = tuple(Value(name, type) for name, type in kinds.items())
    of_result = TensorType(DType.F32, (rows, columns))
    attrs = attributes(bits=bits, columns=columns, zero=(1 << bits - 1) if zeros == "one" else 0)
    y = Value("y", of_result)
    node = Node("PackedMatMul", inputs, (y,), attrs)
    return to_program(Graph("g", inputs, (), (node,), (y,)), "packed", tuple(kinds)[1:])
