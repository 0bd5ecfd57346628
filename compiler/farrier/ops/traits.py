"""The traits of operators: facts that passes ask for instead of names."""

from __future__ import annotations

import enum


class Trait(enum.Flag):
    """A fact about all nodes of an operator."""

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
    """The way in which results consist of unchanged elements of the data operands."""

    ONCE = enum.auto()  # Each element of an operand occurs at most once.
    REPEATED = enum.auto()  # An element of an operand may occur several times.
    # The result is the greatest or least of several elements, so it commutes with increasing maps.
    EXTREME = enum.auto()


class Product(enum.Enum):
    """The products that a contraction sums. Inputs 0 and 1 are the factors; weights are the second
    one. Input 2, which may be omitted, is added to the sums. The attributes are those of ONNX's
    operators: passes rewrite a node by them."""

    MATRIX = enum.auto()  # Rows [.., m, k] times columns [.., k, n].
    CONVOLUTION = enum.auto()  # An image [n, c, ..] times windows [oc, c / group, ..].
    TRANSPOSED_CONVOLUTION = enum.auto()  # An image [n, c, ..] times windows [c, oc / group, ..].
    FILTERING = enum.auto()  # An image times windows that are transformed already.

    @property
    def is_convolution(self) -> bool:
        """Check whether a factor is an image, and so is the result."""
        return self is not Product.MATRIX
