"""A model's files: the ONNX message and its data files."""
