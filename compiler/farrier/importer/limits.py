"""Which models are read, and how large they may be."""

from __future__ import annotations

DOMAINS = ("", "ai.onnx")  # two spellings of ONNX's own domain
MICROSOFT = "com.microsoft"  # of ONNX Runtime's own operators
OLDEST_OPSET = 1
NEWEST_OPSET = 28

# One value, computed or constant, or as much as the model's own files have. What lies in a file of
# its own is as large as that file.
MAX_TENSOR_BYTES = 1 << 31
MAX_CONSTANT_BYTES = 1 << 31  # all constants together that are made, and lie in no file
MAX_FOLDED_BYTES = 1 << 20  # computed while importing; beyond that it is left to the passes
MAX_MADE_BYTES = 1 << 29  # one constant that a rewrite makes, in double
MAX_INLINED_BYTES = 1 << 28  # that calls of the model's own functions add to it
MAX_RANK = 64  # numpy's own
MAX_NODES = 200_000  # in all graphs, loops unrolled and functions inlined
MAX_GRAPH_DEPTH = 64  # of graphs in each other once functions are inlined; protobuf reads about 33
MAX_UNROLLED = 1024  # iterations of a loop whose shapes change
