"""The analysis of a kernel: the anchor with which it begins, by the kind of its reduction."""

from __future__ import annotations

from farrier.ir.expr import Binary, Reduce, ReduceOp
from farrier.ir.loop import Function
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.types import DType
from farrier.targets.dae.anchor import Anchor
from farrier.targets.dae.description import Accelerator
from farrier.targets.dae.elementwise import elementwise_of
from farrier.targets.dae.images import UnfitError
from farrier.targets.dae.pools import pool_of
from farrier.targets.dae.products import product_of


def anchor_of(program: TensorProgram | Function, accelerator: Accelerator) -> Anchor:
    """Return the anchor of a kernel. Raises UnfitError, with the reason why the host runs the
    kernel, if the accelerator does not support it."""
    if isinstance(program, Function):
        raise UnfitError("it is a loop nest of its own, and no convolution or product")
    if program.dims:
        raise UnfitError("its sizes are open")
    reductions = [stage for stage in program.stages if isinstance(stage.body, Reduce)]
    if len(reductions) > 1 or len(program.outputs) != 1:
        raise UnfitError("it is no convolution or product of bytes")
    block = accelerator.matrix.inner
    if not reductions:
        return elementwise_of(program, block)
    (stage,) = reductions
    if _is_pool(stage):
        return pool_of(program, stage, block)
    return product_of(program, stage, accelerator)


def _is_pool(stage: Stage) -> bool:
    """Check whether a reduction combines single elements, in integers."""
    body = stage.body
    assert isinstance(body, Reduce)
    if body.op is ReduceOp.SUM and stage.buffer.dtype is not DType.I32:
        return False
    return not isinstance(body.body, Binary)
