"""The analysis of pools of bytes: the maxima of the windows of an image, in which padding is the
lowest byte, or the sums of its channels, as for a global average.

    maximum[n, c, y, x] = max(i32(data[n, c, s·y + d·kh, s·x + d·kw]))
    sum[n, c, 0, 0]     = sum(i32(data[n, c, kh, kw]))
"""

from __future__ import annotations

from collections.abc import Iterator

from farrier.ir.expr import (
    Binary,
    BinaryOp,
    Cast,
    Const,
    Expr,
    Load,
    MemoryScope,
    Reduce,
    ReduceOp,
    Select,
)
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.types import DType
from farrier.targets.dae.anchor import Anchor, Axes, Method
from farrier.targets.dae.images import (
    UnfitError,
    extent_of,
    image_of,
    linear,
    loaded_image_of,
    window_along,
)

_METHODS = {ReduceOp.MAX: Method.MAXIMA, ReduceOp.SUM: Method.SUMS}


def pool_of(program: TensorProgram, stage: Stage, block: int) -> Anchor:
    """Return the pool that a stage of a program computes. Raises UnfitError if the vector unit
    cannot compute it."""
    body = stage.body
    assert isinstance(body, Reduce)
    method = _METHODS.get(body.op)
    load, fill = _element(program, body.body)
    dtype = load.buffer.dtype
    if method is None or stage.buffer.dtype is not DType.I32 or not _is_image_of_bytes(load):
        raise UnfitError("it is no pool of bytes")
    lowest = int(dtype.limits[0])
    if fill is not None and (method, fill) != (Method.MAXIMA, lowest):
        raise UnfitError("its image is padded in another way")
    if (len(stage.axes), len(stage.reduced_axes)) != (4, 2):
        raise UnfitError("it is a pool of other axes than those of an image")
    n, channel, oy, ox = stage.axes
    terms = [linear(index) for index in load.indices]
    if n.extent != 1 or terms[0] not in ({}, {n.name: 1}) or terms[1] != {channel.name: 1}:
        raise UnfitError("it is a pool across channels, or one of several images")
    kh, kw = stage.reduced_axes
    windows = window_along(terms[2], oy, kh), window_along(terms[3], ox, kw)
    return Anchor(
        method=method,
        data=loaded_image_of(program, load.buffer, block),
        weights=None,
        out=image_of(program, program.outputs[0], block),
        axes=Axes(1, 2, 3),
        stage=stage,
        blocks_in=1,
        blocks_out=-(-extent_of(channel) // block),
        height=extent_of(oy),
        width=extent_of(ox),
        kernel=(extent_of(kh), extent_of(kw)),
        strides=(windows[0][0], windows[1][0]),
        dilations=(windows[0][1], windows[1][1]),
        before=(-windows[0][2], -windows[1][2]),
        fill=lowest,
        initial=lowest if method is Method.MAXIMA else 0,
    )


def _is_image_of_bytes(load: Load) -> bool:
    buffer = load.buffer
    is_byte = buffer.dtype in (DType.I8, DType.U8)
    return is_byte and buffer.scope is not MemoryScope.CONSTANT and len(buffer.shape) == 4


def _element(program: TensorProgram, expr: Expr) -> tuple[Load, int | None]:
    """Return the load of an element of a window, and the value of the padding if there is any."""
    match expr:
        case Load(buffer=buffer) if buffer in program.inputs:
            return expr, None
        case Load(buffer=buffer):
            # A stage that converts the image is a part of the pool.
            before = program.stage(buffer.name)
            if isinstance(before.body, Cast) and isinstance(before.body.operand, Load):
                return _moved(expr, before, before.body.operand), None
        case Cast(operand=operand, dtype=DType.I32):
            return _element(program, operand)
        case Select(condition=condition, then=Load() as load, otherwise=Const(value=fill)):
            if all(_is_bound(term, load) for term in _terms(condition)):
                return load, int(fill)
    raise UnfitError("it is no pool of bytes")


def _moved(load: Load, stage: Stage, source: Load) -> Load:
    """Return the load of the element from which `stage` converts the element that `load` reads.
    Raises UnfitError if that is another element than the one at the same place."""
    for index, axis in zip(source.indices, stage.axes, strict=True):
        if linear(index) not in ({axis.name: 1}, {} if axis.extent == 1 else {axis.name: 1}):
            raise UnfitError("it is no pool of bytes")
    return Load(source.buffer, load.indices)


def _terms(condition: Expr) -> Iterator[Expr]:
    """Yield the conditions whose conjunction is `condition`."""
    if isinstance(condition, Binary) and condition.op is BinaryOp.AND:
        yield from _terms(condition.left)
        yield from _terms(condition.right)
    else:
        yield condition


def _is_bound(condition: Expr, load: Load) -> bool:
    """Check whether a condition says that an index of a load is not before or behind its image."""
    match condition:
        case Binary(op=BinaryOp.LE, left=Const(value=0), right=index):
            return index in load.indices
        case Binary(op=BinaryOp.LT, left=index, right=Const(value=extent)):
            pairs = zip(load.indices, load.buffer.shape, strict=True)
            return any((index, extent) == pair for pair in pairs)
    return False
