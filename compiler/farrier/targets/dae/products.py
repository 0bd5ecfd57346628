"""The analysis of the tensor programs that an accelerator computes: a convolution or a matrix
product of i8, followed by an elementwise epilogue.

    conv[n, oc, y, x] = sum(i32(data[n, ic, s·y + d·kh, s·x + d·kw]) · i32(w[oc, ic, kh, kw]))
    product[m, n]     = sum(i32(data[m, k]) · i32(w[k, n]))

Both are represented as an `Anchor` with points along y and x, channels in blocks of the matrix
unit, and taps (the positions in the convolution kernel). The rows of a matrix product are points
along x.
"""

from __future__ import annotations

from farrier.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Const,
    Load,
    MemoryScope,
    Reduce,
    ReduceOp,
    Select,
)
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.types import DType, Layout, PhysicalDim
from farrier.targets.dae.anchor import Anchor, Axes, Method, Weights
from farrier.targets.dae.description import Accelerator
from farrier.targets.dae.images import (
    Image,
    UnfitError,
    extent_of,
    image_of,
    linear,
    loaded_image_of,
    window_along,
)


def product_of(program: TensorProgram, sums: Stage, accelerator: Accelerator) -> Anchor:
    """Return the product that the stage `sums` of a program computes. Raises UnfitError if the
    accelerator does not support it."""
    block = accelerator.matrix.inner
    if sums.buffer.dtype is DType.F32:
        return _depthwise(program, sums, block)
    data, weights = _factors(sums)
    for factor, what in ((data, "input"), (weights, "weight")):
        wanted = getattr(accelerator.matrix, what)
        if factor.buffer.dtype is not wanted:
            kind = factor.buffer.dtype.value
            raise UnfitError(f"its {what}s are {kind}, and the unit multiplies {wanted.value}")
    if weights.buffer.scope is not MemoryScope.CONSTANT:
        raise UnfitError("its weights are computed in the model")
    match len(sums.axes), len(sums.reduced_axes):
        case 4, 3:
            return _convolution(program, sums, data, weights, block)
        case 2, 1:
            return _matrix(program, sums, data, weights, block)
    raise UnfitError("it is a product of other axes than those of an image or a matrix")


def _factors(sums: Stage) -> tuple[Load, Load]:
    body = sums.body
    assert isinstance(body, Reduce)
    term = body.body
    factors = (term.left, term.right) if isinstance(term, Binary) else ()
    loads = [each.operand for each in factors if isinstance(each, Cast)]
    if (
        body.op is not ReduceOp.SUM
        or not isinstance(term, Binary)
        or term.op is not BinaryOp.MUL
        or len(loads) != 2
        or sums.buffer.dtype is not DType.I32
        or not all(isinstance(each, Load) for each in loads)
    ):
        raise UnfitError("it is no convolution or product of bytes")
    left, right = loads
    assert isinstance(left, Load)
    assert isinstance(right, Load)
    return left, right


# -- the two forms


