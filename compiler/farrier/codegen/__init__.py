"""Loop functions → LLVM text → objects → one shared library, which needs nothing but a CPU."""

from farrier.codegen.batch import compile_functions
from farrier.codegen.emit import emit_function
from farrier.codegen.entry import emit_entry
from farrier.codegen.interface import Interface, interface
from farrier.codegen.link import link
from farrier.codegen.llvm import compile_text
from farrier.codegen.support import support_object

__all__ = [
    "Interface",
    "compile_functions",
    "compile_text",
    "emit_entry",
    "emit_function",
    "interface",
    "link",
    "support_object",
]
