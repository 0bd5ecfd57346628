"""TFLite bytes → typed graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from farrier.frontends.builder import ImportedModel, built_by, resolve
from farrier.frontends.builder.images import ImageBuilder
from farrier.frontends.onnx.model.file import Model
from farrier.frontends.tflite.build import build, check_operators
from farrier.frontends.tflite.interface import Interface
from farrier.frontends.tflite.reading import read_model
from farrier.options.shapes import GivenShape, Hot


def import_model(
    model: Model,
    shapes: Mapping[str, GivenShape] | None = None,
    hot: Sequence[Hot] = (),
    typical: Hot = MappingProxyType({}),
) -> ImportedModel:
    """Return the typed graph of a model, with its variables as states. `shapes` fixes dims that the
    model leaves open, by input name; `hot` and `typical` are sizes of dims that stay open, by name
    of dim.

    Raises InvalidModelError for a damaged file, UnsupportedOperatorError with all unknown operators
    at once, or UsageError for shapes that contradict the model.
    """
    read = read_model(model.message)
    check_operators(read)
    interface = Interface(read)
    signature = resolve(interface.declared(), shapes or {}, hot, typical)

    def add(b: ImageBuilder) -> None:
        build(b, read, interface)

    return dataclasses.replace(
        built_by(ImageBuilder, signature, add),
        states=interface.states(),
        declaration=interface.declaration(),
    )
