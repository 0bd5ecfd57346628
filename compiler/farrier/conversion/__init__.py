"""Conversion of models by the frameworks that made them, on the machine of their user.

`jax` turns what JAX exports into the text that `frontends/stablehlo` reads, and `tensorflow` has
Keras and TensorFlow write ONNX or TFLite. Neither framework is imported before it is needed.
"""
