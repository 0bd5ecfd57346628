"""The part of code generation that all LLVM targets share: the builder of a function's
instructions, the arithmetic and elementary functions of the expression grammar, and the writer of
LLVM text."""
