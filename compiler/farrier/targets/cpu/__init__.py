"""The common part of all CPU targets: register tiles, threads, code by LLVM, one shared library."""
