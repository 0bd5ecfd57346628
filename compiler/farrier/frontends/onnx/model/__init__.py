"""The model as its user has it: an ONNX message and its data files."""
