"""Several kernels at once: a few modules, each compiled to one object.

LLVM's set-up costs a module as much as a small kernel does, so kernels share modules. llvmlite
holds a lock around every call, so threads would gain nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from farrier.ir.loop import Function
from farrier.targets.cpu.codegen.compile import compile_text
from farrier.targets.cpu.codegen.emit import emit_module
from farrier.targets.cpu.target import CpuTarget

_KERNELS_A_MODULE = 16


def compile_functions(functions: Sequence[Function], target: CpuTarget) -> list[bytes]:
    """Objects that together define every kernel; their names must differ."""
    objects = []
    for start in range(0, len(functions), _KERNELS_A_MODULE):
        text = emit_module(functions[start : start + _KERNELS_A_MODULE], target)
        objects.append(compile_text(text, target))
    return objects
