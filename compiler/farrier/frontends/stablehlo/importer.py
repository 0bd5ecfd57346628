"""StableHLO text → typed graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from farrier.errors import InvalidModelError
from farrier.frontends.builder import ImportedModel, built_by, resolve
from farrier.frontends.builder.images import ImageBuilder
from farrier.frontends.onnx.model.file import Model
from farrier.frontends.stablehlo.build import Build, check_operations
from farrier.frontends.stablehlo.interface import Interface
from farrier.frontends.stablehlo.module import Module
from farrier.frontends.stablehlo.text import HINT, read_module
from farrier.options.shapes import GivenShape, Hot

_BYTECODE = b"ML\xefR"


def module_of(model: Model) -> Module:
    """Parse a model's file to a module. Raises InvalidModelError."""
    message = model.message
    if bytes(message[:4]) == _BYTECODE:
        raise InvalidModelError(
            f"{model.name} is MLIR bytecode, which needs jax to be read",
            hint="farrier convert FILE -o model.mlir, where jax is installed",
        )
    try:
        return read_module(str(message, "utf-8"))
    except UnicodeDecodeError:
        raise InvalidModelError(f"{model.name} is not text of UTF-8", hint=HINT) from None


def import_model(
    model: Model,
    shapes: Mapping[str, GivenShape] | None = None,
    hot: Sequence[Hot] = (),
    typical: Hot = MappingProxyType({}),
) -> ImportedModel:
    """Return the typed graph of a module. `shapes` fixes dims that the module leaves open, by input
    name; `hot` and `typical` are sizes of dims that stay open, by name of dim.

    Raises InvalidModelError for a damaged file, UnsupportedOperatorError with all unknown
    operations at once, or UsageError for shapes that contradict the module.
    """
    module = module_of(model)
    check_operations(module)
    interface = Interface(module)
    signature = resolve(interface.declared(), shapes or {}, hot, typical)

    def add(b: ImageBuilder) -> None:
        Build(b, module, interface).run()

    return built_by(ImageBuilder, signature, add)
