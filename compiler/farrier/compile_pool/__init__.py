"""Choose a schedule for each kernel, and compile the kernels to machine code in this process and in
helper processes.
"""

from __future__ import annotations

from farrier.compile_pool.builders import Built, RemoteCompilers
from farrier.compile_pool.compile import BuildInput, Compiled, lower, lowered, note_instructions
from farrier.compile_pool.helpers import CompilePool, Kernels, helpers_for

__all__ = [
    "BuildInput",
    "Built",
    "CompilePool",
    "Compiled",
    "Kernels",
    "RemoteCompilers",
    "helpers_for",
    "lower",
    "lowered",
    "note_instructions",
]
