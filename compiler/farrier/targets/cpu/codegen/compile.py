"""LLVM text to objects, for a target that is a CPU."""

from __future__ import annotations

from farrier import llvm
from farrier.targets.cpu.backend import cpu_backend_of
from farrier.targets.target import Target


def compile_text(text: str, target: Target) -> bytes:
    """The ELF object of a module of LLVM text; CompilerError names the line that does not parse."""
    return llvm.object_of(text, cpu_backend_of(target).llvm(target))


def assembly(text: str, target: Target) -> str:
    """The module as assembly text, to read and for tests to look at."""
    return llvm.assembly(text, cpu_backend_of(target).llvm(target))
