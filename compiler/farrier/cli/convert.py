"""The verb `farrier convert`: convert a Keras, TensorFlow or JAX model to a file that Farrier
compiles.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def convert(
    model: Annotated[
        Path,
        typer.Argument(
            help="Model to convert: a .keras or .h5 file, a SavedModel, or an export of JAX."
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", help="File to write: .onnx or .tflite; .mlir for a model of JAX."
        ),
    ],
) -> None:
    """Convert a model of JAX, Keras or TensorFlow. The framework that created it must be installed
    here."""
    from farrier.conversion.convert import convert as converted

    converted(model, output)
    typer.echo(output)
