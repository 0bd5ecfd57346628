"""`farrier convert`: a model of Keras, TensorFlow or JAX as a file that compiles."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def convert(
    model: Annotated[
        Path, typer.Argument(help="A .keras or .h5 file, a SavedModel, or an export of JAX.")
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", help=".onnx or .tflite; of JAX, .mlir.")
    ],
) -> None:
    """Convert a model by the framework that made it, which has to be installed here."""
    from farrier.conversion.convert import convert as converted

    converted(model, output)
    typer.echo(output)
