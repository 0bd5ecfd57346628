"""Loop functions to LLVM text: statements become instructions, passes improve these, and a table
writes them. No optimizer of LLVM follows.

    i32 @name(ptr %args, ptr %pool)        the kernel: args = params, then sizes, workspace, slices
    void @name.body0(ptr %ctx, i64 %begin, i64 %end, i64 %worker)      one for each parallel loop
"""

from __future__ import annotations

from collections.abc import Iterable

from farrier.ir.loop import Function
from farrier.targets.cpu.codegen.instruction_passes import instruction_passes
from farrier.targets.cpu.codegen.llvm_text import definition
from farrier.targets.cpu.codegen.statements import instructions_of
from farrier.targets.cpu.target import CpuTarget

_LIBRARY = '"no-builtins"'  # A kernel calls no function of a library, so none is recognized.


def emit_function(function: Function, target: CpuTarget) -> str:
    """Return a module with the kernel `i32 @<function.name>(ptr args, ptr pool)`.

    `args` holds the params in order, then, each where the function has any (`codegen.workspace`): a
    pointer to the values of `sizes_of` (i64), the workspace, and the slice of worker 0.
    """
    return emit_module((function,), target)


def emit_module(functions: Iterable[Function], target: CpuTarget) -> str:
    """Return a module with several kernels, as `emit_function` makes one each."""
    instructions = target.instructions
    attributes = " ".join((*instructions.attributes, _LIBRARY))
    passes = instruction_passes(instructions)
    definitions: list[str] = []
    declarations: dict[str, None] = {}  # What several kernels declare is declared once.
    for function in functions:
        declared: set[str] = set()
        for part in instructions_of(function, target, instructions):
            for run in passes.values():
                part = run(part)
            definitions.append(definition(part, attributes, declared))
        declarations |= dict.fromkeys(sorted(declared))
    return "\n".join([*definitions, *declarations, ""])
