"""Find the frontend for a model's format. Each frontend is imported when a model first needs it.

A frontend's package has `import_model(model, shapes, hot, typical)` and `inspection(model)`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, cast

from farrier.frontends.formats import Format
from farrier.options.shapes import GivenShape, Hot

if TYPE_CHECKING:
    from farrier.frontends.builder import ImportedModel
    from farrier.frontends.inspection import Inspection
    from farrier.frontends.onnx.model.file import Model


class Frontend(Protocol):
    """The interface of a frontend's package, which reads models of one format."""

    def import_model(
        self,
        model: Model,
        shapes: Mapping[str, GivenShape] | None = None,
        hot: Sequence[Hot] = (),
        typical: Hot = MappingProxyType({}),
    ) -> ImportedModel:
        """Return the typed graph. Raises FarrierError."""
        ...

    def inspection(self, model: Model) -> Inspection:
        """Return the report on a model, which contains the reason if the model does not compile."""
        ...


_PACKAGES = {
    Format.ONNX: "farrier.frontends.onnx.importer",
    Format.STABLEHLO: "farrier.frontends.stablehlo",
    Format.TFLITE: "farrier.frontends.tflite",
    Format.TORCH: "farrier.frontends.torch",
}


def frontend_of(model: Model) -> Frontend:
    """Return the frontend that reads a model. Raises ModuleNotFoundError if a package that it
    needs is not installed."""
    return cast(Frontend, importlib.import_module(_PACKAGES[model.format]))
