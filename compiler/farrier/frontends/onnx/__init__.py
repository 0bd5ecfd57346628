"""The frontend for ONNX: `model`, its files, which are read without onnx, and `importer`.

`files/` at the top of the compiler is not a part of it: constants of the IR, artifacts and records
are mapped and written by it, whatever frontend a model comes from.
"""
