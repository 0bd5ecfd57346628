"""The frontend for ONNX: `model` reads the files without the onnx package, and `importer` builds
the graph.

Memory-mapped files (`farrier/files`) are not part of it, because the IR, artifacts and records of
all frontends use them.
"""
