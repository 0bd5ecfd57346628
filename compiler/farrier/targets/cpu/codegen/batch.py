"""Compilation of several kernels at once, in a few LLVM modules with one object each.

Setting up LLVM for a module takes as long as compiling a small kernel, so kernels share modules.
Threads would not help, since llvmlite holds a lock around every call.
"""

from __future__ import annotations

from collections.abc import Sequence

from farrier.ir.loop import Function
from farrier.targets.cpu.codegen.compile import compile_text
from farrier.targets.cpu.codegen.emit import emit_module
from farrier.targets.cpu.target import CpuTarget

_KERNELS_A_MODULE = 16


def compile_functions(functions: Sequence[Function], target: CpuTarget) -> list[bytes]:
    """Return objects that together define all of the kernels `functions`, whose names must
    differ."""
    objects = []
    for start in range(0, len(functions), _KERNELS_A_MODULE):
        text = emit_module(functions[start : start + _KERNELS_A_MODULE], target)
        objects.append(compile_text(text, target))
    return objects
