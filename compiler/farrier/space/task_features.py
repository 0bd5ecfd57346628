"""The features of a task that all its candidates share."""

from __future__ import annotations

import math

from farrier.ir.dim import typical
from farrier.ir.loop import Function
from farrier.ir.tensor import TensorProgram
from farrier.ir.work import arithmetic


def task_features(program: TensorProgram | Function) -> dict[str, float]:
    """Return the sizes of a task, for the learned model, as logarithms."""
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
