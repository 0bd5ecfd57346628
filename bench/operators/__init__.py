"""`make bench ARGS=--operators`: models of one operator each, compared with ONNX Runtime."""
