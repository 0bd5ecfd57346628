"""Instructions and the LLVM text of them, for all targets whose code LLVM makes: the builder of a
function, the arithmetic and the elementary functions of the expression grammar, and the writer."""
