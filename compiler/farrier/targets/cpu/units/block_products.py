"""The analysis of a product with weights that are quantized in blocks, which has these stages:

    part[m, b, n]  = sum(x[m, b * block + i] * codes[b, i, n])        for each block b
    sums[m, b]     = sum(x[m, b * block + i])
    total[m, n]    = sum((part[m, b, n] - zeros[b, n] * sums[m, b]) * scales[b, n])

Elementwise stages may follow as the epilogue of total.
"""

from __future__ import annotations

import dataclasses

from farrier.ir.expr import Load, MemoryScope, Reduce, ReduceOp
from farrier.ir.substitute import loads
from farrier.ir.tensor import Stage, TensorProgram
from farrier.targets.cpu.units.contraction import (
    Contraction,
    contraction_of,
    innermost_axis,
    is_constant,
    is_elementwise,
)


@dataclasses.dataclass(frozen=True, slots=True)
class BlockProduct:
    """The stages of a product with block-quantized weights. Axes are given by name."""

    part: Contraction  # The product with the codes of one block.
    total: Stage  # The sum of the scaled parts over the blocks.
    sums: Stage | None  # The sums of the rows by block, if codes have zero points.
    epilogue: tuple[Stage, ...]

    @property
    def lane(self) -> str:
        return self.total.axes[-1].name

    @property
    def points(self) -> tuple[str, ...]:
        return tuple(axis.name for axis in self.total.axes[:-1])

    @property
    def block_axis(self) -> str:
        """The name of the axis over the blocks."""
        (axis,) = _body(self.total).axes
        return axis.name

    @property
    def within(self) -> str:
        """The name of the axis over the elements of a block."""
        (axis,) = _body(self.part.stage).axes
        return axis.name

    @property
    def parameters(self) -> tuple[Load, ...]:
        """The loads of the constants that scale the parts of each block: scales and zero points."""
        return tuple(
            load for load in loads(self.total.body) if load.buffer.scope is MemoryScope.CONSTANT
        )

    @property
    def output(self) -> Stage:
        return self.epilogue[-1] if self.epilogue else self.total


def find_block_product(program: TensorProgram) -> BlockProduct | None:
    """Return the product with block-quantized weights that `program` consists of; None for any
    other program."""
    reductions = [stage for stage in program.stages if isinstance(stage.body, Reduce)]
    if not 2 <= len(reductions) <= 3 or len(program.outputs) != 1:
        return None
    *sums, part, total = reductions
    epilogue = program.stages[len(reductions) :]
    if program.stages[: len(reductions)] != tuple(reductions):
        return None
    contraction = contraction_of(part)
    read = {load.buffer.name for load in loads(total.body)}
    reduced = _body(total)
    if contraction is None or part.buffer.name not in read or len(reduced.axes) != 1:
        return None
    names = [axis.name for axis in part.axes]
    expected = [*(a.name for a in total.axes[:-1]), reduced.axes[0].name, total.axes[-1].name]
    if names != expected or len(_body(part).axes) != 1 or reduced.op is not ReduceOp.SUM:
        return None
    if any(stage.buffer.name not in read for stage in sums):
        return None
    if not is_constant(contraction.vector_load) or len(contraction.vector_load.indices) != 3:
        return None
    last = program.stages[-1]
    if innermost_axis(last) != len(last.axes) - 1:
        return None
    if not all(is_elementwise(stage, program) for stage in epilogue):
        return None
    return BlockProduct(contraction, total, sums[0] if sums else None, tuple(epilogue))


def _body(stage: Stage) -> Reduce:
    assert isinstance(stage.body, Reduce)
    return stage.body