def _convolution(
    program: TensorProgram, sums: Stage, data: Load, weights: Load, block: int
) -> Anchor:
    n, oc, oy, ox = sums.axes
    terms = [linear(index) for index in data.indices]
    taps = [linear(index) for index in weights.indices]
    by_name = {axis.name: axis for axis in sums.reduced_axes}
    order = [next(iter(tap), "") for tap in taps[1:]]
    if n.extent != 1 or set(order) != set(by_name) or taps[0] != {oc.name: 1}:
        raise UnfitError("it is a grouped convolution, or one of several images")
    ic, kh, kw = (by_name[name] for name in order)
    if terms[1] != {ic.name: 1}:
        raise UnfitError("it is a grouped convolution")
    windows = [window_along(terms[2], oy, kh), window_along(terms[3], ox, kw)]
    image, before, fill = _source(program, data.buffer, block)
    return Anchor(
        method=Method.PRODUCTS,
        data=image,
        weights=Weights(program.inputs.index(weights.buffer), _tiles(4, 0, 1, block)),
        out=image_of(program, program.outputs[0], block),
        axes=Axes(1, 2, 3),
        stage=sums,
        blocks_in=-(-extent_of(ic) // block),
        blocks_out=-(-extent_of(oc) // block),
        height=extent_of(oy),
        width=extent_of(ox),
        kernel=(extent_of(kh), extent_of(kw)),
        strides=(windows[0][0], windows[1][0]),
        dilations=(windows[0][1], windows[1][1]),
        before=(before[0] - windows[0][2], before[1] - windows[1][2]),
        fill=fill,
    )


def _depthwise(program: TensorProgram, sums: Stage, block: int) -> Anchor:
    """Return a depthwise convolution whose integers are summed as floats, in f32, which represents
    all these sums exactly."""
    data, weights = _float_factors(sums)
    n, oc, oy, ox = sums.axes
    kh, kw = sums.reduced_axes
    terms = [linear(index) for index in data.indices]
    taps = [linear(index) for index in weights.indices]
    is_depthwise = taps == [{oc.name: 1}, {}, {kh.name: 1}, {kw.name: 1}]
    if n.extent != 1 or not is_depthwise or terms[1] != {oc.name: 1}:
        raise UnfitError("it is a sum of floats, and no depthwise convolution of bytes")
    windows = [window_along(terms[2], oy, kh), window_along(terms[3], ox, kw)]
    image, before, fill = _source(program, data.buffer, block)
    taps_inside = (PhysicalDim(axis) for axis in (1, 2, 3))
    layout = Layout((PhysicalDim(0, block), *taps_inside, PhysicalDim(0, 1, block)))
    return Anchor(
        method=Method.DEPTHWISE,
        data=image,
        weights=Weights(program.inputs.index(weights.buffer), layout),
        out=image_of(program, program.outputs[0], block),
        axes=Axes(1, 2, 3),
        stage=sums,
        blocks_in=1,
        blocks_out=-(-extent_of(oc) // block),
        height=extent_of(oy),
        width=extent_of(ox),
        kernel=(extent_of(kh), extent_of(kw)),
        strides=(windows[0][0], windows[1][0]),
        dilations=(windows[0][1], windows[1][1]),
        before=(before[0] - windows[0][2], before[1] - windows[1][2]),
        fill=fill,
    )


def _float_factors(sums: Stage) -> tuple[Load, Load]:
    match sums.body:
        case Reduce(
            op=ReduceOp.SUM,
            body=Binary(
                op=BinaryOp.MUL, left=Cast(operand=Load() as data), right=Load() as weights
            ),
        ) if (
            data.buffer.dtype in (DType.I8, DType.U8)
            and weights.buffer.scope is MemoryScope.CONSTANT
            and (len(sums.axes), len(sums.reduced_axes)) == (4, 2)
        ):
            return data, weights
    raise UnfitError("it is a sum of floats, and no depthwise convolution of bytes")


def _matrix(program: TensorProgram, sums: Stage, data: Load, weights: Load, block: int) -> Anchor:
    (m, n), (k,) = sums.axes, sums.reduced_axes
    is_plain = [linear(index) for index in (*data.indices, *weights.indices)] == [
        {m.name: 1} if linear(data.indices[0]) else {},
        {k.name: 1},
        {k.name: 1},
        {n.name: 1},
    ]
    if not is_plain or data.buffer not in program.inputs:
        raise UnfitError("it is a product of matrices that are read in another order")
    rows, columns, depth = extent_of(m), extent_of(n), extent_of(k)
    return Anchor(
        method=Method.PRODUCTS,
        data=loaded_image_of(program, data.buffer, block),
        weights=Weights(program.inputs.index(weights.buffer), _tiles(2, 1, 0, block)),
        out=image_of(program, program.outputs[0], block),
        axes=Axes(1, None, 0),
        stage=sums,
        blocks_in=depth // block,
        blocks_out=-(-columns // block),
        height=1,
        width=rows,
    )


def _tiles(rank: int, outputs: int, inputs: int, block: int) -> Layout:
    """Return the layout of weights with `rank` axes in tiles of `block` × `block` elements, for the
    matrix unit. A tile runs along the axes numbered `outputs` and `inputs`, which are those of the
    output and input channels. The tiles of all taps (positions in the convolution kernel) with the
    same channels are contiguous."""
    taps = tuple(PhysicalDim(axis) for axis in range(2, rank))
    return Layout(
        (
            PhysicalDim(outputs, block),
            PhysicalDim(inputs, block),
            *taps,
            PhysicalDim(outputs, 1, block),
            PhysicalDim(inputs, 1, block),
        )
    )


# -- images


def _source(
    program: TensorProgram, buffer: Buffer, block: int
) -> tuple[Image, tuple[int, int], int]:
    """Return three values for the image that a convolution reads: its layout in memory; the
    padding before it along y and x, if a stage of the program adds padding; and the value of the
    padding."""
    if buffer in program.inputs:
        return loaded_image_of(program, buffer, block), (0, 0), 0
    stage = program.stage(buffer.name)
    body = stage.body
    if not (
        isinstance(body, Select)
        and isinstance(body.then, Load)
        and isinstance(body.otherwise, Const)
        and body.then.buffer in program.inputs
    ):
        raise UnfitError("it reads what another operator in its kernel computes")
    places = [linear(index) for index in body.then.indices]
    before = []
    for at, (place, axis) in enumerate(zip(places, stage.axes, strict=True)):
        moved = place.get("", 0)
        if {name: n for name, n in place.items() if name} not in ({axis.name: 1}, {}):
            raise UnfitError("its image is padded in another way")
        if at < 2 and moved:
            raise UnfitError("its image is padded along its channels")
        before.append(-moved)
    image = loaded_image_of(program, body.then.buffer, block)
    return image, (before[2], before[3]), int(body.otherwise.value)
