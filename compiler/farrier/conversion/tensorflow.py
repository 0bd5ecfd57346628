"""Convert models of Keras and TensorFlow to ONNX or TFLite, by their own exporters."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from farrier.errors import UnsupportedOperatorError

_MOST_SHOWN = 300  # Characters of a framework's error.


def convert(source: Path, output: Path) -> None:
    """Convert a `.keras` or `.h5` file, or the folder of a SavedModel, to the format of the
    output's suffix: `.onnx` or `.tflite`. Raises UnsupportedOperatorError with the exporter's
    message."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # Its notes on this machine's features.
    try:
        if output.suffix == ".tflite":
            output.write_bytes(_tflite(source))
        elif source.is_dir():
            _saved_model_to_onnx(source, output)
        else:
            _keras_to_onnx(source, output)
    except ModuleNotFoundError:
        raise
    except Exception as error:  # The exporters' errors have no common base.
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise UnsupportedOperatorError(
            f"{source.name} cannot be converted: {lines[-1][:_MOST_SHOWN]}",
            hint=f"try {'.onnx' if output.suffix == '.tflite' else '.tflite'} as its name: the two "
            "exporters take different models",
        ) from error


def _keras(source: Path) -> Any:
    import keras

    return keras.saving.load_model(source, compile=False, safe_mode=True)


def _keras_to_onnx(source: Path, output: Path) -> None:
    import keras

    model = _keras(source)
    # A model that is loaded has not been called, and the exporter asks for that or for its inputs.
    inputs = [keras.InputSpec(shape=x.shape, dtype=x.dtype, name=x.name) for x in model.inputs]
    model.export(str(output), format="onnx", verbose=False, input_signature=inputs)


def _tflite(source: Path) -> bytes:
    import tensorflow as tf

    if source.is_dir():
        converter = tf.lite.TFLiteConverter.from_saved_model(str(source))
    else:
        converter = tf.lite.TFLiteConverter.from_keras_model(_keras(source))
    return bytes(converter.convert())


def _saved_model_to_onnx(source: Path, output: Path) -> None:
    import tf2onnx  # noqa: F401

    words = [sys.executable, "-m", "tf2onnx.convert", "--saved-model", str(source)]
    done = subprocess.run(
        [*words, "--output", str(output)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
