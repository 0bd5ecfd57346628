"""`make bench ARGS=--operators`: race Farrier against ONNX Runtime on models of a single
operator."""
