"""Rewrites of ONNX nodes without a direct counterpart to several nodes of Farrier; one module per
family."""
