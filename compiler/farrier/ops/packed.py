"""Matrix products with weights that are quantized to a few bits in blocks, and packed in words as
the threads of a GPU read them.

The weights are a matrix [terms, columns] of codes (unsigned integers of 2, 4 or 8 bits). Columns
come in groups of `32 / bits`, and terms in runs of 4: the codes of a run of terms for a group of
columns fill 16 bytes, which a thread loads at once.

    words[g, t, w]: u32    the codes of terms 4·t … 4·t + 3 for the w-th quarter of group g, column
                           by column, the first one in the lowest bits
    scales[g, b, c]        the scale of block b of the terms, for column c of group g
    zeros[g, b]: u32       the zero points of a block for the columns of a group, packed, or
    zeros[g, b, c]         floats
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from farrier.ir import expr as e
from farrier.ir.dim import number
from farrier.ir.expr import BinaryOp, Buffer, Expr, Reduce
from farrier.ir.graph import Node
from farrier.ir.types import DType, TensorType
from farrier.ops.builder import Builder, Operand, attributes_of, total
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
    fail_to_agree,
    optional,
    present,
    required,
)
from farrier.ops.scalar import Scalar, binary, cast, scalar

if TYPE_CHECKING:
    import numpy.typing as npt

_X, _WORDS, _SCALES, _ZEROS = range(4)
_WORD = 32  # Bits.
WORDS = 4  # The words that a thread loads at once.
RUN = 4  # The terms whose codes a thread loads at once.


def group_of(bits: int) -> int:
    """Return the number of columns of a group for codes of `bits`."""
    return WORDS * _WORD // RUN // bits


def packed(codes: npt.NDArray[np.uint8], bits: int) -> npt.NDArray[np.uint32]:
    """Pack codes [terms, columns] in words [groups, runs, 4]; columns are padded with 0."""
    terms, columns = codes.shape
    group = group_of(bits)
    groups, each = -(-columns // group), group // WORDS
    padded = np.pad(codes, ((0, 0), (0, groups * group - columns)))
    parts = padded.reshape(terms // RUN, RUN, groups, WORDS, each).transpose(2, 0, 3, 4, 1)
    words = np.zeros((groups, terms // RUN, WORDS), np.uint32)
    for column in range(each):
        for term in range(RUN):
            place = np.uint32((column * RUN + term) * bits)
            words |= parts[..., column, term].astype(np.uint32) << place
    return words


def packed_by_column(codes: npt.NDArray[np.uint8], bits: int) -> npt.NDArray[np.uint32]:
    """Pack the zero points of each block, [blocks, columns], in words [groups, blocks]."""
    blocks, columns = codes.shape
    group = group_of(bits)
    groups = -(-columns // group)
    padded = np.pad(codes, ((0, 0), (0, groups * group - columns))).reshape(blocks, groups, group)
    places = np.arange(0, _WORD, bits, dtype=np.uint32)
    joined = np.bitwise_or.reduce(padded.astype(np.uint32) << places, axis=-1)
    return np.ascontiguousarray(joined.T)


def _unpacked(words: Array, bits: int) -> Array:
    """Return the codes [terms, columns] of words, with the columns that pad the last group."""
    groups, runs, _ = words.shape
    each = group_of(bits) // WORDS
    places = np.arange(0, _WORD, bits, dtype=np.uint32).reshape(each, RUN)
    codes = (words[..., None, None] >> places) & np.uint32((1 << bits) - 1)
    ordered: Array = codes.transpose(1, 4, 0, 2, 3).reshape(runs * RUN, groups * WORDS * each)
    return ordered


def _int(attrs: Attrs, name: str) -> int:
    value = attrs.get(name, 0)
    assert isinstance(value, int)
    return value


def _infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x, words, scales = (required(types, position) for position in (_X, _WORDS, _SCALES))
    bits, columns = _int(attrs, "bits"), _int(attrs, "columns")
    if bits not in (2, 4, 8) or words.dtype is not DType.U32 or words.rank != 3:
        raise Mismatch(f"codes of {bits} bits in {words}")
    groups, runs, _ = words.static_shape
    group = group_of(bits)
    if words.shape[2] != WORDS or groups != -(-columns // group):
        raise Mismatch(f"words {words.shape} of {columns} columns in groups of {group}")
    if not x.rank or fail_to_agree(x.shape[-1], runs * RUN) or not x.dtype.is_float:
        raise Mismatch(f"rows {x} and {runs * RUN} terms")
    if scales.rank != 3 or not scales.dtype.is_float or runs % number(scales.shape[1]):
        raise Mismatch(f"scales {scales} of {runs * RUN} terms")
    shapes = [scales.shape]
    zeros = types[_ZEROS] if len(types) > _ZEROS else None
    if zeros is not None:
        shapes.append(zeros.shape if zeros.dtype.is_float else (*zeros.shape, group))
    if any(shape != (groups, scales.shape[1], group) for shape in shapes):
        raise Mismatch(f"parameters {shapes} of {groups} groups of {group} columns")
    return (TensorType(DType.F32, (*x.shape[:-1], columns)),)


def _reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x, words, scales = (present(arrays, position) for position in (_X, _WORDS, _SCALES))
    bits, columns = _int(attrs, "bits"), _int(attrs, "columns")
    wide = np.float64 if x.dtype == np.float64 else np.float32
    codes = _unpacked(words, bits).astype(wide)
    zeros = optional(arrays, _ZEROS)
    block = len(codes) // scales.shape[1]

    def by_term(parameter: Array) -> Array:
        matrix = parameter.astype(wide).transpose(1, 0, 2).reshape(scales.shape[1], -1)
        repeated: Array = np.repeat(matrix, block, 0)
        return repeated

    points: Array | int = _int(attrs, "zero")
    if zeros is not None:
        if zeros.ndim == 2:
            places = np.arange(0, _WORD, bits, dtype=np.uint32)
            zeros = (zeros[..., None] >> places) & np.uint32((1 << bits) - 1)
        points = by_term(zeros)
    weights = (codes - points) * by_term(scales)
    return (np.matmul(x.astype(wide), weights[:, :columns]),)


def _compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    """Compute y[m, n] = Σ x[m, k] · ((code[k, n] − zero) · scale) over the terms k. The codes stay
    packed: a schedule decides where they are unpacked.
    """
    x, words, scales = (builder.operand(node, inputs, at) for at in (_X, _WORDS, _SCALES))
    zeros = builder.optional(node, inputs, _ZEROS)
    attrs = attributes_of(node)
    bits, zero = _int(attrs, "bits"), _int(attrs, "zero")
    group = group_of(bits)
    runs, blocks = number(words.shape[1]), number(scales.shape[1])
    block, each = runs * RUN // blocks, group // WORDS
    lead = x.shape[:-1]
    names = (*(f"b{axis}" for axis in range(len(lead) - 1)), "m")[: len(lead)]

    def part_of(word: Scalar, place: Expr) -> Scalar:
        shifted = binary(BinaryOp.SHR, word, cast(scalar(e.mul(place, bits)), DType.U32))
        return cast(binary(BinaryOp.BIT_AND, shifted, (1 << bits) - 1), DType.F32)

    def zero_of(which: Operand, at: tuple[Expr, Expr], column: Expr) -> Scalar:
        if which.dtype.is_float:
            return cast(which(*at, column), DType.F32)
        return part_of(which(*at), column)

    def weight(k: Expr, n: Expr) -> Scalar:
        of_group, column = e.floordiv(n, group), e.mod(n, group)
        word = words(of_group, e.floordiv(k, RUN), e.floordiv(column, each))
        code = part_of(word, e.add(e.mul(e.mod(column, each), RUN), e.mod(k, RUN)))
        at = of_group, e.floordiv(k, block)
        if zeros is not None:
            code = code - zero_of(zeros, at, column)
        elif zero:
            code = code - float(zero)
        return code * cast(scales(*at, column), DType.F32)

    def body(*at: Expr) -> Reduce:
        *point, n = at
        terms = {"k": runs * RUN}
        return total(terms, lambda k: cast(x(*point, k), DType.F32) * weight(k, n))

    return (builder.output(node, body, hint="packed_matmul", axes=(*names, "n")),)


OPERATORS: tuple[Operator, ...] = (
    # x [.., terms] by the dequantized weights of `columns` columns, in codes of `bits`. Omitted
    # zero points are the attribute `zero`.
    Operator("PackedMatMul", Kind.CONTRACTION, _infer, _reference, _compute),
)
