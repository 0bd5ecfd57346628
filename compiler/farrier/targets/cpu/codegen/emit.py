"""The translation of loop functions to LLVM text. Statements become instructions, instruction
passes improve these, and a table maps each instruction to text. LLVM's own optimization passes are
not run.

    i32 @name(ptr %args, ptr %pool)        the kernel: args = params, then sizes, workspace, slices
    void @name.body0(ptr %ctx, i64 %begin, i64 %end, i64 %worker)      one for each parallel loop
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence

from farrier.ir import instr
from farrier.ir.loop import Function
from farrier.progress import debug
from farrier.targets.cpu.codegen.instruction_passes import instruction_passes
from farrier.targets.cpu.codegen.statements import instructions_of
from farrier.targets.cpu.target import CpuTarget
from farrier.targets.llvm.llvm_text import definition, module_text

_LIBRARY = '"no-builtins"'  # Kernels call no library functions, so LLVM must not recognize any.


def emit_function(function: Function, target: CpuTarget) -> str:
    """Return the LLVM module of a single kernel, `i32 @<function.name>(ptr args, ptr pool)`.

    `args` is an array of pointers. It begins with the params in order. Three pointers follow, each
    of which is left out if the function does not need it: the i64 array with the values of
    `sizes_of`, the workspace, and the workspace slice of worker 0 (see `codegen.workspace`).
    """
    return emit_module((function,), target)


def emit_module(functions: Iterable[Function], target: CpuTarget) -> str:
    """Return the LLVM module of several kernels, each with the interface that `emit_function`
    documents."""
    attributes = _attributes(target)
    definitions: list[str] = []
    declarations: dict[str, None] = {}  # Declarations of several kernels are merged.
    for function in functions:
        declared: set[str] = set()
        parts: Sequence[instr.Function] = ()
        for name, parts in _after_each_pass(function, target):
            shown = functools.partial(module_text, parts, attributes)
            debug.show(debug.CODE, f"{name} of {function.name}", shown)
        definitions += [definition(part, attributes, declared) for part in parts]
        declarations |= dict.fromkeys(sorted(declared))
    return "\n".join([*definitions, *declarations, ""])


def instruction_texts(function: Function, target: CpuTarget) -> dict[str, str]:
    """Return the instructions of a kernel as text at several stages. The key "instructions" has the
    instructions before all passes. The name of each pass that changes them has the instructions
    after that pass."""
    attributes = _attributes(target)
    texts: dict[str, str] = {}
    for name, parts in _after_each_pass(function, target):
        text = module_text(parts, attributes)
        if text not in texts.values():
            texts[name] = text
    return texts


def _after_each_pass(
    function: Function, target: CpuTarget
) -> Iterator[tuple[str, Sequence[instr.Function]]]:
    """Yield a kernel's instructions (a list with the kernel and the bodies of its parallel loops)
    before the first pass, under the name "instructions", and after each pass, under the name of the
    pass."""
    parts = instructions_of(function, target, target.instructions)
    yield "instructions", parts
    for name, run in instruction_passes(target.instructions).items():
        parts = list(map(run, parts))
        yield name, parts


def _attributes(target: CpuTarget) -> str:
    return " ".join((*target.instructions.attributes, _LIBRARY))
