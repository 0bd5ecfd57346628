"""Which models are read, and how large they may be."""

from __future__ import annotations

DOMAINS = ("", "ai.onnx")  # two spellings of ONNX's own domain
MICROSOFT = "com.microsoft"  # of ONNX Runtime's own operators
OLDEST_OPSET = 1
NEWEST_OPSET = 28

MAX_INLINED_BYTES = 1 << 28  # that calls of the model's own functions add to it
MAX_GRAPH_DEPTH = 64  # of graphs in each other once functions are inlined; protobuf reads about 33
