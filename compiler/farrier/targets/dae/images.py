"""The memory layout of images and matrices in DRAM, and the decomposition of indices into them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from farrier.ir.expr import Axis, Binary, BinaryOp, Buffer, Const, Expr, Var
from farrier.ir.tensor import TensorProgram
from farrier.ir.types import DType, Layout


class UnfitError(Exception):
    """The error for a kernel that an accelerator cannot compute. Its message is a clause with the
    reason."""


@dataclasses.dataclass(frozen=True, slots=True)
class Image:
    """The layout of an image in blocks of channels in DRAM: the distances in bytes between
    neighbours along each axis. The elements of a block are adjacent."""

    position: int  # The position of the buffer among the arguments.
    dtype: DType
    block_stride: int
    y_stride: int
    x_stride: int
    height: int
    width: int
    excess: int = 0  # The number of elements by which the last channel block exceeds the image.


def image_of(program: TensorProgram, buffer: Buffer, block: int) -> Image:
    """Return the layout of a buffer that contains an image or a matrix. Raises UnfitError if the
    elements of a channel block are not adjacent."""
    arguments = (*program.inputs, *program.outputs)
    rank, size = len(buffer.shape), buffer.dtype.nbytes
    shape = [number_of(extent) for extent in buffer.shape]
    layout = buffer.layout or Layout.plain(rank)
    if any(map(any, layout.halo)):
        raise UnfitError("an image has zeros around it in memory")
    position = arguments.index(buffer)
    if rank == 2 and layout.is_plain:
        row = shape[1] * size
        excess = -shape[1] % block
        return Image(position, buffer.dtype, block * size, 0, row, 1, shape[0], excess)
    is_point = rank == 4 and layout.is_plain and shape[2] == shape[3] == 1
    if is_point or (
        rank == 4 and dataclasses.replace(layout, halo=()) == Layout.blocked(4, 1, block)
    ):
        height, width, point = shape[2], shape[3], block * size
        plane, excess = height * width * point, -shape[1] % block if is_point else 0
        return Image(position, buffer.dtype, plane, width * point, point, height, width, excess)
    raise UnfitError("an image does not lie in blocks of channels")


def loaded_image_of(program: TensorProgram, buffer: Buffer, block: int) -> Image:
    """Return the layout of a buffer that a kernel loads, in whole blocks. Raises UnfitError if the
    last block exceeds the image, or for the reasons of `image_of`."""
    image = image_of(program, buffer, block)
    if image.excess:
        raise UnfitError(f"it reads {buffer.shape[1]} channels, not whole blocks of {block}")
    return image


def flat_image_of(program: TensorProgram, buffer: Buffer, block: int) -> Image:
    """Return the layout of a plain buffer as a line of points with `block` adjacent elements each,
    whatever its axes. Raises UnfitError if its elements do not fill whole blocks."""
    layout = buffer.layout or Layout.plain(len(buffer.shape))
    if not layout.is_plain or any(map(any, layout.halo)):
        raise UnfitError("its tensors lie in memory in different ways")
    elements = math.prod(number_of(extent) for extent in buffer.shape)
    if elements % block:
        raise UnfitError(f"it reads {elements} elements, not whole blocks of {block}")
    position, point = (*program.inputs, *program.outputs).index(buffer), block * buffer.dtype.nbytes
    return Image(position, buffer.dtype, point, point, point, 1, elements // block)


def linear(index: Expr) -> dict[str, int]:
    """Return the coefficients of the variables in a linear index, with the constant under the key
    "". Raises UnfitError for other indices."""
    match index:
        case Const(value=int() as value):
            return {"": value} if value else {}
        case Var(name=name):
            return {name: 1}
        case Binary(op=BinaryOp.ADD | BinaryOp.SUB as op, left=left, right=right):
            total = linear(left)
            sign = 1 if op is BinaryOp.ADD else -1
            for name, factor in linear(right).items():
                total[name] = total.get(name, 0) + sign * factor
            return {name: factor for name, factor in total.items() if factor}
        case Binary(op=BinaryOp.MUL, left=left, right=Const(value=int() as factor)):
            return {name: n * factor for name, n in linear(left).items()}
        case Binary(op=BinaryOp.MUL, left=Const(value=int() as factor), right=right):
            return {name: n * factor for name, n in linear(right).items()}
    raise UnfitError("an index is no sum of variables")


def window_along(term: Mapping[str, int], point: Axis, tap: Axis) -> tuple[int, int, int]:
    """Return the stride, dilation and offset in an index of the form stride · point + dilation ·
    tap + offset. Raises UnfitError for other indices."""
    names = {axis.name for axis in (point, tap) if axis.extent != 1}
    if not names <= set(term) <= {point.name, tap.name, ""}:
        raise UnfitError("its window is no window of an image")
    return term.get(point.name, 1), term.get(tap.name, 1), term.get("", 0)


def extent_of(axis: Axis) -> int:
    return number_of(axis.extent)


def number_of(extent: object) -> int:
    if not isinstance(extent, int):
        raise UnfitError("its sizes are open")
    return extent
