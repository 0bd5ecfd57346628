"""Identify the framework of a model file, and convert the file by that framework."""

from __future__ import annotations

from pathlib import Path

from farrier.conversion import jax, tensorflow
from farrier.errors import UsageError
from farrier.files.atomic import write_text_atomically

_HDF5 = b"\x89HDF\r\n"
_ZIP = b"PK\x03\x04"
_TENSORFLOW = (".onnx", ".tflite")
_JAX = (".mlir",)
_PACKAGES = {
    "flatbuffers": "flatbuffers",
    "jax": "jax flatbuffers",
    "keras": "tensorflow-cpu tf2onnx",
    "tensorflow": "tensorflow-cpu tf2onnx",
    "tf2onnx": "tf2onnx",
    "onnx": "onnx",
}


def convert(source: Path, output: Path) -> None:
    """Convert a model file to a file that Farrier compiles: a model of Keras or TensorFlow to
    `.onnx` or `.tflite`, one of JAX to `.mlir`. Raises UsageError if `source` is not such a model,
    if the suffix of `output` does not match, or if the framework is not installed; the hint then
    names the packages to install."""
    is_tensorflow = _is_tensorflow(source)
    suffixes = _TENSORFLOW if is_tensorflow else _JAX
    if output.suffix not in suffixes:
        raise UsageError(
            f"{source.name} becomes {' or '.join(suffixes)}, and the output is {output.name}",
            hint=f"-o {output.with_suffix(suffixes[0]).name}",
        )
    try:
        if is_tensorflow:
            tensorflow.convert(source, output)
        else:
            write_text_atomically(output, jax.text_of_bytes(source.read_bytes()))
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _PACKAGES:
            raise
        raise UsageError(
            f"{source.name} is converted by its own framework, and {package} is not installed",
            hint=f"pip install {_PACKAGES[package]}; it is needed where you convert, nowhere else",
        ) from error


def _is_tensorflow(source: Path) -> bool:
    """Check whether a model was saved by Keras or TensorFlow. Raises UsageError if the file does
    not exist."""
    if source.is_dir():
        if (source / "saved_model.pb").exists():
            return True
        raise UsageError(f"{source} is a directory without a saved_model.pb")
    if not source.exists():
        raise UsageError(f"no such file: {source}")
    with source.open("rb") as file:
        head = file.read(len(_HDF5))
    return head.startswith((_HDF5, _ZIP))
