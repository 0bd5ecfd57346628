"""Compilation of LLVM text to object files for a CPU target."""

from __future__ import annotations

from farrier import llvm
from farrier.targets.cpu.target import CpuTarget


def compile_text(text: str, target: CpuTarget) -> bytes:
    """Return the ELF object for a module of LLVM text. Raises CompilerError that names the line
    which does not parse."""
    return llvm.object_of(text, target.llvm)


def assembly(text: str, target: CpuTarget) -> str:
    """Return the assembly text for a module of LLVM text, for readers and tests."""
    return llvm.assembly(text, target.llvm)
