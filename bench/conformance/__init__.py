"""Run ONNX's own backend suite through compiled code: `make conformance`."""
