"""The code generator for CPUs: loop functions → LLVM text → object files → one shared library,
which needs no other library."""

from farrier.targets.cpu.codegen.batch import compile_functions
from farrier.targets.cpu.codegen.compile import assembly, compile_text
from farrier.targets.cpu.codegen.emit import emit_function, instruction_texts
from farrier.targets.cpu.codegen.link import library, link
from farrier.targets.cpu.codegen.support import support_object
from farrier.targets.cpu.codegen.workspace import interface

__all__ = [
    "assembly",
    "compile_functions",
    "compile_text",
    "emit_function",
    "instruction_texts",
    "interface",
    "library",
    "link",
    "support_object",
]
