"""Conversion of models by the frameworks that created them, on the user's machine.

`jax` converts exports of JAX to the text that `frontends/stablehlo` reads, and `tensorflow` has
Keras and TensorFlow write ONNX or TFLite. Neither framework is imported before it is needed.
"""
