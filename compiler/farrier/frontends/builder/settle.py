"""Build a model until no question about its open dims is left."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from farrier.errors import InvalidModelError
from farrier.frontends.builder.builder import Builder
from farrier.frontends.builder.data_dims import Defined
from farrier.frontends.builder.model import ImportedModel
from farrier.frontends.builder.preconditions import settled
from farrier.frontends.builder.signature import Signature

B = TypeVar("B", bound=Builder)


def built(signature: Signature, build: Callable[[Builder], object]) -> ImportedModel:
    """Return the model whose nodes `build` adds to a builder (`built_by`)."""
    return built_by(Builder, signature, build)


def built_by(
    make: Callable[[Signature], B], signature: Signature, build: Callable[[B], object]
) -> ImportedModel:
    """Return the model whose nodes `build` adds to a builder that `make` returns.

    `build` runs again from the start, with fewer sizes of the open dims, for each question about
    them that the builder cannot leave open; so it must add the same nodes each time. Raises
    UnresolvedShapeError for what no sizes of the inputs decide, and what `build` raises."""
    try:
        return settled(signature, functools.partial(_Attempt, make, build))
    except RecursionError as error:
        raise InvalidModelError(
            "the model's regions, or the formulas of its sizes, nest too deeply",
            hint="give loops whose tensors grow fewer iterations, or bodies that keep the shapes",
        ) from error


class _Attempt(Generic[B]):
    """One run of `build` (`preconditions.Importing`)."""

    def __init__(
        self, make: Callable[[Signature], B], build: Callable[[B], object], signature: Signature
    ) -> None:
        self._builder, self._build = make(signature), build

    def run(self) -> ImportedModel:
        self._build(self._builder)
        return self._builder.finish()

    @property
    def where(self) -> str:
        return self._builder.where

    @property
    def defined(self) -> Mapping[str, Defined]:
        return self._builder.defined
