"""Build a model repeatedly, until no comparison of sizes that an operator needs is undecided."""

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
    """Build a model with the default `Builder`, to which `build` adds the nodes (see
    `built_by`)."""
    return built_by(Builder, signature, build)


def built_by(
    make: Callable[[Signature], B], signature: Signature, build: Callable[[B], object]
) -> ImportedModel:
    """Build a model: `make` returns a builder, and `build` adds the model's nodes to it.

    `build` may run several times, each time from the start: when a comparison of sizes is
    undecided, the ranges of the open dims are narrowed so that it has one result. It must add the
    same nodes each time. Raises UnresolvedShapeError if no sizes of the inputs decide a comparison,
    and any error that `build` raises.
    """
    try:
        return settled(signature, functools.partial(_Attempt, make, build))
    except RecursionError as error:
        raise InvalidModelError(
            "the model's regions, or the formulas of its sizes, nest too deeply",
            hint="give loops whose tensors grow fewer iterations, or bodies that keep the shapes",
        ) from error


class _Attempt(Generic[B]):
    """One run of `build`, which implements `preconditions.Importing`."""

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
