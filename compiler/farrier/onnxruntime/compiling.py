"""Compile the model of a session, with dims fixed by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard

from farrier.cache.cache import Cache, Request
from farrier.cache.settings import CacheSettings
from farrier.errors import not_installed
from farrier.onnxruntime.providers import Chosen
from farrier.options import CompileOptions
from farrier.options.shapes import GivenShape
from farrier.runtime.artifact import Artifact, load

if TYPE_CHECKING:
    from farrier.frontends.onnx.model.file import Model

ARTIFACT = ".farrier"  # The suffix of files that are compiled already.


def is_compiled(model: Path | bytes) -> TypeGuard[Path]:
    """Check whether the model is the path of an artifact."""
    return isinstance(model, Path) and model.suffix == ARTIFACT


def artifact_of(
    model: Path | bytes, chosen: Chosen, sizes: Mapping[str, int], warn: Callable[[str], None]
) -> Artifact:
    """Return the model's artifact: loaded if the path is an artifact's, else from the cache, else
    compiled and stored in the cache. The compiler is imported only to compile. Raises FarrierError.
    """
    if is_compiled(model):
        if sizes or chosen.options != CompileOptions(threads=chosen.options.threads):
            warn(f"{model} is compiled already: options of the compiler and sizes do not apply")
        return load(model)
    settings = CacheSettings.from_environment()
    if not chosen.uses_cache:
        settings = dataclasses.replace(settings, folder=None)
    request = Request(model, chosen.options, sizes)
    return Cache(settings, warn).artifact(
        request, lambda opened, listener: _compiled(opened, request, listener)
    )


def _compiled(model: Model, request: Request, warn: Callable[[str], None]) -> Artifact:
    try:
        from farrier import pipeline
        from farrier.frontends.onnx import importer  # noqa: F401 (a missing onnx is named here)
        from farrier.progress import Event, Warned
    except ModuleNotFoundError as error:
        raise not_installed(error) from error

    def listen(event: Event) -> None:
        if isinstance(event, Warned):
            warn(event.message)

    options = request.options
    if request.sizes:
        shapes = _shapes(model, request.sizes, warn)
        options = dataclasses.replace(options, shapes={**shapes, **options.shapes})
    return pipeline.compile_model(model, options, listener=listen)


def _shapes(
    model: Model, sizes: Mapping[str, int], warn: Callable[[str], None]
) -> dict[str, GivenShape]:
    """Return the shape of each input with a dim that `sizes` fixes by name; its other open dims
    keep their names. Warn of names that no input has."""
    from farrier.frontends.onnx.importer.inspect import inspect

    inputs = inspect(model).inputs
    names = {dim for value in inputs for dim in value.dims or ()}
    unknown = sorted(set(sizes) - {str(name) for name in names})
    if unknown:
        warn(f"no dim of an input is named {', '.join(unknown)}")
    return {
        value.name: tuple(sizes.get(str(dim), dim) for dim in value.dims)
        for value in inputs
        if value.dims is not None and any(dim in sizes for dim in value.dims)
    }
