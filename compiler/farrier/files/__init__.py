"""Files on disk: atomic writes, memory-mapped files, and arrays."""
