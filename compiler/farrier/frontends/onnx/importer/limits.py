"""The limits on models: their operator sets and sizes."""

from __future__ import annotations

DOMAINS = ("", "ai.onnx")  # Two spellings of ONNX's own domain.
MICROSOFT = "com.microsoft"  # The domain of ONNX Runtime's own operators.
OLDEST_OPSET = 1
NEWEST_OPSET = 28

MAX_INLINED_BYTES = 1 << 28  # The bytes that calls of the model's own functions may add to it.
# The nesting of graphs after functions are inlined; protobuf reads about 33 levels.
MAX_GRAPH_DEPTH = 64
