"""The common part of all CPU targets: register tiling, threads, code generation by LLVM, and one
shared library for each model."""
