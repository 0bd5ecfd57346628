"""The features that all candidates of a task share."""

from __future__ import annotations

import math

from farrier.ir.dim import typical
from farrier.ir.loop import Function
from farrier.ir.tensor import TensorProgram
from farrier.ir.work import arithmetic


def task_features(program: TensorProgram | Function) -> dict[str, float]:
    """Return the sizes of a task (operations, bytes, points) as logarithms, for the learned
    model."""
    if isinstance(program, Function):
        buffers, written = program.params, program.params[-1:]
    else:
        buffers, written = (*program.inputs, *program.outputs), program.outputs
    sizes = {
        "operations": arithmetic(program),
        "bytes": sum(typical(buffer.nbytes) for buffer in buffers),
        "written": sum(typical(buffer.nbytes) for buffer in written),
    }
    return {f"task.{name}": math.log2(1 + value) for name, value in sizes.items()}
