"""The analysis of kernels without a product or a pool, such as an addition of two tensors of bytes:
an epilogue alone, on tiles that are loaded."""

from __future__ import annotations

from farrier.ir.expr import Buffer, MemoryScope
from farrier.ir.tensor import TensorProgram
from farrier.ir.types import DType
from farrier.targets.dae.anchor import Anchor, Axes, Method
from farrier.targets.dae.images import (
    Image,
    UnfitError,
    flat_image_of,
    loaded_image_of,
    number_of,
)


def elementwise_of(program: TensorProgram, block: int) -> Anchor:
    """Return the elements that a program computes from others at the same place: the points of an
    image or a matrix, or else a line of elements. Raises UnfitError if it reads anything but
    bytes."""
    (output,) = program.outputs
    tensors = [each for each in program.inputs if each.scope is not MemoryScope.CONSTANT]
    if not tensors or any(each.dtype not in (DType.I8, DType.U8) for each in tensors):
        raise UnfitError("it is no convolution or product of bytes")
    if any(each.shape != output.shape for each in tensors):
        raise UnfitError("it moves elements, or reads them more than once")
    out, is_flat = _image_of(program, output, block)
    rank = len(output.shape)
    blocks = 1 if is_flat else -(-number_of(output.shape[1]) // block)
    return Anchor(
        method=Method.NONE,
        data=None,
        weights=None,
        out=out,
        axes=Axes(1, 2, 3) if rank == 4 else Axes(1, None, 0),
        stage=None,
        blocks_in=1,
        blocks_out=blocks,
        height=out.height,
        width=out.width,
        is_flat=is_flat,
    )


def _image_of(program: TensorProgram, buffer: Buffer, block: int) -> tuple[Image, bool]:
    """Return the layout of a buffer, and whether it is a line of elements."""
    try:
        return loaded_image_of(program, buffer, block), False
    except UnfitError:
        return flat_image_of(program, buffer, block), True
