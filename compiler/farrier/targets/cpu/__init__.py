"""What all CPUs share: register tiles, threads, code through LLVM, one shared library."""
