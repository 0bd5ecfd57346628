"""The RAM of a model in a C program: the positions of inputs and outputs in the workspace, and the
total size, which is known before kernels are compiled."""

from __future__ import annotations

from farrier.ir.dim import typical
from farrier.partition.plan_memory import MemoryPlan, plan_memory
from farrier.partition.program import DriverProgram
from farrier.targets.c_header import Arena


def lent_offsets(program: DriverProgram, memory: MemoryPlan) -> tuple[int, ...]:
    """Return, for each input and then each output, its offset in the workspace, or -1 if the tensor
    has memory of its own outside the workspace."""
    names = [program.home(value).name for value in (*program.inputs, *program.outputs)]
    return tuple(typical(memory.lent[name]) if name in memory.lent else -1 for name in names)


def arena_bytes(program: DriverProgram) -> int:
    """Return the bytes of RAM that the values of a program take. The stack is not included."""
    memory = plan_memory(program, lends=True)
    arena = Arena(
        inputs=[typical(value.type.nbytes) for value in program.inputs],
        outputs=[typical(value.type.nbytes) for value in program.outputs],
        workspace=typical(memory.workspace_bytes),
        lent=lent_offsets(program, memory),
    )
    return arena.nbytes
