"""LLVM text to objects, for a target that is a CPU."""

from __future__ import annotations

from farrier import llvm
from farrier.targets.cpu.target import CpuTarget


def compile_text(text: str, target: CpuTarget) -> bytes:
    """The ELF object of a module of LLVM text; CompilerError names the line that does not parse."""
    return llvm.object_of(text, target.llvm)


def assembly(text: str, target: CpuTarget) -> str:
    """The module as assembly text, to read and for tests to look at."""
    return llvm.assembly(text, target.llvm)
