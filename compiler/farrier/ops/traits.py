"""The traits of operators: properties that passes test instead of operators' names."""

from __future__ import annotations

import enum


class Trait(enum.Flag):
    """A property that holds for all nodes of an operator."""

    NONE = 0
    COMMUTATIVE = enum.auto()  # Its two operands may change places.
    AFFINE = enum.auto()  # It is an affine function of each of its operands.
    TOTAL = enum.auto()  # It calculates with integers of any value: none is an index or a size.
    DIVIDES = enum.auto()  # An integer zero as its second operand has no result.
    # Arithmetic in the type of its operands is exact. Narrow floats need no wider ones.
    EXACT = enum.auto()
    TIES = enum.auto()  # It rounds floats to integers, and ties may fall either way.
    JOINS = enum.auto()  # Its result joins all of its inputs along the attribute `axis`.
    IN_PLACE = enum.auto()  # Its result takes the memory of its first input.
    PARTS = enum.auto()  # Its results are parts of its first input along the attribute `axis`.
    # It reads each element of its data operands once, or in a row that a kernel can keep. Its
    # kernel may therefore include the operators that compute the elements.
    READS_ONCE = enum.auto()
    PER_CHANNEL = enum.auto()  # All operands but the first have a number for each channel.
    ZERO_PADDED = enum.auto()  # Its window reads zeros beyond the edges of the image.
    # Its result on constants is computed layer by layer, when weights are packed.
    PACKED = enum.auto()
    # Its first operand is quantized and stays so, because passes may multiply it as integers.
    DEQUANTIZES = enum.auto()
    # Its result on constants is a view in numpy, which takes no memory of its own.
    SHARES_MEMORY = enum.auto()


class Moves(enum.Enum):
    """The number of times that an unchanged element of a data operand can occur in an operator's
    results."""

    ONCE = enum.auto()  # Each element of an operand occurs at most once.
    REPEATED = enum.auto()  # An element of an operand may occur several times.
    # The result is the greatest or least of several elements, so it commutes with increasing maps.
    EXTREME = enum.auto()


class Product(enum.Enum):
    """The kind of a contraction, an operator that sums products of two factors. Inputs 0 and 1 are
    the factors, and weights are input 1. Input 2, which may be omitted, is added to the sums. The
    attributes are those of ONNX's operators, so that passes can rewrite a node by them."""

    MATRIX = enum.auto()  # Rows [.., m, k] times columns [.., k, n].
    CONVOLUTION = enum.auto()  # An image [n, c, ..] times windows [oc, c / group, ..].
    TRANSPOSED_CONVOLUTION = enum.auto()  # An image [n, c, ..] times windows [c, oc / group, ..].
    FILTERING = enum.auto()  # An image times windows that are transformed already.

    @property
    def is_convolution(self) -> bool:
        """Check whether one factor and the result are images."""
        return self is not Product.MATRIX
